"""How a provider fails, and texts cleaned of keys."""

import re
from typing import Final

from ryecore.errors import LlmError
from ryecore.errors.agents import RETRYABLE_KINDS, LlmErrorKind

__all__ = ["RETRYABLE_KINDS", "LlmError", "LlmErrorKind", "redact"]

_MAX_CHARS: Final = 500
_LOOKS_LIKE_KEY: Final = re.compile(
    r"(?i)\b(?:sk|pk|rk|api|key|gsk|xai)[-_][a-z0-9_\-*]{12,}|\bAIza[0-9A-Za-z_\-]{20,}"
    r"|(?<=bearer )[^\s'\"]{8,}"
)


def redact(text: str, *keys: str, max_chars: int = _MAX_CHARS) -> str:
    """A provider's text without keys: the given ones, and what looks like one; shortened.

    Args:
        text: The text.
        keys: The keys that were in use; empty ones are passed over.
        max_chars: How long it may be.
    """
    for key in keys:
        if key:
            text = text.replace(key, "***")
    text = _LOOKS_LIKE_KEY.sub("***", text)
    return text if len(text) <= max_chars else f"{text[:max_chars]}…"
