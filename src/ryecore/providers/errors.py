"""The errors of failed requests that all vendors share: by HTTP status, retry-after, keys."""

import math
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Final

import httpx2

from ryecore.bounded_http import out_of_bounds
from ryecore.errors import RyeError
from ryecore.errors.agents import facts_of_kind
from ryecore.frozen import frozen
from ryecore.llm import LlmError, LlmErrorKind, MediaPart, redact
from ryecore.llm.redaction import clean_error

__all__ = [
    "BrokenAnswer",
    "Failure",
    "check_key",
    "kind_of_status",
    "llm_error",
    "no_media_store",
    "retry_after_s",
]

_NOT_FOUND: Final = "Look whether the server has this model, and whether base_url is its address."
_REDIRECTED: Final = "Redirects are not followed: give base_url the address that it leads to."


def check_key(key: str, provider: str, model: str = "") -> None:
    """Refuse a key that can't stand in an HTTP header, before an error can quote it."""
    if not key.isascii() or not key.isprintable() or key != key.strip():
        raise LlmError(
            "The key holds characters that no key can have.",
            next_step="Look whether it was read with a line's end, or in the wrong encoding.",
            kind="auth",
            provider=provider,
            model=model,
        )


class BrokenAnswer(Exception):
    """An answer that is incomplete, or doesn't have the form that the API promises."""


@frozen
class Failure:
    """The facts of a failed request, as a vendor's exception states them."""

    kind: LlmErrorKind
    text: str
    status: int | None = None
    retry_after_s: float | None = None


def llm_error(
    error: Exception,
    provider: str,
    model: str,
    key: str,
    read: Callable[[Exception], Failure | None],
) -> LlmError:
    """Return the error for an exception of a request, without the key in any text.

    Raise it outside of the handler: the exception knows the request and the key. `read` reads the
    exceptions of the vendor's SDK, and returns None for others.
    """
    if isinstance(error, LlmError):
        made = clean_error(error, key, provider=provider, model=model)
        made.next_step = made.next_step or _next_step(made.kind, made.status)
        return made
    if bound := out_of_bounds(error):
        return LlmError(
            f"{provider} {bound.problem}.",
            next_step="Look whether base_url is a model's server. Where answers are meant to be as "
            "large, raise the provider's max_answer_bytes.",
            kind="unavailable",
            provider=provider,
            model=model,
        )
    failure = read(error) or _failure(error)
    text, status = redact(failure.text, key).strip(), failure.status
    if text and text[-1] not in ".!?":
        text += "."
    if status is None:
        message = f"{provider} gave no answer: {text}"
    else:
        message = f"{provider} answered with status {status}{f': {text}' if text else '.'}"
    return LlmError(
        message,
        next_step=_next_step(failure.kind, status),
        kind=failure.kind,
        provider=provider,
        model=model,
        status=status,
        retry_after_s=failure.retry_after_s,
    )


def _failure(error: Exception) -> Failure:
    """Return the facts of an exception that no vendor's SDK defines."""
    if isinstance(error, BrokenAnswer):
        return Failure("unavailable", str(error))
    if isinstance(error, httpx2.HTTPError):
        return Failure("unavailable", f"the connection broke: {error}")
    if isinstance(error, RyeError):
        return Failure("bad_request", str(error))
    if isinstance(error, UnicodeEncodeError):
        return Failure("bad_request", f"the request holds half a character: {error.reason}.")
    if isinstance(error, ValueError | RecursionError):
        return Failure("unavailable", f"the answer can't be read: {error}")
    return Failure("unknown", f"{type(error).__name__}: {error}")


def no_media_store(part: MediaPart, provider: str, model: str) -> LlmError:
    """Return the error for a medium in a call that has no store to read it from."""
    return LlmError(
        f"A medium of type {part.media_type} can't be sent to {model}: the call has no media store "
        "to read it from.",
        next_step="Pass a MediaStore.",
        kind="bad_request",
        provider=provider,
        model=model,
    )


def _next_step(kind: LlmErrorKind, status: int | None) -> str:
    if kind == "bad_request" and status in (404, 405):
        return _NOT_FOUND
    if kind == "bad_request" and status is not None and 300 <= status < 400:
        return _REDIRECTED
    return facts_of_kind(kind).next_step


def kind_of_status(status: int) -> LlmErrorKind:
    """Return the kind of a failure by only its HTTP status.

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

    It is never negative, since a date in the past means 0; None if no header can be understood.
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
