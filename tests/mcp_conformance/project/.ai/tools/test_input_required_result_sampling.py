"""Asks the model of the client for a capital."""

import json
import os

__executor_id__ = "rye/core/runtimes/python/function"
__may_ask__ = ["sample"]


def ask(kind, key, params):
    with open(os.environ["RYE_CHANNEL"], "w") as channel:
        channel.write(json.dumps({"ask": kind, "id": key, "params": params}) + "\n")
    with open(os.environ["RYE_ANSWERS"]) as answers:
        answer = json.loads(answers.readline())
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return answer["result"]


def execute(params, project_path):
    text = {"type": "text", "text": "What is the capital of France?"}
    messages = [{"role": "user", "content": text}]
    answer = ask("sample", "capital_question", {"messages": messages, "maxTokens": 100})
    return answer["content"]["text"]
