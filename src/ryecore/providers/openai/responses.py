"""The Responses API, OpenAI's own."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal

from attrs import frozen

from ryecore.llm import (
    Capabilities,
    LlmRequest,
    MediaPart,
    ReasoningDelta,
    ReasoningPart,
    ResponseFormat,
    StopReason,
    StreamChunk,
    StreamEnd,
    TextDelta,
    TextPart,
    ToolCallDelta,
    ToolCallPart,
    ToolCallStart,
    ToolResultPart,
    Usage,
)
from ryecore.providers.openai.content import (
    Contents,
    Json,
    arguments_text,
    data_url,
    file_name,
    fits_strict,
    listed,
    mapped,
    number,
    system_text,
    text_of,
    tool_schema,
)
from ryecore.providers.openai.failures import BrokenAnswer, told_failure
from ryecore.providers.openai.models import effort_word, takes_temperature
from ryecore.providers.portable_calls import portable_id, portable_name

__all__ = ["ResponsesApi", "ResponsesReader"]


@frozen
class ResponsesApi:
    """How responses are asked for. Nothing is stored at the vendor's.

    Attributes:
        reasoning_summary: How much of its reasoning the model shows; None for nothing.
    """

    reasoning_summary: Literal["auto", "concise", "detailed"] | None = None
    path: str = "/responses"

    def body(
        self,
        request: LlmRequest,
        contents: Contents,
        origin: str,
        can: Capabilities,
        *,
        stream: bool,
    ) -> dict[str, Any]:
        """The request's body; see `ChatApi.body`."""
        body: dict[str, Any] = {
            "model": request.model,
            "input": [*_input(request, contents, origin)],
            "store": False,
        }
        if system := system_text(request, can):
            body["instructions"] = system
        if request.tools:
            body["tools"] = [{"type": "function", **tool_schema(tool)} for tool in request.tools]
            if request.tool_choice != "auto":
                body["tool_choice"] = request.tool_choice
        if request.max_output_tokens is not None:
            body["max_output_tokens"] = request.max_output_tokens
        if request.temperature is not None and takes_temperature(request.model):
            body["temperature"] = request.temperature
        if request.response_format is not None:
            body["text"] = {"format": _format(request.response_format, can)}
        if can.reasoning:
            body["include"] = ["reasoning.encrypted_content"]
            reasoning: dict[str, str] = {}
            if request.reasoning is not None:
                reasoning["effort"] = effort_word(request.model, request.reasoning)
            if self.reasoning_summary is not None and request.reasoning != "none":
                reasoning["summary"] = self.reasoning_summary
            if reasoning:
                body["reasoning"] = reasoning
        if stream:
            body["stream"] = True
        return body

    def reader(self) -> "ResponsesReader":
        """What reads one answer."""
        return ResponsesReader()


_FAILED: Final = ("failed", "cancelled")


