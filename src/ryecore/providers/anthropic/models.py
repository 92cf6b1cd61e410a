"""The capabilities and limits of Anthropic's models, as data."""

from typing import Final, Literal

from attrs import frozen

from ryecore.llm import Capabilities

__all__ = ["ModelFacts", "capabilities_of", "facts_of"]

_MEDIA: Final = frozenset(
    {"image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf", "text/plain"}
)


@frozen
class ModelFacts:
    """The limits and request options of a model.

    Attributes:
        context_tokens: The size of its context; None if unknown.
        known: Whether that bound is the model's own, and not a cautious guess.
        thinking: Whether the model decides how long to think, or takes a budget.
        without: The setting that turns thinking off; empty if it can't be turned off.
        forced_tools: Whether it can be forced to call a tool.
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

# The longest prefix wins, so a date after the name makes no difference.
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
    """Return the facts of a model; an unknown one is treated as a recent one."""
    known = [prefix for prefix in _BY_PREFIX if model.startswith(prefix)]
    return _BY_PREFIX[max(known, key=len)] if known else _UNKNOWN


def capabilities_of(model: str) -> Capabilities:
    """Return the capabilities of a model; an unknown one has all."""
    facts = facts_of(model)
    return Capabilities(
        reasoning=True,
        input_media=_MEDIA,
        context_tokens=facts.context_tokens,
        max_output_tokens=facts.max_output_tokens if facts.known else None,
    )
