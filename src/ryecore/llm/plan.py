"""Whom to ask, in which order, and what came of each try."""

from typing import Literal, TypeAlias

from attrs import field, frozen
from attrs.validators import min_len

from ryecore.errors.agents import LlmErrorKind
from ryecore.llm.checks import at_least
from ryecore.llm.provider import LlmProvider
from ryecore.llm.result import StopReason, Usage

__all__ = ["AttemptOutcome", "AttemptRecord", "Backoff", "FallbackPlanEntry"]


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
"""What came of a try. `cut`: content had come already. `skipped`: it was not made."""


@frozen
class AttemptRecord:
    """What came of one try.

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
