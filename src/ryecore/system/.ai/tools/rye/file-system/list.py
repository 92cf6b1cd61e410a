# rye:signed:2026-11-28T17:20:55Z:3d8a0dcca375d031ed0511ef113b8937656975bb877fe1a46a8a3031b8371b25:Ywou1qLB6y1krCXlGEpERd1CfUEAhIe3O_dVsEfL_9GMsU1BsaTj6TSrihv90DzgNbTWETNShRiNQoDm-1M_AA:a50d0ff255b90b74
"""List what lies in a folder."""

from __future__ import annotations

from answers import flag, number, reported, text
from confined import locate
from tree import walk

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "rye/file-system"
__hints__ = {"read_only": True}
__tool_description__ = (
    "List the files and folders in a folder of the project; links are shown, not followed."
)

CONFIG_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "path": {
            "type": "string",
            "minLength": 1,
            "maxLength": 4096,
            "default": ".",
            "description": "The folder, relative to the project or absolute inside it.",
        },
        "depth": {
            "type": "integer",
            "minimum": 1,
            "maximum": 5,
            "default": 1,
            "description": "How many levels of folders to show.",
        },
        "include_hidden": {
            "type": "boolean",
            "default": False,
            "description": "Whether to show what begins with a dot.",
        },
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": 5000,
            "default": 500,
            "description": "How many entries to show at most.",
        },
    },
    "additionalProperties": False,
}

CONFIG_RESOLVE = {"path": "file-system/access.yaml", "mode": "deep_merge", "signed": True}


@reported
def execute(params: dict[str, object], project_path: str) -> dict[str, object]:
    """List the contents of a folder, each folder before what lies in it; see CONFIG_SCHEMA."""
    place = locate(text(params, "path", "."), project_path, params)
    depth, limit = number(params, "depth", 1), number(params, "limit", 500)
    hidden = flag(params, "include_hidden", False)
    entries: list[dict[str, object]] = []
    missed: list[str] = []
    truncated = False

    def enter(left: int, name: str) -> int | None:
        return left - 1 if left > 1 and (hidden or not name.startswith(".")) else None

    for entry, _ in walk(place, depth, enter, missed, sizes=True):
        if not hidden and entry.name.startswith("."):
            continue
        if len(entries) == limit:
            truncated = True
            break
        entries.append({"path": entry.place.shown, "type": entry.kind, "size_bytes": entry.size})
    notes = []
    if truncated:
        notes.append(f"Only the first {limit} entries are shown; list a folder in it or less deep.")
    if missed:
        notes.append(f"Could not be read: {', '.join(missed[:10])}.")
    return {
        "success": True,
        "path": place.shown,
        "entries": entries,
        "truncated": truncated,
        "notes": notes,
    }
