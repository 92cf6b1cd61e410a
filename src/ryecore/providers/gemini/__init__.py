"""Google's Gemini models, over the vendor's own SDK: the extra `gemini`."""

from ryecore.errors import MissingExtra

try:
    import google.genai as _sdk
except ImportError as missing:
    raise MissingExtra(
        "Google's SDK for Gemini is not installed.",
        next_step="Run `pip install 'ryecore[gemini]'`.",
        extra="gemini",
    ) from missing

from ryecore.providers.gemini.provider import GeminiProvider

__all__ = ["GeminiProvider"]

del _sdk
