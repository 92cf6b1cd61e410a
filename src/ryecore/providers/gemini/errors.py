"""The conversion of the SDK's exceptions to LlmError."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import httpx2
from google.genai import errors

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

_TOO_LONG: Final = re.compile(r"token count .*exceeds|exceeds .*token", re.IGNORECASE)
_BAD_KEY: Final = re.compile(r"api key (?:not valid|expired|not found)", re.IGNORECASE)
_DELAY: Final = re.compile(r"(\d+(?:\.\d+)?)s")


def error_of(
    error: Exception, provider_id: str, model: str, key: str, response: httpx2.Response | None
) -> LlmError:
    """Return an exception as an error without the key. Raise it outside of the handler."""
    if isinstance(error, LlmError):
        return error
    if bound := bound_failure(error, provider_id, model):
        return bound
    kind, text, wait = _facts(error, response)
    status = None if response is None or response.status_code == 200 else response.status_code
    return LlmError(
        status_text(provider_id, status, redact(text, key)),
        next_step=next_step_of(kind, status),
        kind=kind,
        provider=provider_id,
        model=model,
        status=status,
        retry_after_s=wait,
    )


def _facts(
    error: Exception, response: httpx2.Response | None
) -> tuple[LlmErrorKind, str, float | None]:
    if isinstance(error, errors.APIError):
        text = str(error.message or error)
        details = list(_details(error.details))
        wait = _delay(details)
        if wait is None and response is not None:
            wait = retry_after_s(response.headers)
        code = error.code if isinstance(error.code, int) else 500
        return _kind(code, text, details), text, wait
    if isinstance(error, httpx2.HTTPError):
        return "unavailable", f"The connection broke: {error}", None
    if isinstance(error, RyeError):
        return "bad_request", str(error), None
    if response is not None and response.status_code == 200:
        return "unavailable", f"What came can't be read: {error}", None
    if response is not None:
        wait = retry_after_s(response.headers)
        return _kind(response.status_code, str(error), []), str(error), wait
    kind: LlmErrorKind = "bad_request" if isinstance(error, ValueError) else "unknown"
    return kind, f"{type(error).__name__}: {error}", None


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
