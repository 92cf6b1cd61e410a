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


@frozen
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
    """Return the credential for a provider; None if the host can't provide it."""
    try:
        key = options.key_for(provider_id)
        if not isinstance(key, str):
            key = await key
    except Exception:  # its text may hold a secret
        return None
    return key if isinstance(key, str) else None


def no_credential(provider_id: str, model: str) -> LlmError:
    """Return the error for a missing credential."""
    return LlmError(
        f"The host has no credential for '{provider_id}'.",
        next_step="Let key_for give it; an empty text says that none is needed.",
        kind="auth",
        provider=provider_id,
        model=model,
    )
