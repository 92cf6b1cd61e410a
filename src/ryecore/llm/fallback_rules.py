"""Fallback plans and their options, records of attempts, and the verdict on a failed attempt."""

import math
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final, Literal, TypeAlias

import anyio
from attrs import field
from attrs.validators import min_len

from ryecore.errors.agents import LlmError, LlmErrorKind, facts_of_kind
from ryecore.frozen import frozen
from ryecore.llm.checks import above, at_least
from ryecore.llm.media import MediaStore
from ryecore.llm.provider import LlmProvider
from ryecore.llm.rate_limits import RateLimits, read_rate_limits
from ryecore.llm.request import LlmRequest
from ryecore.llm.result import StopReason, Usage

__all__ = [
    "GO",
    "AttemptOutcome",
    "AttemptRecord",
    "AttemptVerdict",
    "Backoff",
    "ChainOptions",
    "Failover",
    "FallbackPlanEntry",
    "GiveUp",
    "Go",
    "Refresh",
    "Refuse",
    "RetryAttempt",
    "Verdict",
    "asked_wait_s",
    "backoff_s",
    "fetch_key",
    "verdict_of",
]


@frozen
class Backoff:
    """The wait before the next try: exponential, with full jitter.

    Attributes:
        base_s: The bound of the first wait, in seconds.
        cap_s: The bound of every wait in seconds, including one that a provider asks for.

    Source: decisions 50 and 51.
    """

    base_s: float = field(default=0.25, validator=at_least(0))
    cap_s: float = field(default=8.0, validator=at_least(0))


@frozen
class FallbackPlanEntry:
    """One choice of a fallback plan.

    Attributes:
        provider: The provider.
        model: The model's name.
        max_attempts: The number of tries, at least 1.
        backoff: The wait between tries.

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


@frozen(slots=False)
class AttemptRecord:
    """The record of one attempt.

    Attributes:
        entry: The index of the plan's entry, from 0.
        provider: The provider's id.
        model: The requested model.
        number: The number of the try, from 1; 0 if it was skipped.
        outcome: Its outcome.
        kind: The kind of its failure, if it failed.
        reason: The reason why it was skipped or failed, in words, without secrets.
        usage: The tokens that the provider counted; None if it reported none.
        text_bytes: The size in bytes of an answer that was cut off, or whose provider reported no
            output tokens, for an estimate.
        duration_ms: Its duration.
        media: The types of the media that were made at an endpoint of their own.
        stop_reason: Why the model stopped, if it answered.
        response_model: The model that answered, as the provider names it; empty if none did.
        status: The HTTP status of a failure, if the provider sent one.
        waited_ms: How long it waited for its provider's rate limit before it was made, which isn't
            part of its duration.
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
    waited_ms: float = 0.0


_MAX_COOLDOWN_S: Final = 3600.0  # the bound of a cooldown, whatever wait a provider asks for


@frozen
class RetryAttempt:
    """The verdict to ask the same entry again, after `delay_s` seconds."""

    delay_s: float


@frozen
class Refresh:
    """The verdict to renew the credential and ask the same entry again."""


@frozen
class Failover:
    """The verdict to ask the next entry, and to skip this provider for `cooldown_s` seconds."""

    cooldown_s: float = 0.0


@frozen
class GiveUp:
    """The verdict to end the call with this error."""


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
    """Decide what follows a failed try.

    `attempt` counts the tries of this entry from 1; `random` is the jitter, from 0 to 1.
    `content_started` says whether a part of the answer has been passed on, `refreshed` whether this
    call has tried to renew a credential, and `has_other` whether another entry could be asked at
    once. A provider that failed is passed over for `cooldown_s`.

    Source: docs/design/agent-node.md#failures; decision 50.
    """
    facts = facts_of_kind(kind)
    if content_started or facts.ends_call:
        return GiveUp()
    if kind == "auth":
        return Refresh() if has_refresh and not refreshed else Failover(cooldown_s)
    if not facts.is_retryable:  # the failure concerns the request and the model, not the provider
        return Failover()
    asked_s = asked_wait_s(retry_after_s)
    if asked_s is not None and asked_s > backoff.cap_s and (has_other or attempt >= max_attempts):
        return Failover(asked_s)
    if attempt >= max_attempts:
        return Failover(cooldown_s)
    if asked_s is None:
        asked_s = backoff_s(attempt, backoff.base_s, backoff.cap_s, random)
    return RetryAttempt(min(asked_s, backoff.cap_s))


