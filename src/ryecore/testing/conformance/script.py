"""The script of a server's answers, and the requests that it saw, independent of vendors."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, TypeAlias

from attrs import field

from ryecore.frozen import frozen
from ryecore.llm import (
    CacheLifetime,
    Message,
    Part,
    ReasoningPart,
    StopReason,
    TextPart,
    ToolCallPart,
    ToolSpec,
    Usage,
)

__all__ = [
    "Failure",
    "Feature",
    "HttpResponse",
    "MadeMedia",
    "RawRequest",
    "Script",
    "ScriptPart",
    "SeenRequest",
    "Wire",
]

_USAGE: Final = Usage(10, 5)

Feature: TypeAlias = Literal[
    "cache_lifetime",
    "cache_read",
    "cache_write",
    "cache_write_1h",
    "content_filter",
    "documents",
    "error_results",
    "images",
    "media_output",
    "no_usage",
    "parallel_tools",
    "raw_arguments",
    "reasoning",
    "reasoning_effort",
    "reasoning_return",
    "reasoning_usage",
    "response_format",
    "result_media",
    "stop",
    "stream_errors",
    "temperature",
    "tool_choice",
    "tools",
]
"""The features that a vendor may lack:

- `cache_read`, `cache_write`, `cache_write_1h`, `reasoning_usage`: counts of its own for these
  tokens.
- `cache_lifetime`: the time for which the vendor keeps a conversation is requested.
- `no_usage`: an answer without any counts is possible on this wire.
- `content_filter`: a stop reason for an answer that a filter ended.
- `documents`, `images`: PDF and PNG as input; `result_media`: images in the results of tools.
- `media_output`: images within an answer.
- `error_results`: a mark on the results of tools that failed.
- `parallel_tools`: several calls in one answer.
- `raw_arguments`: arguments are sent as text, which may not be JSON.
- `reasoning`: the answer shows reasoning; `reasoning_return`: it can be sent back;
  `reasoning_effort`: the effort can be requested.
- `stream_errors`: an error can come within a stream that began well.
- `tools`: tools at all; a vendor without them needs no other feature of calls.
- `response_format`, `stop`, `temperature`, `tool_choice`: the settings of a request.
"""

Failure: TypeAlias = Literal[
    "bad_key",
    "forbidden",
    "unknown_model",
    "bad_request",
    "context_too_long",
    "too_large",
    "rate_limit",
    "server_error",
    "unavailable",
    "overloaded",
]
"""How a vendor's server refuses a request."""


@frozen
class MadeMedia:
    """A medium that the model makes.

    Attributes:
        content: Its bytes.
        media_type: Its type, such as `image/png`.
    """

    content: bytes
    media_type: str


ScriptPart: TypeAlias = TextPart | ReasoningPart | ToolCallPart | MadeMedia


@frozen
class Script:
    """The scripted answer of the model behind a wire.

    Attributes:
        parts: The parts of the answer, in order. The origin of reasoning parts is empty.
        stop_reason: Why the model stops.
        usage: The usage, in disjoint counts, which the wire writes as its vendor counts. None for a
            server that counts nothing.
        model: The model that answers.
        deltas: The number of pieces in which a stream sends each text, at least 1.
    """

    parts: tuple[ScriptPart, ...]
    stop_reason: StopReason = "stop"
    usage: Usage | None = _USAGE
    model: str = "answering-model"
    deltas: int = 1

    def pieces(self, text: str) -> tuple[str, ...]:
        """Return a text of the script in its pieces; none of them is empty."""
        size = max(1, -(-len(text) // self.deltas))
        return tuple(text[at : at + size] for at in range(0, len(text), size))


@frozen
class RawRequest:
    """One HTTP request, as it was received.

    Attributes:
        method: The method, such as `POST`.
        path: The path with its query.
        headers: The headers, by lower-case name.
        body: The content.
    """

    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


@frozen
class SeenRequest:
    """A request, read back from the vendor's format.

    Attributes:
        model: The requested model.
        key: The credential, wherever the vendor sends it; empty for none.
        streaming: Whether a stream was requested; None for a vendor that always streams.
        system: The system text.
        messages: The conversation. Media parts have the handle of their content, and no name.
        tools: The tools.
        tool_choice: The choice of tools, if it was sent.
        max_output_tokens: The bound, if it was sent.
        temperature: The temperature, if it was sent.
        response_schema: The schema of the answer, if it was sent.
        thinks: Whether reasoning was requested, if that was sent.
        stop: The texts that end the answer.
        cache: The time for which the vendor shall keep the conversation, if that was sent.
    """

    model: str
    key: str = field(repr=False)
    streaming: bool | None
    system: str = ""
    messages: tuple[Message, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    response_schema: Mapping[str, Any] | None = None
    thinks: bool | None = None
    stop: tuple[str, ...] = ()
    cache: CacheLifetime | None = None

    @property
    def flat(self) -> tuple[tuple[str, Part], ...]:
        """Every part with its role: vendors merge messages in different ways."""
        return tuple((one.role, part) for one in self.messages for part in one.parts)


@frozen
class HttpResponse:
    """One HTTP response.

    Attributes:
        body: The content in pieces, each sent on its own.
        status: The HTTP status.
        headers: More headers.
        media_type: Its Content-Type.
        stop_at: The number of bytes of the body after which it stops; -1 for before the headers;
            None for never.
        then: What happens there: the connection breaks, the body ends as if it were complete, or
            nothing more is sent until the client closes the connection.
    """

    body: tuple[bytes, ...] = ()
    status: int = 200
    headers: Mapping[str, str] = field(factory=dict[str, str])
    media_type: str = "application/json"
    stop_at: int | None = None
    then: Literal["break", "end", "hang"] = "break"


class Wire(ABC):
    """One vendor's wire format, written from its documentation and not from the adapter.

    Attributes:
        lacks: The features that the vendor lacks. The cases that need them are skipped.
        environment: Variables of the vendor's SDK that must not leak in, with values that would
            break a call.
        stream_media_type: The Content-Type of a stream.
    """

    lacks: ClassVar[frozenset[Feature]] = frozenset()
    environment: ClassVar[Mapping[str, str]] = {}
    stream_media_type: ClassVar[str] = "text/event-stream"

    @abstractmethod
    def read_request(self, raw: RawRequest) -> SeenRequest:
        """Read a request. An exception fails the case."""

    @abstractmethod
    def stream(self, script: Script) -> Sequence[bytes]:
        """Return a script as a stream, one piece an event."""

    @abstractmethod
    def whole(self, script: Script) -> bytes:
        """Return a script as a whole answer."""

    @abstractmethod
    def error(self, failure: Failure, message: str) -> HttpResponse:
        """Return the vendor's refusal, with the message in its body."""

    def stream_error(self, message: str) -> bytes:
        """Return the event of a stream that breaks off because the server is overloaded."""
        raise NotImplementedError

    def reasoning(self) -> tuple[ScriptPart, ...]:
        """Return an answer with reasoning and one call, as this vendor orders and signs them."""
        raise NotImplementedError
