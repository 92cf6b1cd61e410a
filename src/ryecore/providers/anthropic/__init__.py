"""Anthropic's models, over the vendor's own SDK: the extra `anthropic`."""

from ryecore.errors import MissingExtra

try:
    import anthropic as _sdk
except ImportError as missing:
    raise MissingExtra(
        "Anthropic's SDK is not installed.",
        next_step="Run `pip install 'ryecore[anthropic]'`.",
        extra="anthropic",
    ) from missing

from ryecore.providers.anthropic.provider import AnthropicProvider

__all__ = ["AnthropicProvider"]

del _sdk
