"""Anthropic's models, over the vendor's own SDK: the extra `anthropic`."""

from ryecore.providers import missing_sdk

try:
    import anthropic as _sdk
except ModuleNotFoundError as problem:
    raise missing_sdk(problem, "anthropic", "anthropic") from None

from ryecore.providers.anthropic.provider import AnthropicProvider

__all__ = ["AnthropicProvider"]

del _sdk
