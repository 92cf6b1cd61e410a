"""The one table of status icons: what stands before a status wherever it is shown.

Icons are told apart without colour too.
"""

from collections.abc import Mapping
from typing import Final, Literal

__all__ = ["BOX_STATUSES", "STATUS_ICONS", "BoxStatus", "status_icon", "status_mark"]

BoxStatus = Literal[
    "", "pending", "running", "completed", "failed", "skipped", "cancelled", "retrying"
]
"""How the box of a picture may be marked; empty where its status isn't shown."""

STATUS_ICONS: Final[Mapping[str, tuple[str, str]]] = {
    # status: its icon and its style
    "": (" ", ""),
    "created": ("·", "dim"),
    "pending": ("·", "dim"),
    "skipped": ("–", "dim"),
    "running": ("▸", "id"),
    "retrying": ("↻", "warn"),
    "completed": ("✓", "good"),
    "completed_with_errors": ("✓", "warn"),
    "continued": ("»", "good"),
    "failed": ("✗", "bad"),
    "error": ("✗", "bad"),
    "killed": ("✗", "bad"),
    "cancelled": ("■", "warn"),
    # of checks and of answers
    "success": ("✓", "good"),
    "validation_passed": ("✓", "good"),
    "ok": ("✓", "good"),
    "attested": ("✓", "good"),
    "note": ("·", "dim"),
    "warning": ("!", "warn"),
    "unattested": ("!", "warn"),
    "problem": ("✗", "bad"),
    "altered": ("✗", "bad"),
    "cut": ("✗", "bad"),
}
_UNKNOWN: Final = STATUS_ICONS["error"]

BOX_STATUSES: Final[Mapping[str, BoxStatus]] = {
    "created": "pending", "running": "running", "completed": "completed",
    "continued": "completed", "error": "failed", "killed": "failed", "cancelled": "cancelled",
}  # fmt: skip
"""How the box of a thread is marked, by the thread's status."""


def status_icon(status: str) -> str:
    """Return the icon of a status; of an unknown one, that of an error."""
    return STATUS_ICONS.get(status, _UNKNOWN)[0]


def status_mark(status: str) -> tuple[str, str]:
    """Return the icon of a status and a blank, with its style: the first span of a line."""
    icon, style = STATUS_ICONS.get(status, _UNKNOWN)
    return f"{icon} ", style
