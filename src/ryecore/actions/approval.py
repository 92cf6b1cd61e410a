"""The checks of a caller's capabilities, and the approvals by the host."""

from itertools import accumulate
from pathlib import Path
from typing import Final

from ryecore.errors import InputError, NotApproved
from ryecore.items.refs import ItemRef
from ryecore.items.spaces import Space, Spaces
from ryecore.policy import CallContext, allows, capability_of
from ryecore.policy.permissions import Action, ApprovalRequest, Approve, FileState, FileToApprove

__all__ = ["ask", "check_capability", "file_to_approve", "own_space"]

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


def check_capability(action: Action, ref: ItemRef, ctx: CallContext) -> None:
    """Check a caller's capability for an action on an item; the host's own calls have every one."""
    if ctx.capabilities is None:
        return
    needed = capability_of(action, ref.kind, ref.id)
    if not allows(ctx.capabilities, needed):
        raise InputError(
            f"The caller lacks the capability {needed}.",
            next_step="Grant it, or call something else.",
            capability=needed,
        )


def own_space(spaces: Spaces, name: str, done: str) -> Space:
    """Return the space of the name `project` or `user`; no other may be changed."""
    if name not in ("project", "user"):
        raise InputError(
            f"Nothing in {name!r} space can be {done}.",
            next_step='Write "project" or "user": system space is sealed.',
        )
    return spaces.project if name == "project" else spaces.user
