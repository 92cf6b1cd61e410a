"""A host whose executes are written to an audit log, and what stands in it."""

import json
from pathlib import Path
from typing import Any

from ryecore import Rye
from ryecore.llm import Price, Usage
from ryecore.testing import ScriptedProvider, call, say
from tests.scripted_host import ScriptedHost

__all__ = ["SECRET", "AuditedHost", "read_log"]

SECRET = "the private words"
GRAPH = {
    "version": "1.0.0",
    "tool_type": "graph",
    "executor_id": "rye/core/runtimes/state-graph/runtime",
    "category": "acme",
    "permissions": ["rye.execute.tool.acme.*"],
    "config": {
        "start": "one",
        "nodes": {
            "one": {
                "action": {"item_id": "tool:acme/echo", "params": {"text": SECRET}},
                "next": "done",
            },
            "done": {"type": "return", "output": {"text": SECRET}},
        },
    },
}
EXECUTE = call("rye_execute", {"item_id": "tool:acme/echo", "parameters": {"text": SECRET}})


class AuditedHost(ScriptedHost):
    """A host with a tool, a directive whose model executes it, and a graph whose node does.

    Attributes:
        log: The file of the audit log.
        tool: The tool `tool:acme/echo`, which returns the text that it gets.
        ask: The directive `directive:acme/ask`.
        graph: The graph `tool:acme/walk`.
    """

    def __init__(self, root: Path, *script: Any, **deps: Any) -> None:
        model = deps.pop("model", None) or ScriptedProvider(
            script or (EXECUTE, say(SECRET)), usage=Usage(1_000, 100)
        )
        super().__init__(root, model=model, price_of=lambda *_: Price("1", "5"), **deps)
        self.log = root / "audit.jsonl"
        self.tool = self.workspace.python(
            "acme/echo",
            'def execute(params, project_path):\n    return {"text": params["text"]}',
            config_schema={
                "type": "object",
                "properties": {"text": {"type": "string"}},
                "required": ["text"],
            },
        )
        self.ask = self.write("acme/ask", permissions="<execute><tool>acme/*</tool></execute>")
        self.workspace.write("tools/acme/walk.yaml", GRAPH)
        self.graph = "tool:acme/walk"

    def open(self, **options: Any) -> Rye:
        """A Rye with the model and the audit log."""
        return super().open(**{"audit": self.log} | options)

    def lines(self) -> list[dict[str, Any]]:
        """The lines of the log."""
        return read_log(self.log)

    def ends(self) -> list[dict[str, Any]]:
        """The lines of executes that have ended."""
        return [one for one in self.lines() if one["outcome"] != "started"]


def read_log(log: Path) -> list[dict[str, Any]]:
    """The lines of an audit log."""
    return [json.loads(line) for line in log.read_text().splitlines()]
