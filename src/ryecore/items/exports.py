"""The folder of the exports of threads in a project's knowledge. They are records, never items.

Source: decisions 5 and 36.
"""

from typing import Final

__all__ = ["EXPORT_FOLDER", "RECORD_LINE", "is_export"]

EXPORT_FOLDER: Final = "agent/threads"
"""The folder of exports, below a project's `.ai/knowledge`."""

RECORD_LINE: Final = b"<!-- rye-record:"
"""The beginning of a document that a run key has signed as a record."""


def is_export(kind: str, name: str) -> bool:
    """Return whether an item's id or path belongs to the folder of exports.

    Args:
        kind: The kind of item.
        name: Its id, or its slash path below the kind's folder.
    """
    return kind == "knowledge" and name.startswith(f"{EXPORT_FOLDER}/")
