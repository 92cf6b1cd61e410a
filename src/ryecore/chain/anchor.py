"""The root of a tool's dependency tree, and the next step where a tool lacks one.

Source: docs/design/chain.md#anchors; decision 22.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ryecore.chain.model import Chain
from ryecore.chain.spec import AnchorSpec
from ryecore.errors import AnchorError
from ryecore.lillux.digests import read_digest
from ryecore.lillux.witness import Evidence

__all__ = ["anchor_hint", "find_anchor"]


def find_anchor(
    spec: AnchorSpec, tool_path: Path, kind_folder: Path, evidence: Evidence
) -> Path | None:
    """Find the anchor of a tool.

    Args:
        spec: What the runtime, or the tool, declares.
        tool_path: The author's own file.
        kind_folder: The kind's folder; no anchor lies outside it.
        evidence: Collects which markers were absent, and which one was present.

    Returns:
        The folder, or None where the tool has no anchor.

    Raises:
        AnchorError: The declaration leads outside the kind's folder.
    """
    if not spec.enabled or spec.mode == "never":
        return None
    start = tool_path.parent
    if spec.mode == "auto":
        marked = _nearest_marked(spec, start, kind_folder, evidence)
        if marked is None:
            return None
        start = marked
    if spec.root == "tool_dir":
        root = start
    else:
        root = start.parent if spec.root == "tool_parent" else kind_folder.parents[1]
    if not root.is_relative_to(kind_folder):
        raise AnchorError(
            f"The anchor of {tool_path} would be {root}, outside {kind_folder}.",
            next_step="Let the runtime's anchor root be tool_dir, or move the tool a folder down.",
        )
    return root


def _nearest_marked(
    spec: AnchorSpec, start: Path, kind_folder: Path, evidence: Evidence
) -> Path | None:
    folder = start
    while folder.is_relative_to(kind_folder):
        for marker in spec.markers_any:
            path = folder / marker
            if path.exists():
                _tell_of(path, evidence)
                return folder
            evidence.absent(str(path))
        folder = folder.parent
    return None


def _tell_of(marker: Path, evidence: Evidence) -> None:
    """Once the marker goes, so does the anchor."""
    try:
        evidence.file(str(marker), read_digest(marker)[1])
    except OSError:  # a folder, say
        evidence.never_remember()


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
