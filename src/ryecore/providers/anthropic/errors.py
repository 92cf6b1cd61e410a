"""The conversion of the SDK's exceptions to LlmError."""

import re
from typing import Final

import anthropic

from ryecore.llm import LlmError, LlmErrorKind
from ryecore.providers.errors import Failure, kind_of_status, llm_error, retry_after_s

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
    """Return the error for an exception; see `llm_error`."""
    return llm_error(error, provider_id, model, key, _failure)


def _failure(error: Exception) -> Failure | None:
    if isinstance(error, anthropic.APIStatusError):
        text = error.api_message if isinstance(error.api_message, str) else error.message
        status = error.status_code if error.status_code != 200 else None
        return Failure(
            _kind(error, text, status), text, status, retry_after_s(error.response.headers)
        )
    if isinstance(error, anthropic.APIConnectionError):
        return Failure("unavailable", f"{error.message} {error.__cause__ or ''}".strip())
    if isinstance(error, anthropic.APIResponseValidationError):
        return Failure("unavailable", f"the answer can't be read: {error}")
    return None


def _kind(error: anthropic.APIStatusError, text: str, status: int | None) -> LlmErrorKind:
    if _SPENT.search(error.error_code or ""):
        return "auth"
    if error.type == "invalid_request_error" and _TOO_LONG.search(text):
        return "context_length"
    if status in (None, 413, 529):
        # A stream has sent its status before the error: only the error's type identifies it.
        return _BY_TYPE.get(str(error.type), "context_length" if status == 413 else "unavailable")
    return kind_of_status(status)
