"""What Anthropic's models can do: data alone."""

from typing import Final, Literal

from attrs import frozen

from ryecore.llm import Capabilities

__all__ = ["ModelFacts", "capabilities_of", "facts_of"]

_MEDIA: Final = frozenset(
    {"image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf", "text/plain"}
)


@frozen
class ModelFacts:
    """How a model wants to be asked.

    Attributes:
        context_tokens: How much it reads at once; None where that isn't known.
        max_output_tokens: The bound that a request without one gets.
        known: Whether the bound is the model's own, and not a careful guess.
        thinking: Whether it decides itself how long to think, or gets a budget.
        without: What turns thinking off; empty where nothing does.
        forced_tools: Whether it can be made to call a tool.
    """

    context_tokens: int | None = 1_000_000
    max_output_tokens: int = 128_000
    known: bool = True
    thinking: Literal["adaptive", "budget"] = "adaptive"
    without: Literal["disabled", "between_tools", ""] = "disabled"
    forced_tools: bool = True


_BUDGET: Final = ModelFacts(200_000, 64_000, thinking="budget")
_ALWAYS: Final = ModelFacts(without="", forced_tools=False)
_UNKNOWN: Final = ModelFacts(None, 32_000, known=False)

# The longest prefix wins, so that a date after the name changes nothing.
_BY_PREFIX: Final[dict[str, ModelFacts]] = {
    "claude-haiku-4-5": _BUDGET,
    "claude-sonnet-4-5": _BUDGET,
    "claude-opus-4-5": _BUDGET,
    "claude-sonnet-4-6": ModelFacts(max_output_tokens=64_000),
    "claude-opus-4-6": ModelFacts(),
    "claude-opus-4-7": ModelFacts(),
    "claude-opus-4-8": ModelFacts(),
    "claude-opus-5": ModelFacts(),
    "claude-sonnet-5": ModelFacts(),
    "claude-fable-5": ModelFacts(without=""),
    "claude-mythos": ModelFacts(without=""),
    "claude-haiku-5-5": ModelFacts(),
    "claude-sonnet-5-5": ModelFacts(without="between_tools", forced_tools=False),
    "claude-opus-5-5": _ALWAYS,
    "claude-fable-5-1": _ALWAYS,
    "claude-fable-5-2": _ALWAYS,
    "claude-mythos-5-1": _ALWAYS,
    "claude-mythos-5-2": _ALWAYS,
}


def facts_of(model: str) -> ModelFacts:
    """How a model wants to be asked. An unknown one is taken for a recent one."""
    known = [prefix for prefix in _BY_PREFIX if model.startswith(prefix)]
    return _BY_PREFIX[max(known, key=len)] if known else _UNKNOWN


def capabilities_of(model: str) -> Capabilities:
    """What a model can do. An unknown one can do everything."""
    facts = facts_of(model)
    return Capabilities(
        reasoning=True,
        input_media=_MEDIA,
        context_tokens=facts.context_tokens,
        max_output_tokens=facts.max_output_tokens if facts.known else None,
    )