def asked_wait_s(retry_after_s: float | None) -> float | None:
    """Return the wait that a provider asks for, up to an hour; None for none, or no number."""
    if retry_after_s is None or not math.isfinite(retry_after_s) or retry_after_s < 0:
        return None
    return min(retry_after_s, _MAX_COOLDOWN_S)


@frozen
class Go:
    """The verdict that the attempt may be made."""


@frozen
class Refuse:
    """The verdict that the attempt must not be made. The call ends; no other entry is asked.

    Attributes:
        code: The reason for programs; it becomes `LlmError.code`. An agent's run fails as
            `budget_exceeded`, whatever the code is.
        message: The reason in one sentence; it becomes the error's message.
    """

    code: str
    message: str


GO: Final = Go()

AttemptVerdict: TypeAlias = Go | Refuse
"""Whether an attempt may be made."""


@frozen(slots=False)
class ChainOptions:
    """Options of a fallback chain. No `repr` shows their values.

    Attributes:
        key_for: Returns the credential for a provider's id, or an empty text if none is needed. It
            is called at each attempt. Its exceptions count as `auth`; their texts are dropped.
        sleep: Waits a number of seconds.
        now: A monotonic clock in seconds, for cooldowns and durations.
        on_auth_error: Called with the id of a provider that refused its credential, at most once a
            call. It returns whether it renewed the credential; `key_for` is then called again.
        on_attempt: Called with the record of each attempt, also of skipped ones.
        before_attempt: Called before each attempt with the entry, the request as it will be sent,
            and the attempt's number in this call, from 1. It can refuse.
        media: The store of media.
        stall_s: The seconds without a chunk after which a provider counts as `unavailable`. A whole
            answer (`generate`) has this time in all.
        cooldown_s: The seconds for which a provider that failed is passed over.
        random: Numbers from 0 to 1, for the jitter of waits.
        rate_limits: The most that providers may be asked, by the provider's id or by
            `provider/model`, which goes first. Chains share it where they get the same
            `RateLimits`, which is what this field holds of a mapping.

    Raises:
        ConfigError: `stall_s` isn't above 0, `cooldown_s` is below 0, or `rate_limits` isn't a
            mapping of names to rate limits.

    Source: docs/design/agent-node.md#what-the-host-injects; decisions 50 and 51.
    """

    key_for: Callable[[str], str | Awaitable[str]] = field(repr=False)
    sleep: Callable[[float], Awaitable[object]] = field(default=anyio.sleep, repr=False)
    now: Callable[[], float] = field(default=time.monotonic, repr=False)
    on_auth_error: Callable[[str], Awaitable[bool] | bool] | None = field(default=None, repr=False)
    on_attempt: Callable[[AttemptRecord], None] | None = field(default=None, repr=False)
    before_attempt: (
        Callable[
            [FallbackPlanEntry, LlmRequest, int],
            AttemptVerdict | Awaitable[AttemptVerdict],
        ]
        | None
    ) = field(default=None, repr=False)
    media: MediaStore | None = field(default=None, repr=False)
    stall_s: float = field(default=60.0, validator=above(0))
    cooldown_s: float = field(default=30.0, validator=at_least(0))
    random: Callable[[], float] = field(default=random.random, repr=False)
    rate_limits: RateLimits | None = field(default=None, converter=read_rate_limits, repr=False)


async def fetch_key(options: ChainOptions, provider_id: str, model: str) -> str | LlmError:
    """Return the credential for a provider, or why the host has none."""
    why = ""
    try:
        key = options.key_for(provider_id)
        if isinstance(key, str):
            return key
        key = await key
    except Exception as problem:  # its text may hold a secret
        key, why = None, f": key_for raised {type(problem).__name__}"
    if isinstance(key, str):
        return key
    return LlmError(
        f"The host has no credential for '{provider_id}'{why}.",
        next_step="Let key_for give it; an empty text says that none is needed.",
        kind="auth",
        provider=provider_id,
        model=model,
    )


_MAX_DOUBLINGS: Final = 64


def backoff_s(tried: int, base_s: float, cap_s: float, jitter: float = 1.0) -> float:
    """Return the seconds before the next attempt: exponential, with full jitter.

    `tried` counts the attempts so far, from 1. `base_s` bounds the first wait, twice as much each
    next one, and `cap_s` all. `jitter` is the waited share, from 0 to 1; 1 if it isn't finite.

    Source: decision 50.
    """
    bound_s = min(base_s * 2.0 ** min(tried - 1, _MAX_DOUBLINGS), cap_s)
    return bound_s * (min(max(jitter, 0.0), 1.0) if math.isfinite(jitter) else 1.0)
