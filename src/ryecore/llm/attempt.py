"""One attempt at one provider, without the decision on what follows."""

from collections.abc import AsyncIterator, Awaitable, Callable
from math import inf
from types import AsyncGeneratorType
from typing import Final, TypeAlias

import anyio
import anyio.lowlevel

from ryecore.errors.agents import LlmError, LlmErrorKind
from ryecore.llm.fallback_rules import AttemptRecord, ChainOptions, fetch_key
from ryecore.llm.media import MediaStore
from ryecore.llm.provider import LlmProvider, MediaOutcome, MediaResult
from ryecore.llm.redaction import clean_error
from ryecore.llm.request import LlmRequest
from ryecore.llm.result import LlmResult, Usage
from ryecore.llm.stream import StreamChunk, StreamFold, parts_bytes
from ryecore.policy.cancelling import is_stray, watched

__all__ = ["AskForMedia", "Attempt", "call_for_media"]

_LAPS: Final = 32
_BURST: Final = 1024  # chunks after which the event loop gets a turn, and a cancellation its chance
_END_S: Final = 1.0  # the time for a provider to end after its last chunk
_CLOSE_S: Final = 5.0  # the time for it to close early


class Attempt:
    """One attempt and its outcome. Any exception of the provider becomes an `LlmError`.

    Its error has no secrets, cause or context.
    """

    __slots__ = ("_fold", "_id", "_provider", "_request", "error", "is_sent", "result")

    def __init__(self, provider: LlmProvider, provider_id: str, request: LlmRequest) -> None:
        self._provider = provider
        self._id = provider_id
        self._request = request
        self._fold: StreamFold | None = None
        self.is_sent = False
        self.result: LlmResult | None = None
        self.error: LlmError | None = None

    @property
    def has_content(self) -> bool:
        """Whether a part of the answer was passed on."""
        return self._fold is not None and self._fold.has_content

    @property
    def text_bytes(self) -> int:
        """The size of the text, reasoning and arguments so far."""
        if self._fold is not None:
            return self._fold.text_bytes
        return 0 if self.result is None else parts_bytes(self.result.parts)

    @property
    def usage(self) -> Usage | None:
        """The usage counted so far; None if the provider counted none."""
        if self.result is not None:
            return self.result.usage
        return None if self._fold is None else self._fold.usage

    def fail(self, kind: LlmErrorKind, message: str, *, code: str = "") -> None:
        """Set the error of the attempt."""
        self.error = LlmError(
            message, kind=kind, provider=self._id, model=self._request.model, code=code
        )

    async def stream(
        self,
        key: str,
        media: MediaStore | None,
        stall_s: float,
        on_chunk: Callable[[StreamChunk], None] | None,
    ) -> None:
        """Request a streamed answer. An exception of `on_chunk` is raised to the caller."""
        fold = self._fold = StreamFold(self._id, self._request.model)
        try:
            chunks = self._provider.stream(self._request, key=key, media=media)
            following = chunks.__anext__
        except Exception as problem:
            self._fail_by(problem, key)
            return
        patience = _Patience(stall_s)
        try:
            with patience.scope:
                reading = self._read(following, fold, on_chunk, key, patience)
                await watched(reading, patience.on_wait)
        finally:
            if not isinstance(chunks, AsyncGeneratorType) or chunks.ag_frame is not None:
                await _close(chunks)
        if fold.end is None:
            if patience.scope.cancel_called:
                self.fail("unavailable", f"{self._id} sent nothing for {stall_s:g} s.")
            elif self.error is None:
                self.fail("unavailable", f"{self._id} cut its answer short.")
            return
        self._settle(fold.result())

    async def _read(
        self,
        following: Callable[[], Awaitable[StreamChunk]],
        fold: StreamFold,
        on_chunk: Callable[[StreamChunk], None] | None,
        key: str,
        patience: "_Patience",
    ) -> None:
        add, left = fold.add, _BURST
        while fold.end is None:
            try:
                chunk = await following()
                add(chunk)
            except StopAsyncIteration:
                return
            except Exception as problem:
                self._fail_by(problem, key)
                return
            except BaseException as problem:
                if not is_stray(problem):
                    raise
                self._fail_by_stray()
                return
            patience.has_news = True
            if on_chunk is not None:
                on_chunk(chunk)
            left -= 1
            if not left:
                left = _BURST
                await anyio.lowlevel.checkpoint()
        # Let the stream end by itself, because only a connection read to its end is used again.
        patience.shorten(_END_S)
        await _let(following)  # the answer is complete, whatever follows it

    async def generate(self, key: str, media: MediaStore | None, stall_s: float) -> None:
        """Request a whole answer."""
        with anyio.CancelScope(deadline=anyio.current_time() + stall_s) as scope:
            try:
                result = await self._provider.generate(self._request, key=key, media=media)
            except Exception as problem:
                self._fail_by(problem, key)
            except BaseException as problem:
                if not is_stray(problem):
                    raise
                self._fail_by_stray()
            else:
                self._settle(result)
                return
        if scope.cancel_called:
            self.fail("unavailable", f"{self._id} did not answer within {stall_s:g} s.")

    def _settle(self, result: LlmResult) -> None:
        self.result = result
        if result.stop_reason == "error":
            self.fail("unavailable", f"{self._id} broke its answer off.")

    def _fail_by(self, problem: Exception, key: str) -> None:
        self.error = clean_error(problem, key, provider=self._id, model=self._request.model)

    def _fail_by_stray(self) -> None:
        self.fail("unavailable", f"{self._id} cancelled its own answer.")


