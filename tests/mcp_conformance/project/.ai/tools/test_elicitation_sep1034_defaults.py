"""Asks by a form with defaults."""

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


FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {
            "type": "string",
            "enum": ["active", "inactive", "pending"],
            "default": "active",
        },
        "verified": {"type": "boolean", "default": True},
    },
}


def execute(params, project_path):
    answer = ask("elicit", "", {"message": "Who is it?", "requestedSchema": FORM})
    content = json.dumps(answer.get("content"))
    return f"Elicitation completed: action={answer['action']}, content={content}"
