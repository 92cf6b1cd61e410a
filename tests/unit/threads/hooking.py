"""Hooks in a host's own files, and what they have noted."""

import json
from typing import Any

from tests.scripted_host import ScriptedHost

__all__ = ["MAY_NOTE", "control", "fetch", "hooks", "note", "notes", "noting", "ran"]

NOTE = """
import json, os

def execute(params, project_path):
    with open(os.path.join(project_path, "notes.jsonl"), "a") as file:
        file.write(json.dumps(params) + "\\n")
    return {"control": params["wish"]} if "wish" in params else {}
"""


def noting(host: ScriptedHost) -> None:
    host.workspace.python("acme/note", NOTE)


def notes(host: ScriptedHost) -> list[dict[str, Any]]:
    path = host.workspace.project / "notes.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def note(name: str, event: str, **options: Any) -> dict[str, Any]:
    params = {"hook": name} | options.pop("params", {})
    action = {"primary": "execute", "kind": "tool", "item_id": "acme/note", "params": params}
    return {"id": name, "event": event, "action": action, **options}


def fetch(name: str, item: str, event: str = "thread_started", **options: Any) -> dict[str, Any]:
    action = {"primary": "fetch", "kind": "knowledge", "item_id": item, **options}
    return {"id": name, "event": event, "action": action}


def control(name: str, event: str, result: str, **options: Any) -> dict[str, Any]:
    return {"id": name, "event": event, "action": {"control": result}, **options}


def hooks(host: ScriptedHost, *declared: dict[str, Any], space: Any = "project") -> None:
    host.workspace.write("config/agent/hooks.yaml", {"hooks": list(declared)}, space=space)


def ran(host: ScriptedHost, thread_id: str) -> list[tuple[str, str, bool]]:
    return [
        (one.payload["id"], one.payload["event"], one.payload["ok"])
        for one in host.records(thread_id, "hook")
    ]


MAY_NOTE = "<execute><tool>host/*</tool><tool>acme/note</tool></execute>"
