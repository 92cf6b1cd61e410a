"""The approvals by the host, and the spaces that may be changed."""

from itertools import accumulate
from pathlib import Path
from typing import Final

from ryecore.errors import InputError, NotApproved
from ryecore.items.spaces import Space, Spaces
from ryecore.policy.permissions import ApprovalRequest, Approve, FileState, FileToApprove

__all__ = ["ask", "file_to_approve", "own_space"]

_PREVIEW_LINES: Final = 40
_PREVIEW_CHARACTERS: Final = 4000


async def ask(approve: Approve | None, request: ApprovalRequest) -> None:
    """Ask the host for an approval, and raise `NotApproved` unless it returns True.

    Source: decision 13.
    """
    names = ", ".join(file.item_id for file in request.files[:5])
    more = f" and {len(request.files) - 5} more" if len(request.files) > 5 else ""
    question = f"To {request.action} {names}{more} in {request.space} space needs approval"
    if approve is None:
        raise NotApproved(
            f"{question}, and no approval callback is set.",
            next_step="Do it yourself with the rye command, or pass approve= to Rye.open.",
        )
    # Only True approves.
    if await approve(request) is not True:
        raise NotApproved(f"{question}, which was refused.", next_step="Ask the person why.")


def file_to_approve(
    item_id: str,
    path: Path,
    content_hash: str,
    state: FileState,
    content: bytes,
    *,
    size_bytes: int | None = None,
) -> FileToApprove:
    """Describe a file for an approval, and count the lines that its preview leaves out.

    `item_id` is the kind with the path below the kind's folder; `size_bytes` is by default that of
    `content`.
    """
    whole = content.decode("utf-8", errors="replace")
    lines = whole.splitlines(keepends=True)
    ends = accumulate(map(len, lines[:_PREVIEW_LINES]))
    shown = sum(end <= _PREVIEW_CHARACTERS for end in ends)  # whole lines only
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


def own_space(spaces: Spaces, name: str, done: str) -> Space:
    """Return the space of the name `project` or `user`; no other may be changed."""
    if name not in ("project", "user"):
        raise InputError(
            f"Nothing in {name!r} space can be {done}.",
            next_step='Write "project" or "user": system space is sealed.',
        )
    return spaces.project if name == "project" else spaces.user
