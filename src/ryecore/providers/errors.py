"""The meaning of HTTP failures, which all vendors share."""

import math
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

from ryecore.bounded_http import out_of_bounds
from ryecore.errors.agents import facts_of_kind
from ryecore.llm import LlmError, LlmErrorKind

__all__ = [
    "bound_failure",
    "check_key",
    "kind_of_status",
    "next_step_of",
    "retry_after_s",
    "status_text",
]

_NOT_FOUND: Final = "Look whether the server has this model, and whether base_url is its address."
_REDIRECTED: Final = "Redirects are not followed: give base_url the address that it leads to."


def check_key(key: str, provider: str, model: str = "") -> None:
    """Refuse a key that can't stand in an HTTP header, before an error can quote it.

    Raises:
        LlmError: `auth`: the key has blanks, control characters or characters beyond ASCII.
    """
    if not key.isascii() or not key.isprintable() or key != key.strip():
        raise LlmError(
            "The key holds characters that no key can have.",
            next_step="Look whether it was read with a line's end, or in the wrong encoding.",
            kind="auth",
            provider=provider,
            model=model,
        )


def bound_failure(error: BaseException, provider: str, model: str) -> LlmError | None:
    """Return the error for an answer that is compressed or larger than its bounds.

    Returns:
        An error of the kind `unavailable`; None if the exception has another cause.
    """
    bound = out_of_bounds(error)
    if bound is None:
        return None
    return LlmError(
        f"{provider} {bound.problem}.",
        next_step="Look whether base_url is a model's server. Where answers are meant to be as "
        "large, raise the provider's max_answer_bytes.",
        kind="unavailable",
        provider=provider,
        model=model,
    )


def next_step_of(kind: LlmErrorKind, status: int | None = None) -> str:
    """Return the next step for a failure; empty if none is known."""
    if kind == "bad_request" and status in (404, 405):
        return _NOT_FOUND
    if kind == "bad_request" and status is not None and 300 <= status < 400:
        return _REDIRECTED
    return facts_of_kind(kind).next_step


def status_text(provider: str, status: int | None, text: str) -> str:
    """Return a failure as a sentence, with the status and the server's own text."""
    if status is None:
        return f"{provider} gave no answer: {text}"
    return f"{provider} answered with status {status}{f': {text}' if text else '.'}"


def kind_of_status(status: int) -> LlmErrorKind:
    """Return the kind of a failure by its HTTP status alone.

    A status that a retry can't change is `bad_request`. So is a redirect: a key must not be sent to
    an address that the host didn't name.
    """
    if status in (401, 402, 403, 407):
        return "auth"
    if status == 429:
        return "rate_limit"
    if status in (408, 409, 425) or status >= 500:
        return "unavailable"
    return "bad_request" if 300 <= status < 500 else "unknown"


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the wait that a server asks for, in seconds: `retry-after-ms` or `Retry-After`.

    Args:
        headers: The response's headers, looked up by names in lower case.

    Returns:
        The wait, never negative; None if no header can be understood. A date in the past means 0.
    """
    milliseconds = _seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after", "")
    seconds = _seconds(text)
    if seconds is not None:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _seconds(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
