"""One try at one provider: the asking, without any decision on what follows."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import suppress
from types import AsyncGeneratorType, coroutine
from typing import Final

import anyio

from ryecore.llm.chunks import StreamChunk
from ryecore.llm.errors import LlmError, LlmErrorKind, clean_error
from ryecore.llm.fold import StreamFold
from ryecore.llm.media import MediaStore
from ryecore.llm.provider import LlmProvider
from ryecore.llm.request import LlmRequest
from ryecore.llm.result import LlmResult, Usage

__all__ = ["Attempt"]

_LAPS: Final = 32
_END_S: Final = 1.0  # for what a provider does after its last chunk
_CLOSE_S: Final = 5.0  # for what it does when it is closed early


class Attempt:
    """One try, and what came of it. Whatever the provider raises becomes an `LlmError`.

    Args:
        provider: The provider.
        provider_id: Its id.
        request: What is asked.

    Attributes:
        result: The answer, where there is one.
        error: How it failed, where it did: without secrets, cause and context.
    """

    __slots__ = ("_fold", "_id", "_provider", "_request", "error", "result")

    def __init__(self, provider: LlmProvider, provider_id: str, request: LlmRequest) -> None:
        self._provider = provider
        self._id = provider_id
        self._request = request
        self._fold: StreamFold | None = None
        self.result: LlmResult | None = None
        self.error: LlmError | None = None

    @property
    def has_content(self) -> bool:
        """Whether a part of the answer was given out."""
        return self._fold is not None and self._fold.has_content

    @property
    def text_bytes(self) -> int:
        """How much was given out."""
        return 0 if self._fold is None else self._fold.text_bytes

    @property
    def usage(self) -> Usage | None:
        """What was counted so far."""
        if self.result is not None:
            return self.result.usage
        return None if self._fold is None else self._fold.usage

    def fail(self, kind: LlmErrorKind, message: str, *, code: str = "") -> None:
        """Say how it failed."""
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
        """Ask for an answer as it comes. What `on_chunk` raises is raised."""
        fold = self._fold = StreamFold(self._id, self._request.model)
        try:
            chunks = self._provider.stream(self._request, key=key, media=media)
            following = chunks.__anext__
        except Exception as problem:
            self._fail_by(problem, key)
            return
        clock = _loop_clock()
        lap_s = stall_s / _LAPS
        patience_s = stall_s + lap_s  # never shorter than what was promised
        move_at = (now := clock()) + lap_s
        add = fold.add
        try:
            with anyio.CancelScope(deadline=now + patience_s) as scope:
                while True:
                    try:
                        chunk = await following()
                        add(chunk)
                    except StopAsyncIteration:
                        break
                    except Exception as problem:
                        self._fail_by(problem, key)
                        break
                    if on_chunk is not None:
                        on_chunk(chunk)
                    if fold.end is not None:
                        await _let_end(following(), scope, clock)
                        break
                    if (now := clock()) >= move_at:
                        scope.deadline = now + patience_s
                        move_at = now + lap_s
        finally:
            if not isinstance(chunks, AsyncGeneratorType) or chunks.ag_frame is not None:
                await _close(chunks)
        if fold.end is None:
            if scope.cancel_called:
                self.fail("unavailable", f"{self._id} sent nothing for {stall_s:g} s.")
            elif self.error is None:
                self.fail("unavailable", f"{self._id} cut its answer short.")
            return
        self._settle(fold.result())

    async def generate(self, key: str, media: MediaStore | None, stall_s: float) -> None:
        """Ask for a whole answer."""
        with anyio.CancelScope(deadline=anyio.current_time() + stall_s) as scope:
            try:
                result = await self._provider.generate(self._request, key=key, media=media)
            except Exception as problem:
                self._fail_by(problem, key)
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


def _loop_clock() -> Callable[[], float]:
    """The clock of the event loop, as its scopes count; this is the fastest way to it."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None:
        try:
            task = asyncio.current_task()
        except RuntimeError:  # it is imported, and doesn't run
            task = None
        if task is not None:
            clock: Callable[[], float] = task.get_loop().time
            return clock
    from trio import current_time  # noqa: PLC0415 - it is the loop that runs

    return current_time


async def _let_end(
    step: Awaitable[object], scope: anyio.CancelScope, clock: Callable[[], float]
) -> None:
    """Let a stream end by itself, because a connection that was read to its end is used again.

    Most end without waiting, and cost no timer; the others may wait a bounded time.
    """
    begun = step.__await__()
    try:
        waits_for = begun.send(None)
    except Exception:  # its end; and the answer is there, whatever else comes after it
        return
    scope.deadline = clock() + _END_S  # the stream may stand in scopes of its own by now
    with suppress(Exception):
        await _resumed(begun, waits_for)


@coroutine
def _resumed(
    begun: Generator[object, object, object], waits_for: object
) -> Generator[object, object, None]:
    """Go on with what has begun and had to wait."""
    with suppress(StopIteration):
        while True:
            try:
                answer = yield waits_for
            except BaseException as problem:
                waits_for = begun.throw(problem)
            else:
                waits_for = begun.send(answer)


async def _close(chunks: AsyncIterator[StreamChunk]) -> None:
    """Close a stream, also while being cancelled, and wait for that a bounded time."""
    aclose = getattr(chunks, "aclose", None)
    if aclose is None:
        return
    with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _CLOSE_S):
        with suppress(Exception):  # the answer, or the first error, counts
            await aclose()
