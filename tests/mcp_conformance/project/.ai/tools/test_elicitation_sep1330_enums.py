"""Asks by a form with each kind of choice."""

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


def titled(*names):
    return [{"const": f"value{n}", "title": name} for n, name in enumerate(names, 1)]


FORM = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {
            "type": "string",
            "oneOf": titled("First Option", "Second Option", "Third Option"),
        },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {
            "type": "array",
            "items": {"type": "string", "enum": ["option1", "option2", "option3"]},
        },
        "titledMulti": {
            "type": "array",
            "items": {"anyOf": titled("First Choice", "Second Choice", "Third Choice")},
        },
    },
}


def execute(params, project_path):
    answer = ask("elicit", "", {"message": "Which?", "requestedSchema": FORM})
    content = json.dumps(answer.get("content"))
    return f"Elicitation completed: action={answer['action']}, content={content}"
