"""Asks the person for a name and an address."""

import json
import os

__executor_id__ = "rye/core/runtimes/python/function"
__may_ask__ = ["elicit"]
CONFIG_SCHEMA = {
    "type": "object",
    "properties": {"message": {"type": "string", "description": "What the person is asked"}},
    "required": ["message"],
}


def ask(kind, key, params):
    with open(os.environ["RYE_CHANNEL"], "w") as channel:
        channel.write(json.dumps({"ask": kind, "id": key, "params": params}) + "\n")
    with open(os.environ["RYE_ANSWERS"]) as answers:
        answer = json.loads(answers.readline())
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return answer["result"]


FORM = {
    "type": "object",
    "properties": {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    },
    "required": ["username", "email"],
}


def execute(params, project_path):
    answer = ask("elicit", "", {"message": params["message"], "requestedSchema": FORM})
    content = json.dumps(answer.get("content"))
    return f"User response: action={answer['action']}, content={content}"
