"""The rest of a thread's limits, for its continuation.

Turns, spawns, tokens and money count along a chain of handoffs and resumes. A thread of the chain
that still runs counts with its whole limits, so that two threads that continue the same one at
once share the rest.

Source: decisions 40, 45 and 80.
"""

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from attrs import evolve

from ryecore.frozen import frozen
from ryecore.policy.limits import Limits, read_limits
from ryecore.state.accounts import keep_to_used
from ryecore.state.model import ContinuationLimits
from ryecore.state.statements import Statements

__all__ = ["ChainUsage", "limit_along_chain", "remaining_limits", "sum_of_chain"]

_CHAIN: Final = """WITH RECURSIVE chain (thread_id) AS (
        VALUES (?)
        UNION SELECT next.thread_id FROM threads AS next
        JOIN chain ON next.continuation_of = chain.thread_id
        WHERE next.chain_root_id IS NOT NULL AND next.thread_id <> ?
    ) SELECT threads.thread_id, completed_at, limits, turns, spawn_count,
        coalesce(spend_own + spend_children + spend_held + spend_reserved, spend_microcents),
        coalesce(tokens_own + tokens_children + tokens_held + tokens_reserved,
            input_tokens + output_tokens)
    FROM chain JOIN threads ON threads.thread_id = chain.thread_id
    LEFT JOIN accounts ON accounts.thread_id = chain.thread_id"""


@frozen
class ChainUsage:
    """The usage of the threads of a chain; money, in units of 1e-8 USD, and tokens with holds."""

    turns: int = 0
    spawns: int = 0
    spend_microcents: int = 0
    tokens: int = 0

    def __add__(self, other: "ChainUsage") -> "ChainUsage":
        return ChainUsage(
            self.turns + other.turns,
            self.spawns + other.spawns,
            self.spend_microcents + other.spend_microcents,
            self.tokens + other.tokens,
        )


def limit_along_chain(run: Statements, thread_id: str, bounds: ContinuationLimits) -> Limits:
    """Bound a thread by the rest of its chain's limits, and store its limits in its row.

    In one transaction, so that of two continuations one sees the other's limits.
    """
    spent = sum_of_chain(run, bounds.previous_id, thread_id)
    left = remaining_limits(bounds.limits, spent, bounds.ran_s)
    keep_to_used(run, bounds.previous_id)
    limits = bounds.wanted.within(left).under(bounds.renewed)
    written = json.dumps(limits.to_dict())
    run.execute("UPDATE threads SET limits = ? WHERE thread_id = ?", (written, thread_id))
    return limits


def sum_of_chain(run: Statements, previous_id: str, thread_id: str) -> ChainUsage:
    """Sum the usage of a thread and its other continuations; running ones count by their limits."""
    total = ChainUsage()
    for one_id, completed_at, limits, *used in run.execute(_CHAIN, (previous_id, thread_id)):
        is_over = one_id == previous_id or completed_at is not None
        total += ChainUsage(*used) if is_over else _granted(limits, ChainUsage(*used))
    return total


def _granted(limits: str | None, used: ChainUsage) -> ChainUsage:
    """Return the limits of a running thread, or its usage if they are open or unknown."""
    document = json.loads(limits) if limits else {}
    most = read_limits(document) if isinstance(document, Mapping) else Limits()

    def larger(granted: int | None, so_far: int) -> int:
        return so_far if granted is None else max(granted, so_far)

    return ChainUsage(
        larger(most.turns, used.turns),
        larger(most.spawns, used.spawns),
        larger(most.spend_microcents, used.spend_microcents),
        larger(most.tokens, used.tokens),
    )


def remaining_limits(limits: Limits, spent: ChainUsage, ran_s: Decimal) -> Limits:
    """Return the rest of limits. Open ones stay open, and the depth stays as it is."""
    spend = limits.spend_microcents
    return evolve(
        limits,
        turns=_less(limits.turns, spent.turns),
        spawns=_less(limits.spawns, spent.spawns),
        tokens=_less(limits.tokens, spent.tokens),
        spend_usd=None
        if spend is None
        # Not a division, which would round to the precision of the caller's context.
        else Decimal(f"{max(spend - spent.spend_microcents, 0)}e-8"),
        duration_s=None
        if limits.duration_s is None
        else max(limits.duration_s - ran_s, Decimal(0)),
    )


def _less(limit: int | None, used: int) -> int | None:
    return None if limit is None else max(limit - used, 0)
