"""The adapters, each imported by the first test that makes one: an SDK takes a second to import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ryecore.providers.anthropic import AnthropicProvider
    from ryecore.providers.gemini import GeminiProvider
    from ryecore.providers.openai import OpenAIProvider


def make_anthropic(**options: Any) -> AnthropicProvider:
    """Return the adapter of Anthropic's models."""
    from ryecore.providers.anthropic import AnthropicProvider

    return AnthropicProvider(**options)


def make_gemini(**options: Any) -> GeminiProvider:
    """Return the adapter of Google's models."""
    from ryecore.providers.gemini import GeminiProvider

    return GeminiProvider(**options)


def make_openai(**options: Any) -> OpenAIProvider:
    """Return the adapter of OpenAI's models and of compatible servers."""
    from ryecore.providers.openai import OpenAIProvider

    return OpenAIProvider(**options)
