"""Options of a fallback chain, which the host provides."""

import random
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import anyio
from attrs import field, frozen

from ryecore.errors.agents import LlmError
from ryecore.llm.checks import above, at_least
from ryecore.llm.media import MediaStore
from ryecore.llm.plan import AttemptRecord, FallbackPlanEntry
from ryecore.llm.request import LlmRequest

__all__ = ["GO", "AttemptVerdict", "ChainOptions", "Go", "Refuse", "fetch_key", "no_credential"]


@frozen
class Go:
    """Go on: the attempt may be made."""


@frozen
class Refuse:
    """The attempt must not be made. The call ends; no other entry is asked.

    Attributes:
        code: Why, for a program; it becomes `LlmError.code`. An agent's run fails as
            `budget_exceeded`, whatever it is.
        message: Why, one sentence; it becomes the error's message.
    """

    code: str
    message: str


GO: Final = Go()

AttemptVerdict: TypeAlias = Go | Refuse
"""Whether an attempt may be made."""


@frozen
class ChainOptions:
    """Options of a fallback chain. No `repr` shows their values.

    Attributes:
        key_for: Gives the credential for a provider's id; empty where none is needed. It is asked
            at each attempt. Whatever it raises counts as `auth`, and its text is dropped.
        sleep: Waits a number of seconds.
        now: A monotonic clock in seconds, for cooldowns and durations.
        on_auth_error: Told the id of a provider that refused its credential, at most once a call.
            True where the credential was renewed: `key_for` is then asked again.
        on_attempt: Told of every attempt, those that were skipped too.
        before_attempt: Asked before each attempt, with the entry, the request as it will be sent,
            and the attempt's number in this call, from 1. It can refuse.
        media: Where media are read and put.
        stall_s: After how many seconds without a chunk a provider counts as `unavailable`. A whole
            answer (`generate`) has this long in all.
        cooldown_s: For how many seconds a provider that failed is passed over.
        random: Numbers from 0 to 1, for the jitter of waits.

    Raises:
        ConfigError: `stall_s` isn't above 0, or `cooldown_s` is below 0.

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


async def fetch_key(options: ChainOptions, provider_id: str) -> str | None:
    """The credential for a provider; None where the host has none, for whatever reason."""
    try:
        key = options.key_for(provider_id)
        if not isinstance(key, str):
            key = await key
    except Exception:  # its text may hold anything
        return None
    return key if isinstance(key, str) else None


def no_credential(provider_id: str, model: str) -> LlmError:
    """The error where `fetch_key` gave none."""
    return LlmError(
        f"The host has no credential for '{provider_id}'.",
        next_step="Let key_for give it; an empty text says that none is needed.",
        kind="auth",
        provider=provider_id,
        model=model,
    )
