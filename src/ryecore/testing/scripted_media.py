"""A model with scripted media, for tests."""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import anyio
import anyio.lowlevel
from attrs import frozen

from ryecore.errors.agents import LlmError
from ryecore.llm.media import MediaStore
from ryecore.llm.provider import MediaJob, MediaOutcome, MediaRequest, MediaResult
from ryecore.llm.request import Capabilities
from ryecore.llm.result import Usage
from ryecore.testing.scripted import EVERYTHING, ScriptedProvider, ScriptItem, fresh_error

__all__ = ["MadeMedia", "MediaItem", "ScriptedMediaProvider", "make"]


@frozen
class MadeMedia:
    """Media that a scripted model makes.

    Attributes:
        contents: Their bytes; none for a call that never ends.
        media_type: The type of all of them.
        polls: How often the job must be looked after until it is done; 0 for no job.
        usage: What is counted.
        error: What the job fails with in the end.
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
        polls: How often the job must be looked after until it is done; 0 for no job.
        usage: What is counted.
        error: What the job fails with in the end.
    """
    return MadeMedia(contents, media_type, polls, usage, error)


class ScriptedMediaProvider(ScriptedProvider):
    """A provider that makes media by a script, one item for each request.

    Args:
        made: What it makes: what `make` gives, and errors.
        script: What it says where it is asked for text; see `ScriptedProvider`.
        provider_id: What the provider is called.
        capabilities: What every one of its models can do; all by default.

    Attributes:
        media_requests: What media it was asked for, in order.
        polls: The jobs that were looked after, in order.
    """

    def __init__(
        self,
        made: Iterable[MediaItem],
        script: Iterable[ScriptItem] = (),
        *,
        provider_id: str = "scripted",
        capabilities: Capabilities = EVERYTHING,
    ) -> None:
        super().__init__(script, provider_id=provider_id, capabilities=capabilities)
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
                next_step="Add some to it, or look why the model is asked once more.",
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
        """Look after a job: it is done when it was looked after often enough.

        Raises:
            LlmError: There is no such job, or it failed.
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
