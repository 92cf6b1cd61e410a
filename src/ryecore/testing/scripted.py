"""Models with scripted answers and media, for tests."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias, TypedDict, Unpack

import anyio
import anyio.lowlevel

from ryecore.errors.agents import LlmError
from ryecore.frozen import frozen
from ryecore.llm.media import MediaStore
from ryecore.llm.provider import MediaJob, MediaOutcome, MediaRequest, MediaResult
from ryecore.llm.request import Capabilities, LlmRequest
from ryecore.llm.result import LlmResult, Usage
from ryecore.llm.stream import StreamChunk, StreamEnd, StreamFold, ToolCallStart
from ryecore.testing.turns import PreparedTurn, Turn, TurnEnding, say

__all__ = [
    "EVERYTHING",
    "FunctionProvider",
    "MadeMedia",
    "MediaItem",
    "ModelFunction",
    "ProviderOptions",
    "ScriptItem",
    "ScriptedMediaProvider",
    "ScriptedProvider",
    "Spoken",
    "fresh_error",
    "make",
]

Spoken: TypeAlias = Turn | str | LlmError
"""An answer of a fake model: a turn, a text, or an error that is raised."""

ModelFunction: TypeAlias = Callable[[LlmRequest], Spoken | Awaitable[Spoken]]
"""A function, async or not, that answers a request."""

ScriptItem: TypeAlias = Spoken | ModelFunction

_SPOKEN: Final = (Turn, str, LlmError)
EVERYTHING: Final = Capabilities(reasoning=True, input_media=frozenset({"*/*"}))
"""The capabilities of a fake model unless a test says otherwise."""


class ProviderOptions(TypedDict, total=False):
    """The options of a fake provider; see `FunctionProvider`."""

    provider_id: str
    capabilities: Capabilities
    usage: Usage | None
    chunk_chars: int
    checkpoints: bool


class FunctionProvider:
    """A provider that is a function of the request, and returns a text, a turn or an error.

    Args:
        function: The function, async or not. What it raises, the provider raises.
        provider_id: The provider's id.
        capabilities: The capabilities of all its models; all by default.
        usage: The usage of turns without one of their own; None for none.
        chunk_chars: The greatest length of a streamed piece of text, in characters.
        checkpoints: Whether each chunk waits for the event loop once, and so is a point where a
            cancel may arrive.

    Attributes:
        requests: The requests, in order, without keys.
        open_streams: The number of answers under way.
        closed: The number of answers that were closed before their end.

    Raises:
        ValueError: `chunk_chars` is less than 1.
    """

    def __init__(
        self,
        function: ModelFunction,
        *,
        provider_id: str = "function",
        capabilities: Capabilities = EVERYTHING,
        usage: Usage | None = None,
        chunk_chars: int = 16,
        checkpoints: bool = False,
    ) -> None:
        if chunk_chars < 1:
            raise ValueError(f"chunk_chars is {chunk_chars}, and must be at least 1.")
        self._function = function
        self._provider_id = provider_id
        self._capabilities = capabilities
        self._usage = usage
        self._chunk_chars = chunk_chars
        self._checkpoints = checkpoints
        self._calls = 0
        self.requests: list[LlmRequest] = []
        self.open_streams = 0
        self.closed = 0

    def __repr__(self) -> str:
        asked = len(self.requests)
        word = "request" if asked == 1 else "requests"
        return f"<{type(self).__name__} {self._provider_id!r}: {asked} {word}>"

    @property
    def provider_id(self) -> str:
        """Its name in plans, events and reasoning parts."""
        return self._provider_id

    def capabilities(self, model: str) -> Capabilities:
        """Return the capabilities that the constructor got, whatever the model."""
        return self._capabilities

    async def stream(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> AsyncIterator[StreamChunk]:
        """Answer in chunks."""
        self.requests.append(request)
        self.open_streams += 1
        through = False
        try:
            chunks, end, ending = await self._answer(request)
            if self._checkpoints:
                for chunk in chunks:
                    await anyio.lowlevel.checkpoint()
                    yield chunk
            else:
                for chunk in chunks:
                    yield chunk
            if end is not None:
                yield end
            if ending == "hang":
                await anyio.sleep_forever()
            through = True
            if isinstance(ending, LlmError):
                raise fresh_error(ending, self._provider_id, request.model)
        except Exception:
            through = True
            raise
        finally:
            self.open_streams -= 1
            self.closed += not through

    async def generate(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> LlmResult:
        """Answer as a whole.

        Raises:
            LlmError: The turn says so, or was cut.
        """
        fold = StreamFold(self._provider_id, request.model)
        async for chunk in self.stream(request, key=key, media=media):
            fold.add(chunk)
        if fold.end is None:
            raise LlmError(
                "The connection was closed before the answer was whole.",
                kind="unavailable",
                provider=self._provider_id,
                model=request.model,
            )
        return fold.result()

    async def _answer(
        self, request: LlmRequest
    ) -> tuple[Sequence[StreamChunk], StreamEnd | None, TurnEnding]:
        said = self._function(request)
        spoken = said if isinstance(said, _SPOKEN) else await said
        if isinstance(spoken, LlmError):
            return (), None, spoken
        turn = say(spoken) if isinstance(spoken, str) else spoken
        prepared = turn.prepared(self._chunk_chars)
        end = prepared.end
        if end is not None and end.usage is None and self._usage is not None:
            end = StreamEnd(end.stop_reason, self._usage)
        return self._named(prepared) if prepared.nameless else prepared.chunks, end, turn.ending

    def _named(self, prepared: PreparedTurn) -> list[StreamChunk]:
        """Return the chunks, with an id for each call that has none."""
        chunks = [*prepared.chunks]
        for at in prepared.nameless:
            start = chunks[at]
            if isinstance(start, ToolCallStart):
                self._calls += 1
                chunks[at] = ToolCallStart(start.index, f"call_{self._calls}", start.name)
        return chunks


class ScriptedProvider(FunctionProvider):
    """A provider that answers its requests by a script, one turn after the other.

    Args:
        script: The turns: texts, turns of `say`, `call`, `think` and others, errors, and functions
            of the request that return one of these. It may be endless.
        **options: The options of `FunctionProvider`, whose attributes it has as well.
    """

    def __init__(
        self,
        script: Iterable[ScriptItem],
        **options: Unpack[ProviderOptions],
    ) -> None:
        options.setdefault("provider_id", "scripted")
        super().__init__(self._next, **options)
        self._script: Iterator[ScriptItem] = iter((script,) if isinstance(script, str) else script)

    def _next(self, request: LlmRequest) -> Spoken | Awaitable[Spoken]:
        item = next(self._script, None)
        if item is None:
            return LlmError(
                f"The script of {self._provider_id!r} has no turn left for "
                f"request {len(self.requests)}.",
                next_step="Add a turn to it, or find out why the model is asked once more.",
                kind="bad_request",
            )
        return item(request) if callable(item) else item


def fresh_error(error: LlmError, provider: str, model: str) -> LlmError:
    """Return the same error anew: raised twice, one would carry its first traceback."""
    facts = {name: fact for name, fact in error.facts.items() if fact is not None}
    return LlmError(
        error.message,
        next_step=error.next_step,
        **({"provider": provider, "model": model} | facts),
    )


@frozen
class MadeMedia:
    """Media that a scripted model makes.

    Attributes:
        contents: Their bytes; none for a call that never ends.
        media_type: The type of all of them.
        polls: The number of polls until the job is done; 0 for no job.
        usage: The usage.
        error: The error with which the job fails in the end.
    """

    contents: tuple[bytes, ...]
    media_type: str = "image/png"
    polls: int = 0
    usage: Usage | None = None
    error: LlmError | None = None


MediaItem: TypeAlias = MadeMedia | LlmError


def make(
    *contents: bytes,
    media_type: str = "image/png",
    polls: int = 0,
    usage: Usage | None = None,
    error: LlmError | None = None,
) -> MadeMedia:
    """Make media, at once or as a job. Without any content the call hangs.

    Args:
        *contents: The bytes of each.
        media_type: The type of all of them.
        polls: The number of polls until the job is done; 0 for no job.
        usage: The usage.
        error: The error with which the job fails in the end.
    """
    return MadeMedia(contents, media_type, polls, usage, error)


class ScriptedMediaProvider(ScriptedProvider):
    """A provider that makes media by a script, one item for each request.

    Args:
        made: The media, made by `make`, and errors.
        script: Its answers to requests for text; see `ScriptedProvider`.
        **options: The options of `FunctionProvider`.

    Attributes:
        media_requests: The requests for media, in order.
        polls: The polled jobs, in order.
    """

    def __init__(
        self,
        made: Iterable[MediaItem],
        script: Iterable[ScriptItem] = (),
        **options: Unpack[ProviderOptions],
    ) -> None:
        super().__init__(script, **options)
        self._made: Iterator[MediaItem] = iter(made)
        self._jobs: dict[str, tuple[MadeMedia, MediaRequest, int]] = {}
        self.media_requests: list[MediaRequest] = []
        self.polls: list[str] = []

    async def generate_media(
        self, request: MediaRequest, *, key: str, media: MediaStore
    ) -> MediaOutcome:
        """Make the script's next media, or begin their job.

        Raises:
            LlmError: The script says so, or has ended.
        """
        await anyio.lowlevel.checkpoint()
        self.media_requests.append(request)
        item = next(self._made, None)
        if item is None:
            item = LlmError(
                f"The script of {self.provider_id!r} has no media left.",
                next_step="Add some to it, or find out why the model is asked once more.",
                kind="bad_request",
            )
        if isinstance(item, LlmError):
            raise fresh_error(item, self.provider_id, request.model)
        if item.polls > 0:
            job_id = f"job_{len(self._jobs) + 1}"
            self._jobs[job_id] = (item, request, item.polls)
            return MediaJob(job_id)
        if not item.contents and item.error is None:
            await anyio.sleep_forever()
        return self._done(item, request, media)

    async def poll_media(self, job_id: str, *, key: str, media: MediaStore) -> MediaOutcome:
        """Poll a job: it is done after as many polls as the script says.

        Raises:
            LlmError: The job is unknown, or failed.
        """
        await anyio.lowlevel.checkpoint()
        self.polls.append(job_id)
        if job_id not in self._jobs:
            raise LlmError(
                f"{self.provider_id} knows no job {job_id!r}.",
                kind="bad_request",
                provider=self.provider_id,
            )
        item, request, left = self._jobs[job_id]
        self._jobs[job_id] = (item, request, left - 1)
        return MediaJob(job_id) if left > 1 else self._done(item, request, media)

    def _done(self, item: MadeMedia, request: MediaRequest, media: MediaStore) -> MediaResult:
        if item.error is not None:
            raise fresh_error(item.error, self.provider_id, request.model)
        parts = tuple(media.put(content, item.media_type) for content in item.contents)
        return MediaResult(parts, request.model, item.usage)
