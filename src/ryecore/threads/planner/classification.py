"""What an error means for a thread: its class, and whether it is worth another try. Pure.

The fallback chain has tried again already, within one call. This is the thread's own level above
it: it asks anew, with a longer breath, and ends after a few errors in a row.

Source: docs/design/threads.md#turn-loop; decision 50; docs/design/threads.md#errors-of-models.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from attrs import frozen

from ryecore.errors import ConfigError, LlmError, RyeError
from ryecore.lillux.patterns import TextPattern, compile_pattern
from ryecore.policy.backoff import backoff_s
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
ERROR_CLASSES: Final[tuple[ErrorClass, ...]] = (
    "cancelled", "quota", "rate_limited", "auth", "invalid", "timeout", "connection", "transient",
    "permanent",
)  # fmt: skip

_MAX_TEXT: Final = 2000


@frozen
class ErrorPattern:
    """What errors of a class look like. All that is said must fit.

    Attributes:
        category: The class.
        kinds: How it failed: a kind of `LlmError`, or a tool's error type such as `tool_denied`.
        status: HTTP statuses, from and to, both included.
        text: What the message holds, whatever its case; None where that doesn't matter.
    """

    category: ErrorClass
    kinds: frozenset[str] = frozenset()
    status: tuple[tuple[int, int], ...] = ()
    text: TextPattern | None = None

    def fits(self, kind: str, status: int | None, message: str) -> bool:
        """Whether an error looks like this."""
        if self.kinds and kind not in self.kinds:
            return False
        if self.status and not _is_within(status, self.status):
            return False
        return self.text is None or self.text.is_match(message)


@frozen
class RetryPolicy:
    """How errors of a class are tried again: exponentially, with full jitter.

    Attributes:
        attempts: How many tries there are in all.
        base_s: The bound of the first wait, in seconds.
        cap_s: The bound of every wait.
    """

    attempts: int
    base_s: float
    cap_s: float


@frozen
class Classification:
    """How errors are classed, and what is done about each class.

    Attributes:
        patterns: The first that fits decides; what fits none is `permanent`.
        retry: The classes that are tried again.
        max_consecutive_errors: With how many errors in a row a thread ends.
        retry_after_cap_s: The bound of a wait that a provider asks for, in seconds.
    """

    patterns: tuple[ErrorPattern, ...]
    retry: Mapping[ErrorClass, RetryPolicy]
    max_consecutive_errors: int = 3
    retry_after_cap_s: float = 300.0


@frozen
class RetryIn:
    """Ask again.

    Attributes:
        seconds: After how long.
        category: The error's class.
    """

    seconds: float
    category: ErrorClass = "transient"

    def to_dict(self) -> dict[str, object]:
        """What hooks see of it."""
        return {"category": self.category, "retryable": True, "retry_in_s": self.seconds}


@frozen
class GiveUp:
    """End the thread with this error.

    Attributes:
        category: The error's class.
    """

    category: ErrorClass

    def to_dict(self) -> dict[str, object]:
        """What hooks see of it."""
        return {"category": self.category, "retryable": False}


ErrorPlan: TypeAlias = RetryIn | GiveUp

_UNSURE: Final = ["unavailable", "unknown", "tool_execution"]
_DEFAULTS: Final[Mapping[str, Any]] = {
    "patterns": [
        {"class": "cancelled", "kinds": ["cancelled", "tool_cancelled"]},
        {
            "class": "quota",
            "kinds": ["auth", "bad_request", "unknown"],
            "text": "insufficient[_ ](quota|credit|funds)|credit balance|current quota|billing",
        },
        {"class": "quota", "status": [402]},
        {"class": "rate_limited", "kinds": ["rate_limit"]},
        {"class": "rate_limited", "status": [429]},
        {"class": "auth", "kinds": ["auth", "tool_denied"]},
        {"class": "auth", "status": [401, 403]},
        {
            "class": "invalid",
            "kinds": [
                "bad_request", "context_length", "content_filter", "refused", "unknown_tool",
                "tool_args_invalid",
            ],
        },
        {"class": "timeout", "status": [408, 504, 524]},
        {"class": "timeout", "kinds": _UNSURE, "text": "timed? ?out|timeout|deadline|stalled"},
        {
            "class": "connection",
            "kinds": _UNSURE,
            "text": r"connect|broken pipe|name resolution|\bdns\b|\beof\b|network",
        },
        {"class": "transient", "kinds": ["unavailable"]},
        {"class": "transient", "status": ["500-599"]},
        {"class": "invalid", "status": ["400-499"]},
        {"class": "rate_limited", "kinds": ["unknown"], "text": "rate.?limit|too many requests"},
        {"class": "transient", "kinds": ["unknown"], "text": "overloaded|temporarily"},
    ],
    "retry": {
        "rate_limited": {"attempts": 3, "base_s": 2, "cap_s": 60},
        "transient": {"attempts": 3, "base_s": 1, "cap_s": 30},
        "timeout": {"attempts": 3, "base_s": 1, "cap_s": 30},
        "connection": {"attempts": 3, "base_s": 1, "cap_s": 30},
    },
    "max_consecutive_errors": 3,
    "retry_after_cap_s": 300,
}  # fmt: skip
"""What the system bundle's file says too."""


