"""The execution matrix: what can be executed where and how. Pure.

Source: docs/design/execute.md#matrix; decision 31.
"""

import re
from typing import Final

from ryecore.errors import NotAvailableYet, UnsupportedExecution

__all__ = ["check_cell", "check_modes"]

_TARGET: Final = re.compile(r"local|remote|remote:[A-Za-z0-9_][A-Za-z0-9_-]*")


def check_modes(target: str, thread: str, *, async_: bool, dry_run: bool) -> None:
    """Check what needs no knowledge of the item.

    Args:
        target: `local`, `remote` or `remote:NAME`.
        thread: `inline` or `fork`.
        async_: Whether to return at once.
        dry_run: Whether to validate only.

    Raises:
        UnsupportedExecution: A mode is unknown, or two exclude each other.
    """
    for name, flag in (("async", async_), ("dry_run", dry_run)):
        if not isinstance(flag, bool):
            raise UnsupportedExecution(
                f"{name} is {flag!r}, neither true nor false.", next_step="Pass true or false."
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
    """Check the cell of the matrix for a kind of item.

    Raises:
        UnsupportedExecution: The matrix refuses the cell.
        NotAvailableYet: The cell is to come.
    """
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
            next_step='Pass thread="fork".',
        )
    if kind == "directive" and async_ and thread == "inline":
        raise UnsupportedExecution(
            "An inline directive can't be asynchronous: there is nothing to detach.",
            next_step='Pass thread="fork", or leave async out.',
        )
    if is_remote:
        raise NotAvailableYet(
            "Not available yet: remote targets.",
            next_step="Execute it locally.",
            missing="remote targets",
        )
