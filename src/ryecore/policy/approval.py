"""What a host is asked before a model's wish changes what may run."""

from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from attrs import frozen

__all__ = ["ApprovalRequest", "Approve", "FileState", "FileToApprove"]

FileState: TypeAlias = Literal["unsigned", "changed", "signed", "new", "replaces"]
"""To sign: `unsigned`, `changed` since it was signed, or `signed`. To copy: `new`, or `replaces`
another file."""


@frozen
class FileToApprove:
    """One file that would be written.

    Attributes:
        item_id: Its kind and its path below the kind's folder, as `tool:acme/hello.py`.
        path: The file.
        content_hash: SHA-256 (hex) of its content without the signature line. Nothing else is
            signed, or copied, once this was approved.
        size_bytes: How large it is.
        state: What stands there now.
        preview: Its first lines, whole.
        hidden_lines: How many of its lines the preview leaves out.
        hidden_chars: How many of its characters the preview leaves out.
    """

    item_id: str
    path: Path
    content_hash: str
    size_bytes: int
    state: FileState
    preview: str
    hidden_lines: int = 0
    hidden_chars: int = 0


@frozen
class ApprovalRequest:
    """What a model, a tool or an MCP client asks for that needs a person's word.

    Attributes:
        action: To `sign` files with the author's key, or to `copy` them into a space.
        space: Where.
        files: Which.
        call_id: The call that asks, as its `CallContext` names it.
    """

    action: Literal["sign", "copy"]
    space: str
    files: tuple[FileToApprove, ...]
    call_id: str


class Approve(Protocol):
    """Answers an approval request; the host gives it to `Rye.open`.

    Source: decision 13.
    """

    async def __call__(self, request: ApprovalRequest, /) -> bool:
        """Whether this, and exactly this, may be done."""
        ...
