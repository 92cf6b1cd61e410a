"""The conversion of the SDK's exceptions to LlmError."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import httpx2
from google.genai import errors

from ryecore.errors import RyeError
from ryecore.llm import LlmError, LlmErrorKind
from ryecore.providers.errors import (
    BrokenAnswer,
    Failure,
    kind_of_status,
    llm_error,
    retry_after_s,
)

__all__ = ["error_of"]

_TOO_LONG: Final = re.compile(r"token count .*exceeds|exceeds .*token", re.IGNORECASE)
_BAD_KEY: Final = re.compile(r"api key (?:not valid|expired|not found)", re.IGNORECASE)
_DELAY: Final = re.compile(r"(\d+(?:\.\d+)?)s")


def error_of(
    error: Exception, provider_id: str, model: str, key: str, response: httpx2.Response | None
) -> LlmError:
    """Return the error for an exception; see `llm_error`."""
    return llm_error(error, provider_id, model, key, lambda one: _failure(one, response))


def _failure(error: Exception, response: httpx2.Response | None) -> Failure | None:
    status = None if response is None or response.status_code == 200 else response.status_code
    wait_s = None if response is None else retry_after_s(response.headers)
    if isinstance(error, errors.APIError):
        text = str(error.message or error)
        details = list(_details(error.details))
        code = error.code if isinstance(error.code, int) else 500
        delay_s = _delay(details)
        return Failure(
            _kind(code, text, details), text, status, wait_s if delay_s is None else delay_s
        )
    if isinstance(error, httpx2.HTTPError | RyeError | BrokenAnswer):
        return None
    if status is not None:
        return Failure(_kind(status, str(error), []), str(error), status, wait_s)
    if response is not None:
        return Failure("unavailable", f"the answer can't be read: {error}")
    # Before there is a response, the SDK refuses what it can't send.
    kind: LlmErrorKind = "bad_request" if isinstance(error, ValueError) else "unknown"
    return Failure(kind, f"{type(error).__name__}: {error}")


def _kind(code: int, text: str, details: list[Mapping[str, Any]]) -> LlmErrorKind:
    if code == 400:
        if _BAD_KEY.search(text) or any(one.get("reason") == "API_KEY_INVALID" for one in details):
            return "auth"
        if _TOO_LONG.search(text):
            return "context_length"
    if code == 413:
        return "context_length"
    return "unavailable" if code == 499 else kind_of_status(code)


def _details(body: object) -> Iterator[Mapping[str, Any]]:
    """Yield the typed details of an error's body; malformed ones are left out."""
    error = body.get("error") if isinstance(body, dict) else None
    details = error.get("details") if isinstance(error, dict) else None
    yield from (one for one in details or () if isinstance(one, dict))


def _delay(details: list[Mapping[str, Any]]) -> float | None:
    """Return the wait in seconds that the body asks for, such as `"retryDelay": "7s"`."""
    for one in details:
        if found := _DELAY.fullmatch(str(one.get("retryDelay", ""))):
            return float(found[1])
    return None
