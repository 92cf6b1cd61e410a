"""Asks for a name with its call, and greets as a task."""

import json
import os

__executor_id__ = "rye/core/runtimes/python/function"
__task_support__ = "required"
__may_ask__ = ["elicit"]
__must_ask__ = ["elicit"]
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def ask(kind, **params):
    with open(os.environ["RYE_CHANNEL"], "w") as channel:
        channel.write(json.dumps({"ask": kind, "params": params}) + "\n")
    with open(os.environ["RYE_ANSWERS"]) as answers:
        answer = json.loads(answers.readline())
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return answer["result"]


def execute(params, project_path):
    answer = ask("elicit", message="What is your name?", requestedSchema=FORM)
    return f"Hello, {answer['content']['name']}!"
