"""The conversion of failures of OpenAI's SDK and servers to LlmError."""

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import openai

from ryecore.llm import LlmError, LlmErrorKind
from ryecore.providers.errors import Failure, kind_of_status, llm_error, retry_after_s

__all__ = [
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


def error_of(error: Exception, provider_id: str, model: str, key: str) -> LlmError:
    """Return the error for an exception; see `llm_error`."""
    if isinstance(error, openai.APIError) and not isinstance(
        error, openai.APIStatusError | openai.APIConnectionError
    ):  # the SDK found it in a stream
        error = error_in_body(error.body or error.message)
    return llm_error(error, provider_id, model, key, _failure)


def _failure(error: Exception) -> Failure | None:
    if isinstance(error, openai.APIStatusError):
        kind, text = _kind_and_text(error.body, error.status_code)
        return Failure(kind, text, error.status_code, retry_after_s(error.response.headers))
    if isinstance(error, openai.APITimeoutError):
        return Failure("unavailable", "it didn't answer in time.")
    if isinstance(error, openai.APIConnectionError):
        cause = error.__cause__
        why = "" if cause is None else f" ({type(cause).__name__}: {cause})"
        return Failure("unavailable", f"the connection failed{why}.")
    return None


def error_in_body(body: object) -> LlmError:
    """Return the error sent in place of an answer: in a stream, or with status 200.

    `body` is the error object, or the object that holds it.
    """
    code = mapped(body).get("code") or mapped(mapped(body).get("error")).get("code")
    numeric = code if isinstance(code, int) and 400 <= code < 600 else None
    kind, text = _kind_and_text(body, numeric)
    return LlmError(f"The answer broke off: {text or 'the server failed.'}", kind=kind)


def _kind_and_text(body: object, status: int | None) -> tuple[LlmErrorKind, str]:
    """Return the kind and the text of an error object; a page of HTML has no text."""
    held = mapped(body)
    inner = mapped(held.get("error")) or held
    text = next(
        (
            one
            for one in (inner.get("message"), held.get("error"), held.get("detail"), body)
            if isinstance(one, str) and one and "<" not in one[:20]
        ),
        "",
    )
    if not text and (details := listed(held.get("detail"))):
        text = text_of(mapped(details[0]).get("msg"))
    for word in (inner.get("code"), inner.get("type")):
        # Nearly every error has the type `invalid_request_error`.
        if word in _CODES and (word != "invalid_request_error" or status is None):
            return _too_long(_CODES[word], text), text
    if status == 413:
        return "context_length", text
    kind = kind_of_status(status) if status is not None else "unavailable"
    return _too_long(kind, text), text


def _too_long(kind: LlmErrorKind, text: str) -> LlmErrorKind:
    return "context_length" if kind == "bad_request" and _TOO_LONG.search(text) else kind


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
