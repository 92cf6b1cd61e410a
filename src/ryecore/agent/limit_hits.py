"""The limits that refused or overspent requests have met. Pure.

Source: docs/design/threads.md#turn-loop; decision 40.
"""

from collections.abc import Callable
from typing import Final

from ryecore.convert.money import to_usd
from ryecore.errors import InsufficientBudget
from ryecore.llm.fallback_rules import Refuse
from ryecore.policy.budget import Dimension
from ryecore.policy.limits import LimitHit, Limits
from ryecore.state.model import Cost

__all__ = ["advise_session", "advise_thread", "overspent_hit", "refuse_unpriced", "refused_hit"]

_LOOK: Final = "See what it cost, and start another one: rye threads show."

_HOW_TO_PRICE: Final = {
    False: "with AgentRunnerDeps.price_of or the extra `prices`",
    True: "with Price(per_medium=...) by AgentRunnerDeps.price_of",
}


def refuse_unpriced(provider: str, model: str, media: int) -> Refuse:
    """Return the refusal of a model without a price, where spend is limited."""
    return Refuse(
        "unpriced_model",
        f"{provider}/{model} has no price{' for media' if media else ''}, so its spend "
        f"limit can't be enforced. Give it one {_HOW_TO_PRICE[media > 0]}, or name it in "
        "AgentRunnerDeps.unpriced_models.",
    )


def advise_thread(enough: Limits) -> str:
    """Return the next step after a refusal, for a thread or a graph's run."""
    if enough.spend_usd is not None:
        limit = f"spend={enough.spend_usd:f}"
    else:
        limit = f"tokens={enough.tokens}"
    return f"Start or resume it with at least --limit {limit}, or ask for less."


def advise_session(enough: Limits) -> str:
    """Return the next step after a refusal, for a session."""
    if enough.spend_usd is not None:
        limit = f"spend_usd='{enough.spend_usd:f}'"
    else:
        limit = f"tokens={enough.tokens}"
    return f"Open the session with at least limits=Limits({limit}), or ask for less."


def refused_hit(
    error: InsufficientBudget, limits: Limits, cost: Cost, advise: Callable[[Limits], str] | None
) -> LimitHit:
    """Return the limit that a refused hold has met; `advise` is for a limit of the run's own."""
    said, advice = error.message, error.next_step
    left, wanted = error.remaining, error.requested
    if error.reason != "exhausted":
        advise = None
    if error.dimension == "tokens":
        used, most = cost.tokens, limits.tokens or 0
        if advise is not None:
            advice = advise(Limits(tokens=most + wanted.tokens - left.tokens))
        return LimitHit("tokens_exceeded", used, most, said, advice)
    most = limits.spend_microcents or 0
    if advise is not None:
        enough = most + wanted.spend_microcents - left.spend_microcents
        advice = advise(Limits(spend_usd=to_usd(enough)))
    return LimitHit.of_spend(cost.spend_microcents, most, said, advice)


def overspent_hit(overspent: Dimension, limits: Limits, cost: Cost) -> LimitHit:
    """Return the limit that a settlement above its hold has met."""
    said = "A try cost more than was held for it, so this thread and all below it are stopped."
    if overspent == "tokens":
        used = cost.tokens
        return LimitHit("tokens_exceeded", used, limits.tokens or 0, said, _LOOK)
    return LimitHit.of_spend(cost.spend_microcents, limits.spend_microcents or 0, said, _LOOK)
