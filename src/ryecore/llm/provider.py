"""The protocols that a provider of models implements."""

from collections.abc import AsyncIterator
from typing import Protocol, TypeAlias, runtime_checkable

from attrs import frozen

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
    """A provider of models: an adapter over a vendor's SDK, or anything else that can answer.

    It is shared by any number of concurrent runs, and keeps no key: each call brings its own.
    Whatever goes wrong is raised as an `LlmError` that names its kind; what else is raised counts
    as `unknown`. It doesn't retry: the fallback chain does.
    """

    @property
    def provider_id(self) -> str:
        """What plans, events and reasoning parts call it."""
        ...

    def capabilities(self, model: str) -> Capabilities:
        """What a model can do."""
        ...

    def stream(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> AsyncIterator[StreamChunk]:
        """Ask a model, and give its answer as it comes. The last chunk is a `StreamEnd`.

        Best an async generator, so that closing it early closes the connection at once.

        Args:
            request: What is asked.
            key: The credential; empty where none is needed. It is used for this call alone.
            media: Where the request's media are read, and media of the answer are put.
        """
        ...

    async def generate(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> LlmResult:
        """Ask a model, and give its whole answer; see `stream`.

        Raises:
            LlmError: It can't answer.
        """
        ...


@frozen
class MediaRequest:
    """A request to a model that makes media at an endpoint of its own.

    Attributes:
        model: The model's name.
        prompt: What to make.
        media_type: The type that is wanted, or its family, such as `image/*`.
        count: How many, at least 1.
        inputs: Media to start from.
    """

    model: str
    prompt: str
    media_type: str = "image/*"
    count: int = 1
    inputs: tuple[MediaPart, ...] = ()


@frozen
class MediaResult:
    """Media that were made.

    Attributes:
        media: Their parts.
        model: The model that made them.
        usage: What it counted; None where it didn't say, or counts no tokens.
    """

    media: tuple[MediaPart, ...]
    model: str
    usage: Usage | None = None


@frozen
class MediaJob:
    """Media that will take a while.

    Attributes:
        job_id: What the provider calls the job; opaque.
    """

    job_id: str


MediaOutcome: TypeAlias = MediaResult | MediaJob


@runtime_checkable
class MediaProvider(Protocol):
    """The optional media calls of a provider."""

    async def generate_media(
        self, request: MediaRequest, *, key: str, media: MediaStore
    ) -> MediaOutcome:
        """Make media, and put them into the store; or begin a job.

        Raises:
            LlmError: They can't be made.
        """
        ...

    async def poll_media(self, job_id: str, *, key: str, media: MediaStore) -> MediaOutcome:
        """Look after a job: its media, or the job again while it runs.

        Raises:
            LlmError: It failed, or isn't known.
        """
        ...
