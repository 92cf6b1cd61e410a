# rye:signed:2026-11-28T17:20:55Z:076659c364374c87afb4b5d9dd6f3875c95d736c99652fe48a818fb3547d2502:a_VC6Y28xr1sVbr2Uh8L7xdqOYxfdHWg0Y3ekT_no2B69qY8RFU4q25lBQv85Umob072DoUuH6HZ1ad8MH8bCg:a50d0ff255b90b74
"""Write a text file in one step."""

from __future__ import annotations

import os

from answers import Refused, encoded, flag, reported, text
from atomic import existing, lock, replace
from confined import locate, open_regular

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "rye/file-system"
__tool_description__ = (
    "Write a text file in the project: overwrite it, create it only if it is new, or append to it."
)

CONFIG_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "path": {
            "type": "string",
            "minLength": 1,
            "maxLength": 4096,
            "description": "The file, relative to the project or absolute inside it.",
        },
        "content": {
            "type": "string",
            "maxLength": 10485760,
            "description": "The text to write, as UTF-8.",
        },
        "create_dirs": {
            "type": "boolean",
            "default": True,
            "description": "Whether to make the folders that are missing.",
        },
        "mode": {
            "type": "string",
            "enum": ["overwrite", "create", "append"],
            "default": "overwrite",
            "description": "overwrite replaces what is there, create fails where a file is, "
            "append adds at the end.",
        },
    },
    "required": ["path", "content"],
    "additionalProperties": False,
}

CONFIG_RESOLVE = {"path": "file-system/access.yaml", "mode": "deep_merge", "signed": True}


@reported
def execute(params: dict[str, object], project_path: str) -> dict[str, object]:
    """Write a text file in one step; see CONFIG_SCHEMA."""
    path, mode = text(params, "path"), text(params, "mode", "overwrite")
    if mode not in ("overwrite", "create", "append"):
        raise Refused("Give mode as overwrite, create or append.")
    if path.endswith("/"):
        raise Refused(f"{path!r} names a folder; give the path of a file.")
    content = encoded(params, "content")
    place = locate(path, project_path, params, writing=True)
    folder, name = place.open_parent(create=flag(params, "create_dirs", True))
    try:
        lock(folder)
        before = existing(folder, name, place.shown)
        if before and mode == "create":
            raise Refused(f"{place.shown!r} exists already; give mode overwrite to replace it.")
        pieces: Iterable[bytes] = (content,)
        if before and mode == "append":
            pieces = _appended(folder, name, place.shown, content)
        size = replace(folder, name, pieces, before, place.shown)
    finally:
        os.close(folder)
    return {"success": True, "path": place.shown, "size_bytes": size, "created": before is None}


def _appended(folder: int, name: str, shown: str, content: bytes) -> Iterator[bytes]:
    descriptor, _ = open_regular(folder, name, shown)
    with open(descriptor, "rb", buffering=0) as file:
        while piece := file.read(1024 * 1024):
            yield piece
    yield content
