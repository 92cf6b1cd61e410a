"""OpenAI's models, and servers with an API compatible with its chat completions.

It needs the extra `openai`.
"""

from ryecore.errors import MissingExtra

try:
    import openai as _sdk
except ModuleNotFoundError as problem:
    if problem.name != "openai":
        raise
    raise MissingExtra(
        "The adapter for OpenAI needs the package openai, which is not installed.",
        next_step="pip install 'ryecore[openai]'",
        extra="openai",
    ) from None

from ryecore.providers.openai.provider import OpenAIApi, OpenAIProvider

__all__ = ["OpenAIApi", "OpenAIProvider"]

del _sdk
