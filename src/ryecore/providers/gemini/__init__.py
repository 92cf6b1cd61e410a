"""Google's Gemini models, over the vendor's own SDK: the extra `gemini`."""

from ryecore.providers import missing_sdk

try:
    import google.genai as _sdk
except ModuleNotFoundError as problem:
    raise missing_sdk(problem, "google.genai", "gemini") from None

from ryecore.providers.gemini.provider import GeminiProvider

__all__ = ["GeminiProvider"]

del _sdk
