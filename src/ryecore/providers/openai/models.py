"""The capabilities of OpenAI's models, by name. An unknown model has all."""

import re
from typing import Final

from ryecore.llm import Capabilities, ReasoningEffort

__all__ = ["COMPATIBLE", "effort_word", "openai_capabilities", "takes_temperature"]

_READABLE: Final = frozenset(
    {"image/png", "image/jpeg", "image/webp", "image/gif", "application/pdf"}
)

COMPATIBLE: Final = Capabilities(
    reasoning=True, input_media=frozenset({"image/*", "audio/*", "application/pdf"})
)
"""The default capabilities of a compatible server's models: all of them."""

# By the prefix of a name; the first that fits counts.
_KNOWN: Final = (
    (
        "gpt-3.5",
        Capabilities(response_format=False, context_tokens=16_385, max_output_tokens=4_096),
    ),
    (
        "gpt-4.1",
        Capabilities(input_media=_READABLE, context_tokens=1_047_576, max_output_tokens=32_768),
    ),
    (
        "gpt-4o",
        Capabilities(input_media=_READABLE, context_tokens=128_000, max_output_tokens=16_384),
    ),
    ("gpt-4-turbo", Capabilities(response_format=False, input_media=_READABLE)),
    ("gpt-4", Capabilities(response_format=False)),
    ("chatgpt-4o", Capabilities(tools=False, parallel_tools=False, input_media=_READABLE)),
    ("o3-mini", Capabilities(reasoning=True, context_tokens=200_000, max_output_tokens=100_000)),
)
_ANY: Final = Capabilities(reasoning=True, input_media=_READABLE)
_CHAT: Final = Capabilities(input_media=_READABLE)
_ALWAYS_THINKS: Final = re.compile(r"o\d|gpt-5(?!\.|-chat)")


def openai_capabilities(model: str) -> Capabilities:
    """Return the capabilities of one of OpenAI's models."""
    name = model.removeprefix("ft:")
    for beginning, capabilities in _KNOWN:
        if name.startswith(beginning):
            return capabilities
    return _CHAT if "-chat" in name else _ANY


def effort_word(model: str, effort: ReasoningEffort) -> str:
    """Return a model's word for an effort; models that always think don't take `none`."""
    if effort != "none" or not _ALWAYS_THINKS.match(model):
        return effort
    return "low" if model.startswith("o") else "minimal"


def takes_temperature(model: str) -> bool:
    """Return whether a model takes a temperature; models that always think refuse one."""
    return not _ALWAYS_THINKS.match(model)
