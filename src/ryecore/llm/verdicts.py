"""What follows a try that failed. Pure: no clock, no dice, no I/O."""

from math import isfinite
from typing import Final, TypeAlias

from attrs import frozen

from ryecore.errors.agents import RETRYABLE_KINDS, LlmErrorKind
from ryecore.llm.plan import Backoff
from ryecore.policy.backoff import backoff_s

__all__ = ["Failover", "Raise", "Refresh", "Retry", "Verdict", "verdict_of"]

_FINAL_KINDS: Final = frozenset({"cancelled", "refused", "bad_request", "content_filter"})
_MAX_COOLDOWN_S: Final = 3600.0  # a provider that asks for a year is asked again all the same


@frozen
class Retry:
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
class Raise:
    """End with this error."""


Verdict: TypeAlias = Retry | Refresh | Failover | Raise


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
    if content_started or kind in _FINAL_KINDS:
        return Raise()
    if kind == "auth":
        return Refresh() if has_refresh and not refreshed else Failover(cooldown_s)
    if kind not in RETRYABLE_KINDS:  # it speaks of the request and the model, not of the provider
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
    return Retry(min(asked_s, backoff.cap_s))
