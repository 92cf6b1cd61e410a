"""The conversion of the SDK's exceptions to LlmError."""

import re
from typing import Final

import anthropic
import httpx2

from ryecore.errors import LlmError, RyeError
from ryecore.llm import LlmErrorKind, redact
from ryecore.providers.errors import (
    bound_failure,
    kind_of_status,
    next_step_of,
    retry_after_s,
    status_text,
)

__all__ = ["error_of"]

_BY_TYPE: Final[dict[str, LlmErrorKind]] = {
    "api_error": "unavailable",
    "overloaded_error": "unavailable",
    "timeout_error": "unavailable",
    "rate_limit_error": "rate_limit",
    "authentication_error": "auth",
    "permission_error": "auth",
    "billing_error": "auth",
    "not_found_error": "bad_request",
    "request_too_large": "context_length",
}
# Waiting doesn't lift a spending limit, so it counts as an account that can't pay.
_SPENT: Final = re.compile(r"_spend_limit_reached$")
_TOO_LONG: Final = re.compile(
    r"prompt is too long|too many tokens|context (?:window|limit|length)", re.IGNORECASE
)


def error_of(error: Exception, provider_id: str, model: str, key: str) -> LlmError:
    """Return an exception as an error without the key. Raise it outside of the handler."""
    if isinstance(error, LlmError):
        return error
    if bound := bound_failure(error, provider_id, model):
        return bound
    kind, text, status, wait = _facts(error)
    return LlmError(
        status_text(provider_id, status, redact(text, key)),
        next_step=next_step_of(kind, status),
        kind=kind,
        provider=provider_id,
        model=model,
        status=status,
        retry_after_s=wait,
    )


def _facts(error: Exception) -> tuple[LlmErrorKind, str, int | None, float | None]:
    if isinstance(error, anthropic.APIStatusError):
        headers = error.response.headers
        text = error.api_message if isinstance(error.api_message, str) else error.message
        status = error.status_code if error.status_code != 200 else None
        return _kind(error, text, status), text, status, retry_after_s(headers)
    if isinstance(error, anthropic.APIConnectionError):
        return "unavailable", f"{error.message} {error.__cause__ or ''}".strip(), None, None
    if isinstance(error, httpx2.HTTPError):
        return "unavailable", f"The connection broke: {error}", None, None
    if isinstance(error, RyeError):
        return "bad_request", str(error), None, None
    if isinstance(error, UnicodeEncodeError):
        return "bad_request", f"the request holds half a character: {error.reason}.", None, None
    if isinstance(error, ValueError | RecursionError | anthropic.APIResponseValidationError):
        return "unavailable", f"What came can't be read: {error}", None, None
    return "unknown", f"{type(error).__name__}: {error}", None, None


def _kind(error: anthropic.APIStatusError, text: str, status: int | None) -> LlmErrorKind:
    if _SPENT.search(error.error_code or ""):
        return "auth"
    if error.type == "invalid_request_error" and _TOO_LONG.search(text):
        return "context_length"
    if status in (None, 413, 529):
        # A stream has sent its status before the error: only the error's type identifies it.
        return _BY_TYPE.get(str(error.type), "context_length" if status == 413 else "unavailable")
    return kind_of_status(status)
