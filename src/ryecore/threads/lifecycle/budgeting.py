"""Open a thread's account: what the ledger grants is what the thread has.

Source: seed 003, "Step 11: Reserve budget"; decisions 39, 40 and 45.
"""

from decimal import Decimal

from attrs import evolve

from ryecore.policy.budget import Amount
from ryecore.policy.limits import Limits
from ryecore.state.store import ThreadStore
from ryecore.threads.planner.plan import LayeredLimits
from ryecore.threads.wish import Continuation

__all__ = ["open_account"]


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
        granted = store.ledger.hand_over(continues.previous_id, thread_id)
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
