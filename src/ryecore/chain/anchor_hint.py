"""The next step where a tool without an anchor imports a file beside it. One file is looked up."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ryecore.chain.model import Chain

__all__ = ["anchor_hint"]

_MISSING: Final = re.compile(
    r"No module named '(?P<python>\w+)|Cannot find module '(?P<node>[^'\n]+)'"
    r"|cannot load such file -- (?P<ruby>[\w./-]+)"
)


def anchor_hint(chain: Chain, error: str | None) -> str:
    """Explain anchors, where a missing one is the cause of an error.

    Args:
        chain: The chain of a tool that has no anchor.
        error: Why the tool failed.

    Returns:
        The next step; empty where no file of the missing name stands beside the tool.
    """
    found = _MISSING.search(error or "")
    path = chain.head.path
    spec = next((one.spec.anchor for one in chain.elements if one.spec.anchor is not None), None)
    if found is None or path is None or spec is None or not spec.markers_any:
        return ""
    name = Path(found["python"] or found["node"] or found["ruby"]).name
    if not _stands_beside(path.parent, name):
        return ""
    return (
        f"{name} stands beside the tool, which has no anchor: a tool runs as a sealed copy of its "
        "one file, unless a folder is marked as the root of what it may import. Mark it: put "
        f"{_either(spec.markers_any)} into {path.parent}, then sign every file there."
    )


def _stands_beside(folder: Path, name: str) -> bool:
    try:
        return any(one.name == name or one.name.split(".")[0] == name for one in folder.iterdir())
    except OSError:
        return False


def _either(names: Sequence[str]) -> str:
    return " or ".join(names)
