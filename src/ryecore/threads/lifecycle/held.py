"""What a thread may do at most."""

from ryecore.policy.capabilities import attenuate
from ryecore.runs.above import Above
from ryecore.threads.wish import Continuation

__all__ = ["held_within"]


def held_within(
    held: frozenset[str] | None, above: Above | None, continues: Continuation | None
) -> frozenset[str] | None:
    """What a thread may do at most: no more than its caller, its parent, and its own past.

    Args:
        held: What its caller may do; None for the host, which may do everything.
        above: Its parent.
        continues: What it goes on from.

    Source: decisions 41 and 47.
    """
    for bound in (above, continues):
        if bound is not None:
            within = bound.capabilities
            held = within if held is None else frozenset(attenuate(within, held))
    return held