def classify(error: RyeError, classification: "Classification | None" = None) -> ErrorClass:
    """The class of an error of a model's provider, or of a tool.

    Args:
        error: The error.
        classification: How errors are classed; None for the defaults.
    """
    classification = classification or DEFAULT_CLASSIFICATION
    kind, status = error.error_type, None
    if isinstance(error, LlmError):
        kind, status = error.kind, error.status
        if kind == "cancelled":  # whatever is configured, and whatever its text says
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
    classification: "Classification | None" = None,
    *,
    jitter: float = 1.0,
) -> ErrorPlan:
    """What a thread does about an error.

    Args:
        error: The error.
        retries_so_far: How many errors in a row were answered by asking again.
        control: What a hook wants. `retry` tries again what would not be, within the bound of
            errors in a row; `fail` and `abort` end; the others change nothing here.
        classification: How errors are classed; None for the defaults.
        jitter: The dice, from 0 to 1.

    Returns:
        What to do. A cancelled call is never made again.

    Source: decision 50; docs/design/threads.md#errors-of-models.
    """
    classification = classification or DEFAULT_CLASSIFICATION
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


def read_classification(config: Mapping[str, object]) -> Classification:
    """Read `agent/error_classification.yaml`.

    Args:
        config: All its layers as one; what it leaves out has its default.

    Raises:
        ConfigError: It has another form.
    """
    known = set(_DEFAULTS)
    try:
        if set(config) - known:
            raise ValueError(f"it holds {', '.join(sorted(map(str, set(config) - known)))}")
        said: dict[str, Any] = {**_DEFAULTS, **config}
        patterns, retry = said["patterns"], said["retry"]
        if not isinstance(patterns, list):
            raise ValueError("patterns is a list")
        if not isinstance(retry, Mapping):
            raise ValueError("retry is a mapping")
        return Classification(
            tuple(_read_pattern(one, number) for number, one in enumerate(patterns, 1)),
            {_category(name): _read_policy(name, one) for name, one in retry.items() if one},
            int(_number(said, "max_consecutive_errors", 1, 100)),
            _number(said, "retry_after_cap_s", 0, 86_400),
        )
    except ValueError as problem:
        raise ConfigError(
            f"{ERROR_CONFIG}: {problem}.", next_step="Mend the file and sign it again."
        ) from None


def _read_pattern(declared: object, number: int) -> ErrorPattern:
    place = f"pattern {number}"
    if not isinstance(declared, Mapping) or set(declared) - {"class", "kinds", "status", "text"}:
        raise ValueError(f"{place} is a mapping of class, kinds, status and text")
    kinds, text = declared.get("kinds", []), declared.get("text")
    if not isinstance(kinds, list) or not all(isinstance(one, str) for one in kinds):
        raise ValueError(f"{place}: kinds is a list of texts")
    if text is not None and not isinstance(text, str):
        raise ValueError(f"{place}: text is a regular expression")
    try:
        compiled = None if text is None else compile_pattern(text, ignores_case=True)
    except ValueError as problem:
        raise ValueError(f"{place}: text: {problem}") from None
    status = _read_status(declared.get("status", []), place)
    if not kinds and not status and compiled is None:
        raise ValueError(f"{place} says nothing, and would fit everything")
    return ErrorPattern(_category(declared.get("class")), frozenset(kinds), status, compiled)


def _read_status(declared: object, place: str) -> tuple[tuple[int, int], ...]:
    if not isinstance(declared, Sequence) or isinstance(declared, str):
        raise ValueError(f"{place}: status is a list")
    ranges: list[tuple[int, int]] = []
    for one in declared:
        low, _, high = str(one).partition("-")
        if not (low.isdecimal() and (high or low).isdecimal() and len(str(one)) <= 7):
            raise ValueError(f"{place}: {str(one)[:20]!r} is no status and no range like 500-599")
        ranges.append((int(low), int(high or low)))
    return tuple(ranges)


def _read_policy(name: object, declared: object) -> RetryPolicy:
    if not isinstance(declared, Mapping) or set(declared) - {"attempts", "base_s", "cap_s"}:
        raise ValueError(f"retry.{name} is a mapping of attempts, base_s and cap_s")
    said = {"attempts": 3, "base_s": 1, "cap_s": 30, **declared}
    return RetryPolicy(
        int(_number(said, "attempts", 1, 100)),
        _number(said, "base_s", 0, 3600),
        _number(said, "cap_s", 0, 3600),
    )


def _number(said: Mapping[str, Any], name: str, low: float, high: float) -> float:
    value = said[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ValueError(f"{name} is {str(value)[:40]}, no number from {low} to {high}")
    return float(value)


def _is_within(status: int | None, ranges: tuple[tuple[int, int], ...]) -> bool:
    return status is not None and any(low <= status <= high for low, high in ranges)


def _category(name: object) -> ErrorClass:
    if name not in ERROR_CLASSES:
        raise ValueError(f"{str(name)[:40]!r} is none of {', '.join(ERROR_CLASSES)}")
    return name


DEFAULT_CLASSIFICATION: Final = read_classification({})
