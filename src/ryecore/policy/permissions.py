"""The permissions of a caller: its capabilities, and the actions that a person must approve.

A capability is `rye.<execute|fetch|sign>.<kind>.<dotted id>`, with `*` as the wildcard. What a tool
may ask its caller is `rye.ask.<elicit|sample|roots>.<dotted id of the tool>`.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias, get_args

from ryecore.errors import InputError
from ryecore.frozen import frozen
from ryecore.items.refs import ItemRef

__all__ = [
    "ASK_KINDS",
    "Action",
    "ApprovalRequest",
    "Approve",
    "AskKind",
    "FileState",
    "FileToApprove",
    "allows",
    "attenuate",
    "capability_of",
    "capability_to_ask",
    "check_capability",
    "holds_any",
]

Action = Literal["execute", "fetch", "sign"]

AskKind: TypeAlias = Literal["elicit", "sample", "roots"]
"""What a tool may ask: a person to fill in a form, a model to answer, or the caller's folders."""

ASK_KINDS: Final[tuple[AskKind, ...]] = get_args(AskKind)
"""The kinds of questions."""


def capability_of(action: Action, kind: str, item_id: str) -> str:
    """Return the capability that an action on an item needs.

    Ids hold no dots, so the translation of slashes is one to one.
    """
    return f"rye.{action}.{kind}.{item_id.replace('/', '.')}"


def capability_to_ask(kind: AskKind, item_id: str) -> str:
    """Return the capability that a caller needs for a tool's question; the id is without a kind."""
    return f"rye.ask.{kind}.{item_id.replace('/', '.')}"


def allows(granted: Iterable[str], needed: str) -> bool:
    """Return whether a capability is granted, by name or by wildcard.

    Signing is matched only by name: no wildcard grants it.

    Source: decision 13.
    """
    if needed.startswith("rye.sign."):
        return needed in set(granted)
    return any(pattern == needed or _matches(pattern, needed) for pattern in granted)


def check_capability(action: Action, ref: ItemRef, granted: Iterable[str] | None) -> None:
    """Check that an action on an item is granted; None, as the host has, grants every one.

    Raises:
        InputError: It isn't.
    """
    if granted is None:
        return
    needed = capability_of(action, ref.kind, ref.id)
    if not allows(granted, needed):
        raise InputError(
            f"The caller lacks the capability {needed}.",
            next_step="Grant it, or call something else.",
            capability=needed,
        )


def holds_any(granted: Iterable[str], action: Action) -> bool:
    """Return whether any item at all may be executed, fetched or signed."""
    prefix = f"rye.{action}."
    for pattern in granted:
        literal, star, _ = pattern.partition("*")
        if action == "sign":  # which no wildcard grants
            if not star and pattern.startswith(prefix):
                return True
        elif pattern.startswith(prefix) or (star and prefix.startswith(literal)):
            return True
    return False


def attenuate(wanted: Iterable[str], parent: Iterable[str] | None) -> tuple[str, ...]:
    """Return the wanted capabilities that the parent covers; of a broader one, the parent's part.

    The parent is None for the host itself, which may do everything.

    Source: decision 41.
    """
    if parent is None:
        return tuple(dict.fromkeys(wanted))
    held = tuple(parent)
    kept: dict[str, None] = {}
    for one in wanted:
        if allows(held, one):
            kept[one] = None
        else:
            kept.update((narrower, None) for narrower in held if allows((one,), narrower))
    return tuple(kept)


def _matches(pattern: str, needed: str) -> bool:
    """Match a capability: `*` stands for any text, dots included."""
    first, star, others = pattern.partition("*")
    if not star:
        return pattern == needed
    if not needed.startswith(first):
        return False
    if not others:
        return True
    *middle, last = others.split("*")
    if not needed[len(first) :].endswith(last):
        return False
    rest = needed[len(first) : len(needed) - len(last)]
    for part in filter(None, middle):
        _, found, rest = rest.partition(part)
        if not found:
            return False
    return True


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
    """An action of a model, a tool or an MCP client that a person has to approve.

    Attributes:
        action: To `sign` files with the author's key, or to `copy` them into a space.
        space: The space whose files are signed, or into which they are copied.
        files: The files that would be written.
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
        """Return whether this, and exactly this, may be done."""
        ...
