"""The protocols of model providers."""

from collections.abc import AsyncIterator
from typing import Protocol, TypeAlias, runtime_checkable

from ryecore.frozen import frozen
from ryecore.llm.media import MediaStore
from ryecore.llm.parts import MediaPart
from ryecore.llm.request import Capabilities, LlmRequest
from ryecore.llm.result import LlmResult, Usage
from ryecore.llm.stream import StreamChunk

__all__ = [
    "LlmProvider",
    "MediaJob",
    "MediaOutcome",
    "MediaProvider",
    "MediaRequest",
    "MediaResult",
]


@runtime_checkable
class LlmProvider(Protocol):
    """A provider of models: an adapter over a vendor's SDK, or any other source of answers.

    Any number of concurrent runs share it. It stores no key: each call brings its own. It raises
    failures as an `LlmError` with a kind; any other exception counts as `unknown`. It doesn't
    retry: the fallback chain does.
    """

    @property
    def provider_id(self) -> str:
        """Its name in plans, events and reasoning parts."""
        ...

    def capabilities(self, model: str) -> Capabilities:
        """Return the capabilities of a model."""
        ...

    def stream(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> AsyncIterator[StreamChunk]:
        """Ask a model, and yield its answer as it arrives. The last chunk is a `StreamEnd`.

        Use an async generator, so that closing it early closes the connection at once.

        Args:
            request: The request.
            key: The credential, for this call; empty if none is needed.
            media: The store of the media of the request and the answer.
        """
        ...

    async def generate(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> LlmResult:
        """Ask a model, and return its whole answer; see `stream`.

        Raises:
            LlmError: The model can't answer.
        """
        ...


@frozen
class MediaRequest:
    """A request to a model that makes media at an endpoint of its own.

    Attributes:
        model: The model's name.
        prompt: The description of the media to make.
        media_type: The wanted type, or its family, such as `image/*`.
        count: The number of media, at least 1.
        inputs: Media to start from.
    """

    model: str
    prompt: str
    media_type: str = "image/*"
    count: int = 1
    inputs: tuple[MediaPart, ...] = ()


@frozen
class MediaResult:
    """Media that a model has made.

    Attributes:
        media: Their parts.
        model: The model that made them.
        usage: Its token counts; None if it reported none.
    """

    media: tuple[MediaPart, ...]
    model: str
    usage: Usage | None = None


@frozen
class MediaJob:
    """A job of a provider that makes media in the background.

    Attributes:
        job_id: The provider's id of the job; opaque.
    """

    job_id: str


MediaOutcome: TypeAlias = MediaResult | MediaJob


@runtime_checkable
class MediaProvider(Protocol):
    """The optional media calls of a provider."""

    async def generate_media(
        self, request: MediaRequest, *, key: str, media: MediaStore
    ) -> MediaOutcome:
        """Make and store media, or start a job.

        Raises:
            LlmError: The media can't be made.
        """
        ...

    async def poll_media(self, job_id: str, *, key: str, media: MediaStore) -> MediaOutcome:
        """Check a job: return its media, or the job while it runs.

        Raises:
            LlmError: The job failed, or is unknown.
        """
        ...
