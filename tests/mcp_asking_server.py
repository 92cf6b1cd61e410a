"""An MCP server of 2025-11-25 that reports and asks while a call runs, written without the SDK."""

import itertools
import json
import math
import sys
import time
from typing import Any

FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "size": {"type": "integer", "default": 3},
    },
    "required": ["name"],
}


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def call(number: object, params: dict[str, Any]) -> None:
    """Report, ask, and say what the answer was."""
    token = (params.get("_meta") or {}).get("progressToken")
    if token is not None:
        for wrong in ({"progress": math.inf}, {"progress": 0.5, "total": math.nan}):
            send(method="notifications/progress", params={"progressToken": token, **wrong})
        send(method="notifications/message", params={"level": "error", "data": [math.nan]})
        told = {"progressToken": token, "progress": 1, "total": 2, "message": "half"}
        send(method="notifications/progress", params=told)
    send(method="notifications/message", params={"level": "warning", "data": {"rows": 7}})
    asked = {"message": "Who?", "requestedSchema": FORM}
    send(id="q1", method="elicitation/create", params=asked)
    answer = next(one for one in messages() if one.get("id") == "q1")
    said = answer.get("result") or answer.get("error")
    send(id=number, result={"content": [{"type": "text", "text": json.dumps(said)}]})


ASKED = {
    "sample": (
        "sampling/createMessage",
        {"messages": [{"role": "user", "content": {"type": "text", "text": "Where?"}}],
         "maxTokens": 9},
    ),
    "roots": ("roots/list", {}),
}  # fmt: skip


def ask(number: object, name: str) -> None:
    """Ask the client's model, or for its folders, and say what the answer was."""
    method, params = ASKED[name]
    send(id="a1", method=method, params=params)
    answer = next(one for one in messages() if one.get("id") == "a1")
    said = answer.get("result") or answer.get("error")
    send(id=number, result={"content": [{"type": "text", "text": json.dumps(said)}]})


TASK = {
    "taskId": "t1", "createdAt": "2025-11-25T10:30:00Z", "lastUpdatedAt": "2025-11-25T10:30:00Z",
    "ttl": 60_000, "pollInterval": 60,
}  # fmt: skip


def task(number: object, params: dict[str, Any]) -> None:
    """Be a task: report after the call, ask while its result is waited for, and say all of it."""
    token = params["_meta"]["progressToken"]
    send(id=number, result={"task": {**TASK, "status": "working"}})
    told = {"progressToken": token, "progress": 3, "total": 4, "message": "later"}
    send(method="notifications/progress", params=told)
    polled: list[float] = [time.monotonic()]
    for message in messages():
        if message.get("method") == "tasks/get":
            polled.append(time.monotonic())
            status = "input_required" if len(polled) > 3 else "working"
            send(id=message["id"], result={**TASK, "status": status})
        if message.get("method") == "tasks/result":
            send(id="q2", method="elicitation/create", params={
                "message": "Who?", "requestedSchema": FORM,
                "_meta": {"io.modelcontextprotocol/related-task": {"taskId": "t1"}},
            })  # fmt: skip
            answer = next(one for one in messages() if one.get("id") == "q2")
            gaps = [later - sooner for sooner, later in itertools.pairwise(polled)]
            said = {"task": params["task"], "answer": answer.get("result"), "gap_s": min(gaps)}
            send(id=message["id"], result={"content": [{"type": "text", "text": json.dumps(said)}]})
            return


def flood(number: object) -> None:
    """Ask twelve questions at once, log the first four answers, and say what all were."""
    for one in range(12):
        asked = {"message": f"{one}?", "requestedSchema": FORM}
        send(id=f"f{one}", method="elicitation/create", params=asked)
    answers: list[Any] = []
    for message in messages():
        if str(message.get("id")).startswith("f"):
            answers.append(message.get("result") or message.get("error"))
        if len(answers) == 4:
            send(method="notifications/message", params={"level": "warning", "data": "four"})
        if len(answers) == 12:
            break
    send(id=number, result={"content": [{"type": "text", "text": json.dumps(answers)}]})


def messages() -> Any:
    for line in sys.stdin:
        yield json.loads(line)


def main() -> None:
    capabilities: object = None
    for message in messages():
        match message.get("method"):
            case "initialize":
                capabilities = message["params"]["capabilities"]
                me = {"name": "asking", "version": "1"}
                tasks = {"requests": {"tools": {"call": {}}}}
                can = {"tools": {}, "logging": {}, "tasks": tasks}
                result = {"protocolVersion": "2025-11-25", "capabilities": can, "serverInfo": me}
                send(id=message["id"], result=result)
            case "tools/list":
                tools: list[Any] = [
                    {"name": name, "inputSchema": {"type": "object"}}
                    for name in ("ask", "can", "flood", "sample", "roots")
                ]
                long = {"name": "long", "execution": {"taskSupport": "required"}}
                tools.append({**long, "inputSchema": {"type": "object"}})
                send(id=message["id"], result={"tools": tools})
            case "tools/call" if message["params"]["name"] == "can":
                text = json.dumps(capabilities)
                send(id=message["id"], result={"content": [{"type": "text", "text": text}]})
            case "tools/call" if message["params"]["name"] in ASKED:
                ask(message["id"], message["params"]["name"])
            case "tools/call" if message["params"]["name"] == "long":
                task(message["id"], message["params"])
            case "tools/call" if message["params"]["name"] == "flood":
                flood(message["id"])
            case "tools/call":
                call(message["id"], message["params"])
            case "ping":
                send(id=message["id"], result={})


if __name__ == "__main__":
    main()
