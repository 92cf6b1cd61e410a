"""The root of a tool's dependency tree.

Source: docs/design/chain.md#anchors; decision 22.
"""

from pathlib import Path

from ryecore.chain.spec import AnchorSpec
from ryecore.errors import AnchorError
from ryecore.lillux.digests import read_digest
from ryecore.lillux.witness import Evidence

__all__ = ["find_anchor"]


def find_anchor(
    spec: AnchorSpec, tool_path: Path, kind_folder: Path, evidence: Evidence
) -> Path | None:
    """Find the anchor of a tool.

    Args:
        spec: What the runtime, or the tool, declares.
        tool_path: The author's own file.
        kind_folder: The kind's folder; no anchor lies outside it.
        evidence: Told which markers were absent, and which one was there.

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
