"""Asking the host, before a model's wish changes what may run."""

from itertools import accumulate
from pathlib import Path
from typing import Final

from ryecore.errors import NotApproved
from ryecore.policy.permissions import ApprovalRequest, Approve, FileState, FileToApprove

__all__ = ["ask", "file_to_approve"]

_PREVIEW_LINES: Final = 40
_PREVIEW_CHARACTERS: Final = 4000


async def ask(approve: Approve | None, request: ApprovalRequest) -> None:
    """Ask for an approval, and go on only where it is given.

    Raises:
        NotApproved: The host takes no such questions, or refused.

    Source: decision 13.
    """
    names = ", ".join(file.item_id for file in request.files[:5])
    more = f" and {len(request.files) - 5} more" if len(request.files) > 5 else ""
    wish = f"To {request.action} {names}{more} in {request.space} space needs approval"
    if approve is None:
        raise NotApproved(
            f"{wish}, and nobody is there to give it.",
            next_step="Do it yourself with the rye command, or pass approve= to Rye.open.",
        )
    # Nothing but True is a yes.
    if await approve(request) is not True:
        raise NotApproved(f"{wish}, which was refused.", next_step="Ask the person why.")


def file_to_approve(
    item_id: str,
    path: Path,
    content_hash: str,
    state: FileState,
    content: bytes,
    *,
    size_bytes: int | None = None,
) -> FileToApprove:
    """Describe a file to the person who is asked, and count what the preview doesn't show.

    Args:
        item_id: Its kind and its path below the kind's folder.
        path: The file.
        content_hash: SHA-256 (hex) of what is approved.
        state: Its state, such as `unsigned`.
        content: The content to preview.
        size_bytes: The size of the whole file; by default that of `content`.

    Returns:
        The description.
    """
    whole = content.decode("utf-8", errors="replace")
    lines = whole.splitlines(keepends=True)
    ends = accumulate(map(len, lines[:_PREVIEW_LINES]))
    shown = sum(end <= _PREVIEW_CHARACTERS for end in ends)  # whole lines alone
    preview = "".join(lines[:shown])
    return FileToApprove(
        item_id,
        path,
        content_hash,
        len(content) if size_bytes is None else size_bytes,
        state,
        preview.rstrip("\r\n"),
        len(lines) - shown,
        len(whole) - len(preview),
    )
