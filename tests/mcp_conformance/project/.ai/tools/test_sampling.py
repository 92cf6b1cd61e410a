"""Has the model of the client answer a prompt."""

import json
import os

__executor_id__ = "rye/core/runtimes/python/function"
__may_ask__ = ["sample"]
CONFIG_SCHEMA = {
    "type": "object",
    "properties": {"prompt": {"type": "string", "description": "What the model is asked"}},
    "required": ["prompt"],
}


def ask(kind, key, params):
    with open(os.environ["RYE_CHANNEL"], "w") as channel:
        channel.write(json.dumps({"ask": kind, "id": key, "params": params}) + "\n")
    with open(os.environ["RYE_ANSWERS"]) as answers:
        answer = json.loads(answers.readline())
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return answer["result"]


def execute(params, project_path):
    text = {"type": "text", "text": params["prompt"]}
    answer = ask("sample", "", {"messages": [{"role": "user", "content": text}], "maxTokens": 100})
    return f"LLM response: {answer['content']['text']}"
