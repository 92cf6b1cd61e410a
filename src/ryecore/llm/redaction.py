"""The removal of keys from errors and texts of providers."""

import re
from base64 import b64encode
from typing import Final
from urllib.parse import quote, quote_plus

from ryecore.errors import LlmError

__all__ = ["clean_error", "redact"]

_MAX_CHARS: Final = 500
# A shorter key occurs in other words by chance: it is removed only as a word of its own, and a
# key of three characters or fewer, such as a local server's "x", not at all.
_MIN_ANYWHERE: Final = 8
_MIN_KEY: Final = 4
_LOOKS_LIKE_KEY: Final = re.compile(
    r"(?i)\b(?:sk|pk|rk|api|key|gsk|xai)[-_][a-z0-9_\-*]{12,}|\bAIza[0-9A-Za-z_\-]{20,}"
    r"|(?<=bearer )[^\s'\"]{8,}"
)


def redact(text: str, *keys: str, max_chars: int = _MAX_CHARS) -> str:
    """Remove keys from a provider's text: the passed ones, and what looks like one; shorten it.

    Args:
        text: The text.
        keys: The keys that were in use. One of fewer than 8 characters is removed only as a word of
            its own, one of fewer than 4 not at all: neither is a secret.
        max_chars: The bound of its length.
    """
    for key in keys:
        for form in _written(key) if len(key.strip()) >= _MIN_KEY else ():
            if len(form) >= _MIN_ANYWHERE:
                text = text.replace(form, "***")
            else:
                text = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", "***", text)
    text = _LOOKS_LIKE_KEY.sub("***", text)
    return text if len(text) <= max_chars else f"{text[:max_chars]}…"


def _written(key: str) -> list[str]:
    """Return the forms in which an error may quote a key, the longest first.

    Python and HTTP write it escaped, and without the blanks around it; a URL percent-encoded; a
    header in base64.
    """
    bare = key.strip()
    encoded = bare.encode(errors="replace")
    forms = {key, bare, key.encode("unicode_escape").decode("ascii")}
    if bare:
        forms |= {quote(encoded), quote(encoded, safe=""), quote_plus(encoded)}
    if len(encoded) >= _MIN_ANYWHERE:
        forms.add(b64encode(encoded).decode("ascii").rstrip("="))
    return sorted(forms - {""}, key=len, reverse=True)


def clean_error(problem: Exception, key: str, *, provider: str, model: str) -> LlmError:
    """Return a new error for a provider's exception: no text or traceback can hold the key.

    An exception that isn't an `LlmError` gets the kind `unknown`.
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
