"""The classification of errors, and the retries of a thread. Pure.

The fallback chain retries within one call. A thread retries above it, with longer waits, and ends
after a few errors in a row.

Source: docs/design/threads.md#turn-loop; decision 50; docs/design/threads.md#errors-of-models.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from attrs import field

from ryecore.convert.config import Configuration, Reader, between
from ryecore.convert.fields import key
from ryecore.errors import LlmError, RyeError
from ryecore.frozen import frozen
from ryecore.lillux.patterns import TextPattern, compile_pattern
from ryecore.llm.fallback_rules import backoff_s
from ryecore.policy.hooks import Control

__all__ = [
    "DEFAULT_CLASSIFICATION",
    "ERROR_CLASSES",
    "ERROR_CONFIG",
    "Classification",
    "ErrorClass",
    "ErrorPattern",
    "ErrorPlan",
    "GiveUp",
    "RetryIn",
    "RetryPolicy",
    "classify",
    "on_error_plan",
    "read_classification",
]

ERROR_CONFIG: Final = "agent/error_classification.yaml"

ErrorClass: TypeAlias = Literal[
    "cancelled", "quota", "rate_limited", "auth", "invalid", "timeout", "connection", "transient",
    "permanent",
]  # fmt: skip
ERROR_CLASSES: Final[tuple[ErrorClass, ...]] = get_args(ErrorClass)

_MAX_TEXT: Final = 2000


def _read_status(value: object) -> tuple[int, int]:
    low, _, high = str(value).partition("-")
    if not (low.isdecimal() and (high or low).isdecimal() and len(str(value)) <= 7):
        raise ValueError(f"must be a status or a range like 500-599, not {str(value)[:20]!r}")
    return int(low), int(high or low)


def _read_text(value: object) -> TextPattern | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError(f"must be a regular expression, not {str(value)[:20]!r}")
    return compile_pattern(value, ignores_case=True)


@frozen
class ErrorPattern:
    """A pattern of errors of a class. Every declared trait must match.

    `kinds` are those of `LlmError`, or a tool's error types such as `tool_denied`; `status` is the
    first and the last HTTP status; `text` is part of the message, in any case.
    """

    category: ErrorClass = field(metadata=key("class"))
    kinds: frozenset[str] = frozenset()
    status: tuple[Annotated[tuple[int, int], Reader(_read_status)], ...] = ()
    text: Annotated[TextPattern | None, Reader(_read_text)] = None

    def __attrs_post_init__(self) -> None:
        if not self.kinds and not self.status and self.text is None:
            raise ValueError("must have kinds, status or text: without them it fits every error")

    def fits(self, kind: str, status: int | None, message: str) -> bool:
        """Return whether an error matches the pattern."""
        if self.kinds and kind not in self.kinds:
            return False
        if self.status and not _is_within(status, self.status):
            return False
        return self.text is None or self.text.is_match(message)


@frozen
class RetryPolicy:
    """The attempts at a class of errors in all, with exponential waits from a base to a cap."""

    attempts: Annotated[int, between(1, 100)] = 3
    base_s: Annotated[float, between(0, 3600)] = 1.0
    cap_s: Annotated[float, between(0, 3600)] = 30.0


def _patterns(*declared: Mapping[str, Any]) -> tuple[ErrorPattern, ...]:
    return tuple(
        ErrorPattern(
            one["category"],
            frozenset(one.get("kinds", ())),
            one.get("status", ()),
            _read_text(one.get("text")),
        )
        for one in declared
    )


_UNSURE: Final = ("unavailable", "unknown", "tool_execution")
_PATTERNS: Final = _patterns(
    {"category": "cancelled", "kinds": ["cancelled", "tool_cancelled"]},
    {
        "category": "quota",
        "kinds": ["auth", "bad_request", "unknown"],
        "text": "insufficient[_ ](quota|credit|funds)|credit balance|current quota|billing",
    },
    {"category": "quota", "status": ((402, 402),)},
    {"category": "rate_limited", "kinds": ["rate_limit"]},
    {"category": "rate_limited", "status": ((429, 429),)},
    {"category": "auth", "kinds": ["auth", "tool_denied"]},
    {"category": "auth", "status": ((401, 401), (403, 403))},
    {
        "category": "invalid",
        "kinds": [
            "bad_request", "context_length", "content_filter", "refused", "unknown_tool",
            "tool_args_invalid",
        ],
    },
    {"category": "timeout", "status": ((408, 408), (504, 504), (524, 524))},
    {"category": "timeout", "kinds": _UNSURE, "text": "timed? ?out|timeout|deadline|stalled"},
    {
        "category": "connection",
        "kinds": _UNSURE,
        "text": r"connect|broken pipe|name resolution|\bdns\b|\beof\b|network",
    },
    {"category": "transient", "kinds": ["unavailable"]},
    {"category": "transient", "status": ((500, 599),)},
    {"category": "invalid", "status": ((400, 499),)},
    {"category": "rate_limited", "kinds": ["unknown"], "text": "rate.?limit|too many requests"},
    {"category": "transient", "kinds": ["unknown"], "text": "overloaded|temporarily"},
)  # fmt: skip
_RETRY: Final[Mapping[ErrorClass, RetryPolicy | None]] = {
    "rate_limited": RetryPolicy(3, 2.0, 60.0),
    "transient": RetryPolicy(),
    "timeout": RetryPolicy(),
    "connection": RetryPolicy(),
}


@frozen
class Classification:
    """The classes of errors, and the retries of each, if it is retried.

    The first pattern that matches decides; an error that matches none is `permanent`.
    """

    patterns: tuple[ErrorPattern, ...] = _PATTERNS
    retry: Mapping[ErrorClass, RetryPolicy | None] = field(factory=lambda: _RETRY)
    max_consecutive_errors: Annotated[int, between(1, 100)] = 3
    retry_after_cap_s: Annotated[float, between(0, 86_400)] = 300.0


DEFAULT_CLASSIFICATION: Final = Classification()
"""The default classification, which the system bundle's file repeats."""


