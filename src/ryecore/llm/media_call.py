"""One call to make media, or to look after their job: bound to its provider, so never failed over.

Source: docs/design/agent-node.md#media.
"""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import anyio

from ryecore.llm.errors import LlmError, clean_error
from ryecore.llm.options import ChainOptions, fetch_key, no_credential
from ryecore.llm.plan import AttemptRecord
from ryecore.llm.provider import MediaOutcome, MediaResult

__all__ = ["AskForMedia", "call_for_media"]

AskForMedia: TypeAlias = Callable[[str], Awaitable[MediaOutcome]]
"""Asks with a key."""


async def call_for_media(
    provider_id: str, model: str, options: ChainOptions, ask: AskForMedia, *, timeout_s: float
) -> MediaOutcome:
    """Ask once, and record what it came to. A job that still runs is no record yet.

    Args:
        provider_id: The provider's id.
        model: The model's name.
        options: Whence the key comes, and who is told of the record.
        ask: Asks with a key.
        timeout_s: How long that may take, in seconds.

    Returns:
        The media, or a job.

    Raises:
        LlmError: They can't be made; without the key, and without what was raised.
    """
    began = options.now()
    error: LlmError | None = None
    outcome: MediaOutcome | None = None
    key = await fetch_key(options, provider_id)
    if key is None:
        error = no_credential(provider_id, model)
    else:
        with anyio.move_on_after(timeout_s):
            try:
                outcome = await ask(key)
            except Exception as problem:
                error = clean_error(problem, key, provider=provider_id, model=model)
        if outcome is None and error is None:
            error = LlmError(
                f"{provider_id} made nothing within {timeout_s:g} s.",
                kind="unavailable",
                provider=provider_id,
                model=model,
            )
    _record(options, provider_id, model, (options.now() - began) * 1000, outcome, error)
    if outcome is None:
        raise error or RuntimeError("neither media nor an error")
    return outcome


def _record(
    options: ChainOptions,
    provider_id: str,
    model: str,
    duration_ms: float,
    outcome: MediaOutcome | None,
    error: LlmError | None,
) -> None:
    if options.on_attempt is None or not (error or isinstance(outcome, MediaResult)):
        return
    made = outcome if isinstance(outcome, MediaResult) else None
    options.on_attempt(
        AttemptRecord(
            0,
            provider_id,
            model,
            1,
            "error" if error else "success",
            error.kind if error else None,
            error.message if error else "",
            made.usage if made else None,
            duration_ms=duration_ms,
            media=tuple(part.media_type for part in made.media) if made else (),
        )
    )
