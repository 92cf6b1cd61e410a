"""Asks for a name and for a confirmation at once."""

import json
import os

__executor_id__ = "rye/core/runtimes/python/function"
__task_support__ = "optional"
__may_ask__ = ["elicit"]
FORMS = {
    "name": {"type": "object", "properties": {"name": {"type": "string"}}},
    "confirm": {"type": "object", "properties": {"confirm": {"type": "boolean"}}},
}


def execute(params, project_path):
    with open(os.environ["RYE_CHANNEL"], "w") as channel:
        for key, form in FORMS.items():
            question = {"message": f"Your {key}?", "requestedSchema": form}
            channel.write(json.dumps({"ask": "elicit", "id": key, "params": question}) + "\n")
    with open(os.environ["RYE_ANSWERS"]) as answers:
        found = [json.loads(answers.readline()) for _ in FORMS]
    return "Answered: " + ", ".join(sorted(one["id"] for one in found if "result" in one))
