"""Asking the host, before a model's wish changes what may run."""

from typing import Final

from ryecore.errors import NotApproved
from ryecore.policy.approval import ApprovalRequest, Approve

__all__ = ["ask", "preview_of"]

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


def preview_of(content: bytes) -> str:
    """The first lines of a file, for a person to look at."""
    text = content[: 4 * _PREVIEW_CHARACTERS].decode("utf-8", errors="replace")
    lines = text[:_PREVIEW_CHARACTERS].splitlines()
    return "\n".join(lines[:_PREVIEW_LINES])