@frozen
class RetryIn:
    """The decision to retry after a wait."""

    seconds: float
    category: ErrorClass = "transient"

    def to_dict(self) -> dict[str, object]:
        """Return the decision as hooks see it."""
        return {"category": self.category, "retryable": True, "retry_in_s": self.seconds}


@frozen
class GiveUp:
    """The decision to end the thread with an error."""

    category: ErrorClass

    def to_dict(self) -> dict[str, object]:
        """Return the decision as hooks see it."""
        return {"category": self.category, "retryable": False}


ErrorPlan: TypeAlias = RetryIn | GiveUp


def classify(
    error: RyeError, classification: Classification = DEFAULT_CLASSIFICATION
) -> ErrorClass:
    """Return the class of an error of a model's provider, or of a tool."""
    kind, status = error.error_type, None
    if isinstance(error, LlmError):
        kind, status = error.kind, error.status
        if kind == "cancelled":  # regardless of the configuration and the message
            return "cancelled"
    message = error.message[:_MAX_TEXT]
    for pattern in classification.patterns:
        if pattern.fits(kind, status, message):
            return pattern.category
    return "permanent"


def on_error_plan(
    error: RyeError,
    retries_so_far: int,
    control: Control | None = None,
    classification: Classification = DEFAULT_CLASSIFICATION,
    *,
    jitter: float = 1.0,
) -> ErrorPlan:
    """Return how a thread reacts to an error. A cancelled call is never retried.

    Args:
        retries_so_far: The number of retries after errors in a row.
        control: A hook's control result. `retry` retries any error, within the bound of errors in
            a row; `fail` and `abort` end the thread; others change nothing here.
        jitter: A random number from 0 to 1.

    Source: decision 50; docs/design/threads.md#errors-of-models.
    """
    category = classify(error, classification)
    policy = classification.retry.get(category)
    if category == "cancelled" or control in ("fail", "abort"):
        return GiveUp(category)
    most = classification.max_consecutive_errors
    if policy is None:
        if control != "retry":
            return GiveUp(category)
        policy = RetryPolicy(most, 1.0, 30.0)
    if retries_so_far + 1 >= min(policy.attempts, most):
        return GiveUp(category)
    asked_s = error.retry_after_s if isinstance(error, LlmError) else None
    if asked_s is not None and math.isfinite(asked_s) and asked_s >= 0:
        return RetryIn(min(asked_s, classification.retry_after_cap_s), category)
    wait_s = backoff_s(retries_so_far + 1, policy.base_s, policy.cap_s, jitter)
    return RetryIn(wait_s, category)


def read_classification(config: Configuration) -> Classification:
    """Read `agent/error_classification.yaml`, merged; a missing key has its default."""
    return config.read(Classification) if config.values else DEFAULT_CLASSIFICATION


def _is_within(status: int | None, ranges: tuple[tuple[int, int], ...]) -> bool:
    return status is not None and any(low <= status <= high for low, high in ranges)
