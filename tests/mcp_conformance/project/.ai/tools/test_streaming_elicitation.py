"""Reports its progress, and asks the person at its caller."""

import json
import os

__executor_id__ = "rye/core/runtimes/python/function"
__reports__ = True
__may_ask__ = ["elicit"]
QUESTION = {
    "message": "Shall this go on?",
    "requestedSchema": {"type": "object", "properties": {"ok": {"type": "boolean"}}},
}


def execute(params, project_path):
    with open(os.environ["RYE_CHANNEL"], "w") as channel:
        channel.write(json.dumps({"progress": 1, "total": 2}) + "\n")
        channel.write(json.dumps({"ask": "elicit", "id": "confirm", "params": QUESTION}) + "\n")
    with open(os.environ["RYE_ANSWERS"]) as answers:
        return f"The answer is {answers.readline()}"