class _Patience:
    """The bound on a stream's silence: a scope whose deadline moves as chunks arrive.

    The clock is read only before a wait, and the deadline moves in laps, so most chunks of a burst
    cost neither.
    """

    __slots__ = ("_clock", "_lap_s", "_move_at", "_within_s", "has_news", "scope")

    def __init__(self, stall_s: float) -> None:
        self.scope = anyio.CancelScope()
        self.has_news = True
        self._clock: Callable[[], float] | None = None
        self._lap_s = stall_s / _LAPS
        self._within_s = stall_s + self._lap_s  # never shorter than the documented time
        self._move_at = -inf

    def on_wait(self) -> None:
        """Restart the time, if a chunk has arrived."""
        if self.has_news:
            self.has_news = False
            clock = self._clock = self._clock or _loop_clock()
            now = clock()
            if now >= self._move_at:
                self.scope.deadline = now + self._within_s
                self._move_at = now + self._lap_s

    def shorten(self, within_s: float) -> None:
        """Shorten the time, from the next wait on."""
        self.has_news = True
        self._within_s = within_s
        self._move_at = -inf


def _loop_clock() -> Callable[[], float]:
    """Return the clock of the event loop's scopes; the loop's own function is the fastest."""
    loop = anyio.lowlevel.current_token().native_token
    clock: Callable[[], float] | None = getattr(loop, "time", None)
    if clock is None:
        from trio import current_time  # noqa: PLC0415 - it is the loop that runs

        return current_time
    return clock


async def _close(chunks: AsyncIterator[StreamChunk]) -> None:
    """Close a stream, even while being cancelled, and wait a bounded time for its end."""
    aclose = getattr(chunks, "aclose", None)
    if aclose is None:
        return
    with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _CLOSE_S):
        await _let(aclose)  # only the answer, or the first error, counts


async def _let(end: Callable[[], Awaitable[object]]) -> None:
    """Await the end of an awaitable, and ignore its exceptions."""
    try:
        await end()
    except Exception:  # noqa: S110 - the answer is complete, or has failed already
        pass
    except BaseException as problem:
        if not is_stray(problem):
            raise


AskForMedia: TypeAlias = Callable[[str], Awaitable[MediaOutcome]]
"""Asks for media with a key."""


async def call_for_media(
    provider_id: str,
    model: str,
    options: ChainOptions,
    ask: AskForMedia,
    *,
    timeout_s: float,
    waited_s: float = 0.0,
) -> MediaOutcome:
    """Ask once for media, and record the outcome. A job that still runs isn't recorded yet.

    `waited_s` is what it has waited for its rate limit.
    """
    began = options.now()
    error: LlmError | None = None
    outcome: MediaOutcome | None = None
    key = await fetch_key(options, provider_id, model)
    if isinstance(key, LlmError):
        error = key
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
    duration_ms = (options.now() - began) * 1000
    _record(options, provider_id, model, duration_ms, waited_s * 1000, outcome, error)
    if outcome is None:
        raise error or RuntimeError("neither media nor an error")
    return outcome


def _record(
    options: ChainOptions,
    provider_id: str,
    model: str,
    duration_ms: float,
    waited_ms: float,
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
            waited_ms=waited_ms,
        )
    )
