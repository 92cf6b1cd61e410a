"""The limits of a thread: what its chain has left, and what the ledger grants.

Source: docs/design/threads.md#limits; docs/design/threads.md#budget; decisions 39, 40, 45 and 80.
"""

from decimal import Decimal

from attrs import evolve

from ryecore.policy import CallContext
from ryecore.policy.budget import Amount
from ryecore.policy.limits import Limits
from ryecore.runs.bounds import carried_limits, is_host
from ryecore.state.chain_limits import ContinuationLimits
from ryecore.state.store import ThreadStore
from ryecore.threads.planner.plan import LayeredLimits
from ryecore.threads.wish import Continuation, ThreadWish

__all__ = ["limits_along_chain", "open_account"]


def limits_along_chain(
    store: ThreadStore, thread_id: str, limits: Limits, wish: ThreadWish, ctx: CallContext
) -> Limits:
    """Bound a thread that continues another one by what that one has left.

    Args:
        store: The project's threads.
        thread_id: The thread, which has a row.
        limits: The limits that it would have as a fresh thread.
        wish: What it is wanted for. Limits that a person or the host resumes with are new: they
            count from zero.
        ctx: On whose behalf.

    Returns:
        Its limits; those of a fresh thread or a fork as they are.

    Raises:
        LimitReached: No turn or no time is left.

    Source: decision 80.
    """
    continues = wish.continues
    if continues is None or continues.kind == "fork":
        return limits
    is_renewed = continues.kind == "resume" and is_host(ctx)
    carried = ContinuationLimits(
        continues.previous_id,
        continues.limits,
        continues.ran_s,
        limits,
        wish.overrides if is_renewed else Limits(),
    )
    return carried_limits(store, thread_id, carried, needs_turns=True)


async def open_account(
    store: ThreadStore,
    thread_id: str,
    parent_id: str | None,
    limits: Limits,
    layered: LayeredLimits,
    continues: Continuation | None,
) -> Limits:
    """Open a thread's account: a root's, a child's, or the one that is handed over to it.

    Args:
        store: The project's threads.
        thread_id: The thread, which has a row.
        parent_id: The thread that starts it; None for a root.
        limits: What it may use at most.
        layered: Which of that was declared for it, and so is reserved.
        continues: What it goes on from.

    Returns:
        The limits, with the money and the tokens that it was granted.

    Raises:
        InsufficientBudget: Nothing is left for it.
        StateError: Nothing can be written, or it was stopped before it began.
    """
    await store.ledger.until_free()
    wanted = Amount(limits.spend_microcents or 0, limits.tokens or 0)
    if continues is not None and continues.kind == "handoff":
        granted = store.ledger.transfer(continues.previous_id, thread_id)
    elif parent_id is None:
        store.ledger.register(thread_id, wanted)
        granted = wanted
    else:
        granted = store.ledger.reserve(
            thread_id,
            parent_id,
            wanted,
            reserves_spend=layered.declares_spend,
            reserves_tokens=layered.declares_tokens,
        )
    return evolve(
        limits,
        # Not a division, which rounds to the digits of the caller's context.
        spend_usd=Decimal(f"{granted.spend_microcents}e-8"),
        tokens=granted.tokens,
    )
