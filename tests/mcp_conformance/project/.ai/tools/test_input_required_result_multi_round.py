"""Asks for a name, and then for a colour."""

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


def form(name):
    return {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}


def asked(key, name, message):
    answer = ask("elicit", key, {"message": message, "requestedSchema": form(name)})
    return answer["content"][name] if answer["action"] == "accept" else "nobody knows"


def execute(params, project_path):
    name = asked("step1", "name", "Step 1: What is your name?")
    color = asked("step2", "color", "Step 2: What is your favorite color?")
    return f"{name} likes {color}."
