"""The capabilities and limits of Gemini models, as data."""

from typing import Final, Literal

from attrs import frozen

from ryecore.llm import Capabilities

__all__ = ["ModelFacts", "capabilities_of", "facts_of"]

_MEDIA: Final = frozenset({"image/*", "audio/*", "video/*", "text/*", "application/pdf"})


@frozen
class ModelFacts:
    """The limits and request options of a model.

    Attributes:
        thinking: Whether it takes a level or a budget of tokens, or doesn't think.
        least: The least reasoning it can be set to: a level, or a budget.
        medium: The level for a medium effort.
        modern: Whether it needs the signatures of its calls sent back, and takes a schema beside
            tools and media within the results of tools.
    """

    context_tokens: int | None = 1_048_576
    max_output_tokens: int | None = 65_536
    thinking: Literal["level", "budget", ""] = "level"
    least: str | int = "LOW"
    medium: Literal["MEDIUM", "HIGH"] = "MEDIUM"
    modern: bool = True


_OLD: Final = ModelFacts(max_output_tokens=8_192, thinking="", modern=False)
_BUDGET: Final = ModelFacts(thinking="budget", least=0, modern=False)
_MINIMAL: Final = ModelFacts(least="MINIMAL")
_UNKNOWN: Final = ModelFacts(None, None)

# The longest prefix wins.
_BY_PREFIX: Final[dict[str, ModelFacts]] = {
    "gemini-1.5": _OLD,
    "gemini-2.0": _OLD,
    "gemini-2.5": _BUDGET,
    "gemini-2.5-pro": ModelFacts(thinking="budget", least=128, modern=False),
    "gemini-2.5-flash-image": ModelFacts(32_768, 32_768, thinking="", modern=False),
    "gemini-3": ModelFacts(),
    "gemini-3-pro": ModelFacts(medium="HIGH"),
    "gemini-3-flash": _MINIMAL,
    "gemini-3.1-flash-lite": _MINIMAL,
    "gemini-3.5": _MINIMAL,
    "gemini-3.6": _MINIMAL,
}


def facts_of(model: str) -> ModelFacts:
    """Return the facts of a model; an unknown one is treated as a recent one."""
    name = model.removeprefix("models/")
    known = [prefix for prefix in _BY_PREFIX if name.startswith(prefix)]
    return _BY_PREFIX[max(known, key=len)] if known else _UNKNOWN


def capabilities_of(model: str) -> Capabilities:
    """Return the capabilities of a model; an unknown one has all."""
    facts = facts_of(model)
    return Capabilities(
        reasoning=bool(facts.thinking),
        input_media=_MEDIA,
        context_tokens=facts.context_tokens,
        max_output_tokens=facts.max_output_tokens,
    )
