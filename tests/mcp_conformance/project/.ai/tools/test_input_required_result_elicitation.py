"""Asks for a name, and greets."""

import json
import os

__executor_id__ = "rye/core/runtimes/python/function"
__may_ask__ = ["elicit"]


def ask(kind, key, params):
    with open(os.environ["RYE_CHANNEL"], "w") as channel:
        channel.write(json.dumps({"ask": kind, "id": key, "params": params}) + "\n")
    with open(os.environ["RYE_ANSWERS"]) as answers:
        answer = json.loads(answers.readline())
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return answer["result"]


FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def execute(params, project_path):
    answer = ask("elicit", "user_name", {"message": "What is your name?", "requestedSchema": FORM})
    return f"Hello, {answer['content']['name']}!" if answer["action"] == "accept" else "Bye."
