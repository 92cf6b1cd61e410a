"""Fallback plans, records of attempts, and the verdict on a failed attempt."""

from math import isfinite
from typing import Final, Literal, TypeAlias

from attrs import field, frozen
from attrs.validators import min_len

from ryecore.errors.agents import LlmErrorKind, facts_of_kind
from ryecore.llm.checks import at_least
from ryecore.llm.provider import LlmProvider
from ryecore.llm.result import StopReason, Usage
from ryecore.policy.backoff import backoff_s

__all__ = [
    "AttemptOutcome",
    "AttemptRecord",
    "Backoff",
    "Failover",
    "FallbackPlanEntry",
    "GiveUp",
    "Refresh",
    "RetryAttempt",
    "Verdict",
    "verdict_of",
]


@frozen
class Backoff:
    """How long to wait before the next try: exponential, with full jitter.

    Attributes:
        base_s: The bound of the first wait, in seconds.
        cap_s: The bound of every wait, in seconds, what a provider asks for included.

    Source: decisions 50 and 51.
    """

    base_s: float = field(default=0.25, validator=at_least(0))
    cap_s: float = field(default=8.0, validator=at_least(0))


@frozen
class FallbackPlanEntry:
    """One choice of a fallback plan.

    Attributes:
        provider: The provider, ready to be asked.
        model: The model to ask it for.
        max_attempts: How often it is tried, at least 1.
        backoff: How long to wait between the tries.

    Raises:
        ConfigError: `max_attempts` is less than 1.
        ValueError: The model is empty.
    """

    provider: LlmProvider
    model: str = field(validator=min_len(1))
    max_attempts: int = field(default=1, validator=at_least(1))
    backoff: Backoff = Backoff()


AttemptOutcome: TypeAlias = Literal["success", "error", "cut", "skipped", "refused", "cancelled"]
"""The outcome of an attempt. `cut`: content had arrived. `skipped`: it was not made."""


@frozen
class AttemptRecord:
    """The record of one attempt.

    Attributes:
        entry: Which entry of the plan it was, from 0.
        provider: The provider's id.
        model: The model that was asked.
        number: Which of the tries that were made it is, from 1; 0 where it was skipped.
        outcome: What came of it.
        kind: How it failed, where it did.
        reason: Why it was skipped or failed, in words, without secrets.
        usage: What the provider counted; None where it didn't say.
        text_bytes: The size in bytes of an answer that was cut, or whose provider reported no
            output, for an estimate.
        duration_ms: How long it took.
        media: The types of the media that were made, where they were asked for at an endpoint of
            their own.
        stop_reason: Why the model stopped, where it answered.
        response_model: The model that answered, as the provider names it; empty where none did.
        status: The HTTP status of a failure, where the provider answered with one.
    """

    entry: int
    provider: str
    model: str
    number: int
    outcome: AttemptOutcome
    kind: LlmErrorKind | None = None
    reason: str = ""
    usage: Usage | None = None
    text_bytes: int = 0
    duration_ms: float = 0.0
    media: tuple[str, ...] = ()
    stop_reason: StopReason | None = None
    response_model: str = ""
    status: int | None = None


_MAX_COOLDOWN_S: Final = 3600.0  # a provider that asks for a year is asked again all the same


@frozen
class RetryAttempt:
    """Ask the same entry again.

    Attributes:
        delay_s: After how many seconds.
    """

    delay_s: float


@frozen
class Refresh:
    """Have the credential renewed, and ask the same entry again."""


@frozen
class Failover:
    """Ask the next entry.

    Attributes:
        cooldown_s: For how many seconds this one's provider is passed over; 0 for not at all.
    """

    cooldown_s: float = 0.0


@frozen
class GiveUp:
    """End with this error."""


Verdict: TypeAlias = RetryAttempt | Refresh | Failover | GiveUp


def verdict_of(
    kind: LlmErrorKind,
    *,
    attempt: int,
    max_attempts: int,
    backoff: Backoff,
    random: float,
    retry_after_s: float | None = None,
    content_started: bool = False,
    refreshed: bool = False,
    has_refresh: bool = False,
    has_other: bool = False,
    cooldown_s: float = 0.0,
) -> Verdict:
    """Decide what follows a try that failed.

    Args:
        kind: How it failed.
        attempt: Which try of this entry it was, from 1.
        max_attempts: How often the entry is tried.
        backoff: How long to wait between tries.
        random: The jitter, from 0 to 1; 1 where it is not finite.
        retry_after_s: How long the provider asks to wait; None where it didn't say.
        content_started: Whether a part of the answer has been given out.
        refreshed: Whether a renewal of a credential was tried in this call.
        has_refresh: Whether there is anybody who could renew one.
        has_other: Whether another entry could be asked at once.
        cooldown_s: For how long a provider that failed is passed over.

    Source: docs/design/agent-node.md#failures; decision 50.
    """
    facts = facts_of_kind(kind)
    if content_started or facts.ends_call:
        return GiveUp()
    if kind == "auth":
        return Refresh() if has_refresh and not refreshed else Failover(cooldown_s)
    if not facts.is_retryable:  # it is about the request and the model, not the provider
        return Failover()
    asked_s = retry_after_s
    if asked_s is None or not isfinite(asked_s) or asked_s < 0:
        asked_s = None
    if asked_s is not None and asked_s > backoff.cap_s and (has_other or attempt >= max_attempts):
        return Failover(min(asked_s, _MAX_COOLDOWN_S))
    if attempt >= max_attempts:
        return Failover(cooldown_s)
    if asked_s is None:
        asked_s = backoff_s(attempt, backoff.base_s, backoff.cap_s, random)
    return RetryAttempt(min(asked_s, backoff.cap_s))
