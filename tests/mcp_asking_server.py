"""An MCP server of 2025-11-25 that reports and asks while a call runs, written without the SDK."""

import json
import math
import sys
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
                can = {"tools": {}, "logging": {}}
                result = {"protocolVersion": "2025-11-25", "capabilities": can, "serverInfo": me}
                send(id=message["id"], result=result)
            case "tools/list":
                tools = [
                    {"name": name, "inputSchema": {"type": "object"}}
                    for name in ("ask", "can", "flood")
                ]
                send(id=message["id"], result={"tools": tools})
            case "tools/call" if message["params"]["name"] == "can":
                text = json.dumps(capabilities)
                send(id=message["id"], result={"content": [{"type": "text", "text": text}]})
            case "tools/call" if message["params"]["name"] == "flood":
                flood(message["id"])
            case "tools/call":
                call(message["id"], message["params"])
            case "ping":
                send(id=message["id"], result={})


if __name__ == "__main__":
    main()
