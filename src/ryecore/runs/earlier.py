"""Wait for a thread or run that an earlier start with the same idempotency key began."""

from collections.abc import Awaitable
from typing import Protocol, TypeVar

from ryecore.errors import CallCancelled
from ryecore.policy import CallContext
from ryecore.policy.cancelling import bounded_by

__all__ = ["Earlier", "wait_for_earlier"]

T_co = TypeVar("T_co", covariant=True)


class Earlier(Protocol[T_co]):
    """The handle of what was started before."""

    def result(self) -> Awaitable[T_co]:
        """Wait for its end."""
        ...


async def wait_for_earlier(earlier: Earlier[T_co], ctx: CallContext) -> T_co:
    """Wait for the result of what was started before, as long as the caller does.

    Args:
        earlier: Its handle.
        ctx: The caller's context, which may be cancelled or have a deadline.

    Raises:
        CallCancelled: The caller waits no longer; what it waited for goes on.
    """
    with bounded_by(ctx.cancellation, deadline=ctx.deadline):
        return await earlier.result()
    raise CallCancelled(
        "The wait for a run that was started before was cancelled, or out of time.",
        next_step="Call it again with the same idempotency key: the run goes on meanwhile.",
    )
