"""The conversion of failures of OpenAI's SDK and servers to LlmError."""

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import openai

from ryecore.errors import StoreError
from ryecore.llm import LlmError, LlmErrorKind, redact
from ryecore.providers.errors import (
    bound_failure,
    kind_of_status,
    next_step_of,
    retry_after_s,
    status_text,
)

__all__ = [
    "BrokenAnswer",
    "Json",
    "error_in_body",
    "error_of",
    "listed",
    "mapped",
    "number",
    "text_of",
]

_CODES: Final[dict[str, LlmErrorKind]] = {
    # Retries can't help a key without credit, but another key may have some.
    "insufficient_quota": "auth",
    "billing_hard_limit_reached": "auth",
    "invalid_api_key": "auth",
    "account_deactivated": "auth",
    "context_length_exceeded": "context_length",
    "string_above_max_length": "context_length",
    "rate_limit_exceeded": "rate_limit",
    "content_filter": "content_filter",
    "content_policy_violation": "content_filter",
    "image_content_policy_violation": "content_filter",
    "moderation_blocked": "content_filter",
    "bio_policy": "content_filter",
    "misalignment_policy_violation": "content_filter",
    "invalid_prompt": "content_filter",
    "server_error": "unavailable",
    "overloaded": "unavailable",
    "overloaded_error": "unavailable",
    "data_residency_mismatch": "bad_request",
    "model_not_found": "bad_request",
    "invalid_request_error": "bad_request",
}
_TOO_LONG: Final = re.compile(
    r"(?i)context.{0,12}(?:length|window|size)|maximum (?:prompt|input) length|prompt is too long"
    r"|too many (?:input )?tokens|exceeds? .{0,40}tokens? (?:limit|maximum)"
)


class BrokenAnswer(Exception):
    """An answer that is incomplete, or doesn't have the form that the API promises."""


def error_of(error: Exception, provider: str, model: str, key: str) -> LlmError:
    """Return the error to raise for an exception. It doesn't refer to it: that knows the key.

    Args:
        key: The key that was in use; it is removed from all texts.
    """
    if bound := bound_failure(error, provider, model):
        return bound
    status: int | None = None
    wait_s: float | None = None
    next_step = ""
    if isinstance(error, LlmError):
        kind, message, status = error.kind, error.message, error.status
        next_step = error.next_step
    elif isinstance(error, openai.APIStatusError):
        status = error.status_code
        kind, said = _kind_and_text(error.body, status)
        message = status_text(provider, status, said)
        wait_s = retry_after_s(error.response.headers)
    elif isinstance(error, openai.APITimeoutError):
        kind, message = "unavailable", f"{provider} didn't answer in time."
    elif isinstance(error, openai.APIConnectionError):
        cause = error.__cause__
        why = f" ({type(cause).__name__}: {cause})" if cause is not None else ""
        kind, message = "unavailable", f"The connection to {provider} failed{why}."
    elif isinstance(error, openai.APIError):  # the SDK found it in a stream
        told = error_in_body(error.body or error.message)
        kind, message = told.kind, told.message
    elif isinstance(error, BrokenAnswer):
        kind, message = "unavailable", str(error)
    elif isinstance(error, UnicodeEncodeError):
        kind, message = "bad_request", f"The request holds half a character: {error.reason}."
    elif isinstance(error, ValueError | RecursionError):
        kind, message = "unavailable", f"{provider} sent what can't be read: {error}"
    elif isinstance(error, StoreError):
        kind, message = "bad_request", f"A medium can't be read or kept: {error.message}"
    else:
        kind, message = "unknown", f"Asking {provider} failed: {type(error).__name__}: {error}"
    return LlmError(
        redact(message, key),
        next_step=next_step or next_step_of(kind, status),
        kind=kind,
        provider=provider,
        model=model,
        retry_after_s=wait_s,
        status=status,
    )


def error_in_body(body: object) -> LlmError:
    """Return the error that was sent in place of an answer: in a stream, or with status 200.

    Args:
        body: The error object, or the object that holds it.
    """
    code = mapped(body).get("code") or mapped(mapped(body).get("error")).get("code")
    numeric = code if isinstance(code, int) and 400 <= code < 600 else None
    kind, said = _kind_and_text(body, numeric)
    return LlmError(f"The answer broke off: {said or 'the server failed.'}", kind=kind)


def _kind_and_text(body: object, status: int | None) -> tuple[LlmErrorKind, str]:
    """Return the kind and the text of an error object; a page of HTML has no text."""
    held = mapped(body)
    inner = mapped(held.get("error")) or held
    said = next(
        (
            text
            for text in (inner.get("message"), held.get("error"), held.get("detail"), body)
            if isinstance(text, str) and text and "<" not in text[:20]
        ),
        "",
    )
    if not said and (details := listed(held.get("detail"))):
        said = text_of(mapped(details[0]).get("msg"))
    for word in (inner.get("code"), inner.get("type")):
        # Nearly every error has the type `invalid_request_error`.
        if word in _CODES and (word != "invalid_request_error" or status is None):
            return _too_long(_CODES[word], said), said
    if status == 413:
        return "context_length", said
    kind = kind_of_status(status) if status is not None else "unavailable"
    return _too_long(kind, said), said


def _too_long(kind: LlmErrorKind, said: str) -> LlmErrorKind:
    return "context_length" if kind == "bad_request" and _TOO_LONG.search(said) else kind


Json: TypeAlias = Mapping[str, Any]


def mapped(value: object) -> Json:
    """Return a JSON object, or an empty one for a value of another type."""
    return value if isinstance(value, dict) else {}


def listed(value: object) -> list[Any]:
    """Return a JSON array, or an empty one for a value of another type."""
    return value if isinstance(value, list) else []


def text_of(value: object) -> str:
    """Return a text, or an empty one for a value of another type."""
    return value if isinstance(value, str) else ""


def number(value: object) -> int:
    """Return a count, or 0 for another value."""
    return value if type(value) is int and value > 0 else 0
