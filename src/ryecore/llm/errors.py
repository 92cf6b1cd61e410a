"""How a provider fails, and texts cleaned of keys."""

import re
from typing import Final

from ryecore.errors import LlmError
from ryecore.errors.agents import RETRYABLE_KINDS, LlmErrorKind

__all__ = ["RETRYABLE_KINDS", "LlmError", "LlmErrorKind", "clean_error", "redact"]

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
        # An error may quote it as Python or HTTP write it: escaped, and without blanks around it.
        for form in (key, key.strip(), key.encode("unicode_escape").decode("ascii")):
            if form:
                text = text.replace(form, "***")
    text = _LOOKS_LIKE_KEY.sub("***", text)
    return text if len(text) <= max_chars else f"{text[:max_chars]}…"


def clean_error(problem: Exception, key: str, *, provider: str, model: str) -> LlmError:
    """A new error for what a provider raised: neither its text nor a traceback can hold the key.

    Args:
        problem: What was raised; what is no `LlmError` is of the kind `unknown`.
        key: The key that was in use.
        provider: The provider's id.
        model: The model that was asked.
    """
    if isinstance(problem, LlmError):
        return LlmError(
            redact(problem.message, key),
            next_step=redact(problem.next_step, key),
            kind=problem.kind,
            provider=provider,
            model=model,
            retry_after_s=problem.retry_after_s,
            status=problem.status,
            code=redact(problem.code, key),
        )
    try:
        text = str(problem)
    except Exception:
        text = "its text can't be read"
    return LlmError(
        redact(f"{provider} failed: {type(problem).__name__}: {text}", key),
        kind="unknown",
        provider=provider,
        model=model,
    )
