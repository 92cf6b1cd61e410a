"""How to execute an item."""

from collections.abc import Mapping

from attrs import frozen

from ryecore.policy.limits import Limits

__all__ = ["ExecuteOptions"]


@frozen
class ExecuteOptions:
    """How to execute.

    Attributes:
        dry_run: Validate without executing.
        target: `local`, `remote` or `remote:NAME`.
        thread: `inline` or `fork`.
        async_: Return at once.
        model: The model of a directive's thread.
        limits: Limits of a directive's thread.
        timeout_s: After how many seconds a tool's process group ends; beats every other timeout.
        trace: Whether the result carries the events.
        idempotency_key: A repeated start with this key finds the run of the first.
        muted_hooks: The ids of hooks that don't act in a directive's thread.
        output_log: A file that a tool's output is also written to as it comes.
    """

    dry_run: bool = False
    target: str = "local"
    thread: str = "inline"
    async_: bool = False
    model: str | None = None
    limits: Mapping[str, float] | Limits | None = None
    timeout_s: float | None = None
    trace: bool = False
    output_log: str | None = None
    muted_hooks: frozenset[str] = frozenset()
    idempotency_key: str | None = None
