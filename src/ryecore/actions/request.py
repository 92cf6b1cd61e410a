"""The request to execute an item, and the matrix of supported executions.

Source: docs/design/execute.md.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from attrs import field

from ryecore.errors import UnsupportedExecution
from ryecore.frozen import frozen
from ryecore.items.refs import ItemRef

if TYPE_CHECKING:
    from ryecore.policy.limits import Limits

__all__ = ["ExecuteRequest", "check_cell", "check_modes"]

_TARGET: Final = re.compile(r"local|remote|remote:[A-Za-z0-9_][A-Za-z0-9_-]*")


@frozen(slots=False)
class ExecuteRequest:
    """The request to execute an item, as its caller passes it; see `Rye.execute`."""

    item: str | ItemRef
    parameters: Mapping[str, Any] | None = field(default=None, repr=False)
    dry_run: bool = False
    target: str = "local"
    thread: str = "inline"
    async_: bool = False
    model: str | None = None
    limits: "Mapping[str, Any] | Limits | None" = None
    timeout_s: float | None = None
    trace: bool = False
    output_log: str | None = None
    idempotency_key: str | None = None
    muted_hooks: frozenset[str] = frozenset()
    pull: bool = False


def check_modes(request: ExecuteRequest) -> None:
    """Check the modes that don't depend on the item."""
    target, thread = request.target, request.thread
    async_, dry_run = request.async_, request.dry_run
    for name, flag in (("async", async_), ("dry_run", dry_run)):
        if not isinstance(flag, bool):
            raise UnsupportedExecution(
                f"{name} must be true or false, not {flag!r}.", next_step="Pass true or false."
            )
    if thread not in ("inline", "fork"):
        raise UnsupportedExecution(
            f"Unknown thread mode {thread!r}.", next_step='Write "inline" or "fork".'
        )
    if target == "remote:":
        raise UnsupportedExecution(
            'The target "remote:" has no name.',
            next_step='Write "remote", or "remote:NAME" for a named one.',
        )
    if not isinstance(target, str) or _TARGET.fullmatch(target) is None:
        raise UnsupportedExecution(
            f"Unknown target {target!r}.",
            next_step='Write "local", "remote" or "remote:NAME".',
        )
    if request.pull and target == "local":
        raise UnsupportedExecution(
            "pull is for remote targets: what runs here changes the project's files itself.",
            next_step="Leave it out, or pass a remote target.",
        )
    if dry_run and async_:
        raise UnsupportedExecution(
            "dry_run with async is not supported: validation is instant, there is nothing to "
            "detach.",
            next_step="Leave one of them out.",
        )
    if dry_run and target != "local":
        raise UnsupportedExecution(
            "dry_run with a remote target is not supported: a dry run validates locally.",
            next_step="Leave one of them out.",
        )


def check_cell(kind: str, target: str, thread: str, *, async_: bool) -> None:
    """Check whether the matrix supports an execution of a kind of item."""
    is_remote = target != "local"
    if kind not in ("tool", "directive"):
        raise UnsupportedExecution(
            f"A {kind} item can't be executed.",
            next_step=f"Execute a tool or a directive, or read it: rye fetch {kind}:ID",
        )
    if kind == "tool" and thread == "fork":
        raise UnsupportedExecution(
            "Tools can't be forked: fork spawns a managed thread for a directive.",
            next_step='Leave thread at "inline".',
        )
    if kind == "directive" and is_remote and thread == "inline":
        raise UnsupportedExecution(
            "Directives need thread=fork on a remote target: nobody there follows them inline.",
            next_step='Pass thread="fork", or --thread fork.',
        )
    if kind == "directive" and async_ and thread == "inline":
        raise UnsupportedExecution(
            "An inline directive can't be asynchronous: there is nothing to detach.",
            next_step='Pass thread="fork", or leave async out.',
        )
