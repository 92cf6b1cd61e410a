# rye:signed:2026-11-28T17:20:55Z:1094cdb1fcb9975473f4266a462fba16c38723c177797059ed26b993e82e960d:FrFoyI3j529jBGUNUs3-1lwRRHtQMaULQwgkGj_E3mFcwsvPIx8fVBs2HI2skAEEF8Ht4j0xEwzJS8dwRmS5BA:a50d0ff255b90b74
"""Find files by a pattern of their paths."""

from __future__ import annotations

import os
import time

from answers import Refused, number, reported, text
from confined import locate
from patterns import Pattern
from tree import walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from confined import Place

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "rye/file-system"
__hints__ = {"read_only": True}
__tool_description__ = (
    "Find files in the project by a pattern of their paths, such as `src/**/*.py`."
)

CONFIG_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "pattern": {
            "type": "string",
            "minLength": 1,
            "maxLength": 1000,
            "description": "Relative to path; `*`, `?` and `[...]` match in one name, `**` any "
            "number of folders. `{a,b}` has no meaning. .git, node_modules, .venv and __pycache__ "
            "are searched only where the pattern names them.",
        },
        "path": {
            "type": "string",
            "minLength": 1,
            "maxLength": 4096,
            "default": ".",
            "description": "The folder to search, relative to the project or absolute inside it.",
        },
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": 5000,
            "default": 500,
            "description": "How many files to show at most.",
        },
    },
    "required": ["pattern"],
    "additionalProperties": False,
}

CONFIG_RESOLVE = {"path": "file-system/access.yaml", "mode": "deep_merge", "signed": True}

TIME_BOUND_S = 20.0


@reported
def execute(params: dict[str, object], project_path: str) -> dict[str, object]:
    """Find files by a pattern of their paths; see CONFIG_SCHEMA."""
    pattern = Pattern(text(params, "pattern"))
    place = locate(text(params, "path", "."), project_path, params)
    limit = number(params, "limit", 500)
    files: list[str] = []
    missed: list[str] = []
    notes: list[str] = []
    until = time.monotonic() + TIME_BOUND_S
    for entry, state in walk(place, pattern.start, pattern.enter, missed):
        if time.monotonic() > until:
            notes.append(f"The search ended after {TIME_BOUND_S:g} s; search in a folder below.")
            break
        if not pattern.matches(state, entry.name):
            continue
        if entry.kind == "file" or (
            entry.kind == "symlink" and _leads_to_file(entry.place, project_path, params)
        ):
            if len(files) == limit:
                notes.append(f"There are more than {limit} files; give a narrower pattern.")
                break
            files.append(entry.place.shown)
    truncated = bool(notes)
    if missed:
        notes.append(f"Could not be read: {', '.join(missed[:10])}.")
    return {"success": True, "files": sorted(files), "truncated": truncated, "notes": notes}


def _leads_to_file(link: Place, project_path: str, params: dict[str, object]) -> bool:
    try:
        return locate(os.path.join(link.root, *link.parts), project_path, params).is_file()
    except Refused:
        return False