class ResponsesReader:
    """Reads one answer, streamed or whole, without any I/O."""

    __slots__ = ("_calls", "_end", "_refused", "_said", "finished")

    def __init__(self) -> None:
        self._calls: set[int] = set()
        self._end: StreamEnd | None = None
        self._refused = False
        self._said: set[int] = set()
        self.finished = False

    def read(self, event: object) -> list[StreamChunk]:
        """What one event of the stream says.

        Raises:
            LlmError: It is an error.
        """
        data = mapped(event)
        out: list[StreamChunk] = []
        act = _ACTS.get(text_of(data.get("type")))
        if act is not None:
            act(self, data, out)
        elif data.get("error"):
            raise told_failure(data)
        return out

    def end(self, *, said_done: bool) -> list[StreamChunk]:
        """What the end of the stream says: nothing that its last event hadn't.

        Raises:
            BrokenAnswer: The stream was cut.
        """
        if self._end is None:
            raise BrokenAnswer("The stream was cut before the answer was whole.")
        return [self._end]

    def whole(self, answer: object) -> list[StreamChunk]:
        """What a whole answer says.

        Raises:
            LlmError: It is an error.
            BrokenAnswer: It is no answer.
        """
        data = mapped(answer)
        out: list[StreamChunk] = []
        for at, item in enumerate(listed(data.get("output"))):
            self._item(at, mapped(item), out)
        if data.get("status") in _FAILED or data.get("error"):
            raise told_failure(data.get("error"))
        if "output" not in data or data.get("status") not in ("completed", "incomplete"):
            raise BrokenAnswer("The answer isn't what the Responses API promises.")
        self._finish(data)
        return out + self.end(said_done=True)

    def _text(self, data: Json, out: list[StreamChunk]) -> None:
        self._said.add(number(data.get("output_index")))
        out.append(TextDelta(text_of(data.get("delta"))))

    def _refusal(self, data: Json, out: list[StreamChunk]) -> None:
        self._refused = True
        self._text(data, out)

    def _thought(self, data: Json, out: list[StreamChunk]) -> None:
        self._said.add(number(data.get("output_index")))
        out.append(ReasoningDelta(text_of(data.get("delta"))))

    def _next_summary(self, data: Json, out: list[StreamChunk]) -> None:
        if number(data.get("summary_index")):
            out.append(ReasoningDelta("\n\n"))

    def _arguments(self, data: Json, out: list[StreamChunk]) -> None:
        at = number(data.get("output_index"))
        # Of a call that hasn't begun, the whole item will bring the arguments.
        if at in self._calls:
            self._said.add(at)
            out.append(ToolCallDelta(at, text_of(data.get("delta"))))

    def _added(self, data: Json, out: list[StreamChunk]) -> None:
        item = mapped(data.get("item"))
        if item.get("type") == "function_call":
            self._start(number(data.get("output_index")), item, out)

    def _done(self, data: Json, out: list[StreamChunk]) -> None:
        self._item(number(data.get("output_index")), mapped(data.get("item")), out)

    def _start(self, at: int, item: Json, out: list[StreamChunk]) -> None:
        self._calls.add(at)
        out.append(ToolCallStart(at, text_of(item.get("call_id")), text_of(item.get("name"))))

    def _item(self, at: int, item: Json, out: list[StreamChunk]) -> None:
        """A whole item: what of it wasn't streamed, and what ends it."""
        kind, new = item.get("type"), at not in self._said
        self._said.add(at)
        if kind == "message" and new:
            for part in map(mapped, listed(item.get("content"))):
                self._refused = self._refused or "refusal" in part
                out.append(TextDelta(text_of(part.get("text")) or text_of(part.get("refusal"))))
        elif kind == "function_call" and new:
            self._start(at, item, out)
            out.append(ToolCallDelta(at, text_of(item.get("arguments"))))
        elif kind == "reasoning":
            if new:
                out.append(ReasoningDelta(_thoughts(item)))
            if sealed := text_of(item.get("encrypted_content")):
                kept = {"id": text_of(item.get("id")), "encrypted_content": sealed}
                out.append(ReasoningDelta("", json.dumps(kept)))

    def _completed(self, data: Json, out: list[StreamChunk]) -> None:
        response = mapped(data.get("response"))
        if response.get("status") in _FAILED:
            raise told_failure(response.get("error"))
        if not response:
            raise BrokenAnswer("The answer's end says nothing of the answer.")
        if not self._said:  # there are servers that stream nothing else
            for at, item in enumerate(listed(response.get("output"))):
                self._item(at, mapped(item), out)
        self._finish(response)

    def _failed(self, data: Json, out: list[StreamChunk]) -> None:
        raise told_failure(mapped(data.get("response")).get("error"))

    def _error(self, data: Json, out: list[StreamChunk]) -> None:
        raise told_failure(data)

    def _finish(self, response: Json) -> None:
        reason = mapped(response.get("incomplete_details")).get("reason")
        stop: StopReason = "tool_use" if self._calls else "stop"
        if response.get("status") == "incomplete":
            stop = "content_filter" if reason == "content_filter" else "length"
        elif self._refused:
            stop = "content_filter"
        usage = _usage(mapped(response.get("usage")))
        self._end = StreamEnd(stop, usage, text_of(response.get("model")))
        self.finished = True


