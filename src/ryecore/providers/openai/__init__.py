"""OpenAI's models, and compatible servers, over the vendor's own SDK: the extra `openai`."""

from ryecore.providers import missing_sdk

try:
    import openai as _sdk
except ModuleNotFoundError as problem:
    raise missing_sdk(problem, "openai", "openai") from None

from ryecore.providers.openai.provider import OpenAIApi, OpenAIProvider

__all__ = ["OpenAIApi", "OpenAIProvider"]

del _sdk
