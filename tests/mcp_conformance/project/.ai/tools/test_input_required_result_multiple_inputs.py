"""Asks the person, the model and for the roots at once."""

import json
import os

__executor_id__ = "rye/core/runtimes/python/function"
__may_ask__ = ["elicit", "sample", "roots"]


QUESTIONS = [
    {
        "ask": "elicit",
        "id": "user_name",
        "params": {
            "message": "What is your name?",
            "requestedSchema": {
                "type": "object",
                "properties": {"name": {"type": "string"}},
                "required": ["name"],
            },
        },
    },
    {
        "ask": "sample",
        "id": "greeting",
        "params": {
            "messages": [
                {"role": "user", "content": {"type": "text", "text": "Generate a greeting"}}
            ],
            "maxTokens": 50,
        },
    },
    {"ask": "roots", "id": "client_roots"},
]


def execute(params, project_path):
    with open(os.environ["RYE_CHANNEL"], "w") as channel:
        channel.writelines(json.dumps(one) + "\n" for one in QUESTIONS)
    with open(os.environ["RYE_ANSWERS"]) as answers:
        found = [json.loads(answers.readline()) for _ in QUESTIONS]
    return "Answered: " + ", ".join(sorted(one["id"] for one in found if "result" in one))
