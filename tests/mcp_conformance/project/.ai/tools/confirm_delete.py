"""Deletes a file, once that is confirmed."""

import json
import os

__executor_id__ = "rye/core/runtimes/python/function"
__task_support__ = "optional"
__may_ask__ = ["elicit"]
CONFIG_SCHEMA = {
    "type": "object",
    "properties": {"filename": {"type": "string"}},
    "required": ["filename"],
}
FORM = {
    "type": "object",
    "properties": {"confirm": {"type": "boolean"}},
    "required": ["confirm"],
}


def ask(kind, **params):
    with open(os.environ["RYE_CHANNEL"], "w") as channel:
        channel.write(json.dumps({"ask": kind, "params": params}) + "\n")
    with open(os.environ["RYE_ANSWERS"]) as answers:
        answer = json.loads(answers.readline())
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return answer["result"]


def execute(params, project_path):
    answer = ask("elicit", message=f"Delete {params['filename']}?", requestedSchema=FORM)
    is_confirmed = answer["action"] == "accept" and answer["content"]["confirm"]
    return f"{params['filename']} {'deleted' if is_confirmed else 'kept'}"