_ACTS: Final[dict[str, Callable[[ResponsesReader, Json, list[StreamChunk]], None]]] = {
    "response.output_text.delta": ResponsesReader._text,
    "response.refusal.delta": ResponsesReader._refusal,
    "response.reasoning_summary_text.delta": ResponsesReader._thought,
    "response.reasoning_text.delta": ResponsesReader._thought,
    "response.reasoning_summary_part.added": ResponsesReader._next_summary,
    "response.function_call_arguments.delta": ResponsesReader._arguments,
    "response.output_item.added": ResponsesReader._added,
    "response.output_item.done": ResponsesReader._done,
    "response.completed": ResponsesReader._completed,
    "response.incomplete": ResponsesReader._completed,
    "response.failed": ResponsesReader._failed,
    "error": ResponsesReader._error,
}


def _thoughts(item: Json) -> str:
    texts = [mapped(part).get("text") for part in listed(item.get("summary"))]
    texts += [mapped(part).get("text") for part in listed(item.get("content"))]
    return "\n\n".join(text_of(text) for text in texts)


def _usage(told: Json) -> Usage | None:
    """Disjoint counts: cached tokens are in `input_tokens`, reasoning in `output_tokens`."""
    if "input_tokens" not in told and "output_tokens" not in told:
        return None
    details = mapped(told.get("input_tokens_details"))
    cached, stored = number(details.get("cached_tokens")), number(details.get("cache_write_tokens"))
    thought = number(mapped(told.get("output_tokens_details")).get("reasoning_tokens"))
    read, written = number(told.get("input_tokens")), number(told.get("output_tokens"))
    return Usage(max(0, read - cached - stored), max(0, written - thought), cached, stored, thought)


def _format(wanted: ResponseFormat, can: Capabilities) -> dict[str, Any]:
    if not can.response_format:
        return {"type": "json_object"}
    schema = dict(wanted.schema)
    strict = fits_strict(schema)
    return {"type": "json_schema", "name": wanted.name, "schema": schema, "strict": strict}


def _input(request: LlmRequest, contents: Contents, origin: str) -> Iterator[dict[str, Any]]:
    tools = {tool.name for tool in request.tools}
    for message in request.messages:
        if message.role == "user":
            yield _user(message.parts, contents)
            continue
        for part in message.parts:
            if isinstance(part, TextPart):
                yield {"role": "assistant", "content": part.text}
            elif isinstance(part, MediaPart):
                yield _user((part,), contents)
            elif isinstance(part, ToolCallPart):
                yield {
                    "type": "function_call",
                    "call_id": portable_id(part.call_id),
                    "name": portable_name(part.name, tools),
                    "arguments": arguments_text(part.arguments_json),
                }
            elif isinstance(part, ToolResultPart):
                yield {
                    "type": "function_call_output",
                    "call_id": portable_id(part.call_id),
                    "output": _output(part, contents),
                }
            elif part.origin == origin and (item := _reasoning(part)) is not None:
                yield item


def _user(parts: Sequence[object], contents: Contents) -> dict[str, Any]:
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return {"role": "user", "content": parts[0].text}
    return {"role": "user", "content": _content(parts, contents)}


def _content(parts: Sequence[object], contents: Contents) -> list[dict[str, Any]]:
    return [
        {"type": "input_text", "text": part.text}
        if isinstance(part, TextPart)
        else _medium(part, contents)
        for part in parts
        if isinstance(part, TextPart | MediaPart)
    ]


def _medium(part: MediaPart, contents: Contents) -> dict[str, Any]:
    url = data_url(part, contents)
    if part.media_type.startswith("image/"):
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    return {"type": "input_file", "filename": file_name(part), "file_data": url}


def _output(part: ToolResultPart, contents: Contents) -> str | list[dict[str, Any]]:
    if any(isinstance(one, MediaPart) for one in part.content):
        return _content(part.content, contents)
    return part.text


def _reasoning(part: ReasoningPart) -> dict[str, Any] | None:
    """A reasoning item as it goes back; None where its sealed content didn't come."""
    try:
        kept = mapped(json.loads(part.opaque or "null"))
    except ValueError:
        return None
    if not kept.get("encrypted_content"):
        return None
    summary = [{"type": "summary_text", "text": part.text}] if part.text else []
    return {
        "type": "reasoning",
        "id": kept.get("id", ""),
        "summary": summary,
        "encrypted_content": kept["encrypted_content"],
    }
