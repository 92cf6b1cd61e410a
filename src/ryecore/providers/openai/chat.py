"""Chat completions: what OpenAI began with, and what every compatible server speaks."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal
from uuid import uuid4

from attrs import frozen

from ryecore.llm import (
    Capabilities,
    LlmRequest,
    MediaPart,
    Message,
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
    UsageUpdate,
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

__all__ = ["ChatApi", "ChatReader"]

_STOPS: Final[dict[str, StopReason]] = {
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "content_filter",
    "sensitive": "content_filter",
}
_FAILED: Final = frozenset({"error", "abort", "insufficient_system_resource", "network_error"})
_AUDIO: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_THOUGHT_FIELDS: Final = ("reasoning_content", "reasoning")


@frozen
class ChatApi:
    """How chat completions are asked for.

    Attributes:
        max_tokens_field: What the bound of the answer is called.
        stream_usage: Whether streams are asked for their usage.
        max_id_chars: How long the id of a call may be, in characters; None where ids go back as
            they came, because the server may have put something into them.
    """

    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_tokens"
    stream_usage: bool = True
    max_id_chars: int | None = None
    path: str = "/chat/completions"

    def body(
        self,
        request: LlmRequest,
        contents: Contents,
        origin: str,
        can: Capabilities,
        *,
        stream: bool,
    ) -> dict[str, Any]:
        """The request's body.

        Args:
            request: What is asked.
            contents: The content of its media.
            origin: The id of this provider, which alone gets its reasoning back.
            can: What the model can do.
            stream: Whether a stream is asked for.
        """
        system = system_text(request, can)
        body: dict[str, Any] = {
            "model": request.model,
            "messages": [*_Writer(request, contents, origin, self.max_id_chars).messages(system)],
        }
        if request.response_format is not None:
            body["response_format"] = _format(request.response_format, can)
        if request.tools:
            body["tools"] = [_tool(tool_schema(tool)) for tool in request.tools]
            if request.tool_choice != "auto":
                body["tool_choice"] = request.tool_choice
        if request.max_output_tokens is not None:
            body[self.max_tokens_field] = request.max_output_tokens
        if request.temperature is not None and takes_temperature(request.model):
            body["temperature"] = request.temperature
        if request.reasoning is not None and can.reasoning:
            body["reasoning_effort"] = effort_word(request.model, request.reasoning)
        if request.stop:
            body["stop"] = [*request.stop]
        if stream:
            body["stream"] = True
            if self.stream_usage:
                body["stream_options"] = {"include_usage": True}
        return body

    def reader(self) -> "ChatReader":
        """What reads one answer."""
        return ChatReader()


class _Call:
    """A tool call whose parts are still coming."""

    __slots__ = ("announced", "call_id", "index", "name", "waiting")

    def __init__(self, index: int, call_id: str, name: str) -> None:
        self.index = index
        self.call_id = call_id
        self.name = name
        self.announced = False
        self.waiting: list[str] = []


class ChatReader:
    """Reads one answer, streamed or whole, without any I/O.

    Servers differ: ids, indices and names of calls may be missing, usage may come in any chunk, in
    a choice, or never, and reasoning under two names.
    """

    __slots__ = (
        "_by_id", "_by_index", "_calls", "_failed", "_finish", "_model", "_refused", "_thinking",
        "_usage", "finished",
    )  # fmt: skip

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._finish = ""
        self._failed: object = None
        self._model = ""
        self._refused = False
        self._thinking = ""
        self._usage: Usage | None = None
        self.finished = False

    def read(self, event: object) -> list[StreamChunk]:
        """What one event of the stream says.

        Raises:
            LlmError: It is an error.
        """
        out: list[StreamChunk] = []
        data = mapped(event)
        if data.get("error") or data.get("object") == "error":
            raise told_failure(data)
        choices = data.get("choices")
        if choices and isinstance(choices, list):
            choice = mapped(choices[0])
            if choice.get("index"):  # nobody asked for a second answer
                return out
            delta = choice.get("delta")
            if delta:
                self._delta(mapped(delta), out)
            if finish := choice.get("finish_reason"):
                self._finish = text_of(finish)
                self._failed = choice.get("error")
                self._model = text_of(data.get("model")) or self._model
            counted = data.get("usage") or choice.get("usage")
        else:
            counted = data.get("usage")
        if counted and (usage := _usage(mapped(counted))) is not None:
            self._usage = usage
            self._model = text_of(data.get("model")) or self._model
            out.append(UsageUpdate(usage))
            # What is counted with or behind the reason is counted in all.
            self.finished = bool(self._finish)
        return out

    def end(self, *, said_done: bool) -> list[StreamChunk]:
        """What the end of the stream says.

        Args:
            said_done: Whether the server said that it was done.

        Raises:
            LlmError: The server failed.
            BrokenAnswer: The stream was cut.
        """
        if self._finish in _FAILED:
            raise told_failure(self._failed)
        if not self._finish or not (said_done or self.finished):
            raise BrokenAnswer("The stream was cut before the answer was whole.")
        return self._last()

    def whole(self, answer: object) -> list[StreamChunk]:
        """What a whole answer says.

        Raises:
            LlmError: It is an error.
            BrokenAnswer: It is no answer.
        """
        data = mapped(answer)
        choices = listed(data.get("choices"))
        message = mapped(choices[0]).get("message") if choices else None
        if message is None and not data.get("error"):
            raise BrokenAnswer("The answer isn't what chat completions promise.")
        first = {"finish_reason": "stop", **mapped(choices[0] if choices else None)}
        out = self.read({**data, "choices": [{**first, "delta": message}]})
        if self._finish in _FAILED:
            raise told_failure(self._failed)
        self._model = text_of(data.get("model"))
        return out + self._last()

    def _last(self) -> list[StreamChunk]:
        out: list[StreamChunk] = []
        self._stop_thinking(out)
        for call in self._calls:
            self._announce(call, out)
        stop = _STOPS.get(self._finish)
        if stop is None:
            stop = "content_filter" if self._refused else "tool_use" if self._calls else "stop"
        out.append(StreamEnd(stop, self._usage, self._model))
        return out

    def _delta(self, delta: Json, out: list[StreamChunk]) -> None:
        for name in _THOUGHT_FIELDS:
            if (thought := delta.get(name)) and isinstance(thought, str):
                self._thinking = name
                out.append(ReasoningDelta(thought))
                break
        if content := delta.get("content"):
            self._stop_thinking(out)
            if isinstance(content, str):
                out.append(TextDelta(content))
            else:
                self._content(listed(content), out)
        if refusal := text_of(delta.get("refusal")):
            self._refused = True
            out.append(TextDelta(refusal))
        if calls := delta.get("tool_calls"):
            self._stop_thinking(out)
            for call in listed(calls):
                self._tool_call(mapped(call), out)

    def _content(self, parts: list[Any], out: list[StreamChunk]) -> None:
        """Content in parts, as some servers send it, thoughts among them."""
        for part in map(mapped, parts):
            if text := text_of(part.get("text")):
                out.append(TextDelta(text))
            for thought in listed(part.get("thinking")):
                if text := text_of(mapped(thought).get("text")):
                    out.append(ReasoningDelta(text))

    def _tool_call(self, delta: Json, out: list[StreamChunk]) -> None:
        function = mapped(delta.get("function"))
        name = text_of(function.get("name"))
        call = self._call(delta.get("index"), text_of(delta.get("id")), name)
        if not call.name:
            call.name = name
        arguments = function.get("arguments")
        if arguments and not isinstance(arguments, str):
            arguments = json.dumps(arguments)
        if arguments and call.announced:
            out.append(ToolCallDelta(call.index, arguments))
        elif arguments:
            call.waiting.append(arguments)
        if call.name and not call.announced:
            self._announce(call, out)

    def _call(self, index: object, call_id: str, name: str) -> _Call:
        """The call that a delta belongs to; a new one where it belongs to none."""
        call = self._by_id.get(call_id) if call_id else None
        if call is None and isinstance(index, int):
            call = self._by_index.get(index)
            # Some servers give every call the index 0, and an id and name of its own.
            if call is not None and name and call_id and call.name:
                call = None
        elif call is None and not call_id and not name and self._calls:
            call = self._calls[-1]
        if call is None:
            call = _Call(len(self._calls), call_id or f"call_{uuid4().hex[:24]}", name)
            self._calls.append(call)
            self._by_id[call.call_id] = call
            if isinstance(index, int):
                self._by_index[index] = call
        return call

    def _announce(self, call: _Call, out: list[StreamChunk]) -> None:
        if not call.announced:
            call.announced = True
            out.append(ToolCallStart(call.index, call.call_id, call.name))
            out.extend(ToolCallDelta(call.index, text) for text in call.waiting)

    def _stop_thinking(self, out: list[StreamChunk]) -> None:
        """End the reasoning, and keep the name under which the server wants it back."""
        if self._thinking:
            out.append(ReasoningDelta("", self._thinking))
            self._thinking = ""


def _usage(told: Json) -> Usage | None:
    """Disjoint counts: cached tokens are in `prompt_tokens`, reasoning in `completion_tokens`."""
    if "prompt_tokens" not in told and "completion_tokens" not in told:
        return None
    read, written = number(told.get("prompt_tokens")), number(told.get("completion_tokens"))
    details = mapped(told.get("prompt_tokens_details"))
    cached = (
        number(details.get("cached_tokens"))
        or number(told.get("prompt_cache_hit_tokens"))
        or number(told.get("cached_tokens"))
    )
    stored = number(details.get("cache_write_tokens"))
    thought = number(mapped(told.get("completion_tokens_details")).get("reasoning_tokens"))
    # Some servers count reasoning beside the completion; the total tells.
    if thought and number(told.get("total_tokens")) == read + written + thought:
        written += thought
    return Usage(max(0, read - cached - stored), max(0, written - thought), cached, stored, thought)


def _format(wanted: ResponseFormat, can: Capabilities) -> dict[str, Any]:
    if not can.response_format:
        return {"type": "json_object"}
    schema = dict(wanted.schema)
    named = {"name": wanted.name, "schema": schema, "strict": fits_strict(schema)}
    return {"type": "json_schema", "json_schema": named}


class _Writer:
    """Messages in the form of chat completions."""

    def __init__(
        self, request: LlmRequest, contents: Contents, origin: str, max_id_chars: int | None
    ) -> None:
        self._said = request.messages
        self._tools = {tool.name for tool in request.tools}
        self._contents = contents
        self._origin = origin
        self._max_id_chars = max_id_chars

    def messages(self, system: str) -> Iterator[dict[str, Any]]:
        """All messages, the system text first."""
        if system:
            yield {"role": "system", "content": system}
        asked = max((at for at, one in enumerate(self._said) if one.role == "user"), default=-1)
        # Only users show media here: what a tool or the model showed stands behind its results.
        shown: list[MediaPart] = []
        for at, message in enumerate(self._said):
            if shown and message.role != "tool":
                yield _user(shown, self._contents)
                shown = []
            if message.role == "user":
                yield _user(message.parts, self._contents)
            elif message.role == "assistant":
                yield self._assistant(message, self._origin if at > asked else None)
                shown += [part for part in message.parts if isinstance(part, MediaPart)]
            else:
                for part in message.parts:
                    if isinstance(part, ToolResultPart):
                        media = [one for one in part.content if isinstance(one, MediaPart)]
                        shown += media
                        text = part.text or ("It is shown below." if media else "")
                        call_id = self._id(part.call_id)
                        yield {"role": "tool", "tool_call_id": call_id, "content": text}
        if shown:
            yield _user(shown, self._contents)

    def _assistant(self, message: Message, origin: str | None) -> dict[str, Any]:
        """A message of the model's, with its own reasoning while the same question is worked on."""
        texts = [part.text for part in message.parts if isinstance(part, TextPart)]
        said: dict[str, Any] = {"role": "assistant", "content": "".join(texts) if texts else None}
        calls = message.tool_calls
        if calls:
            said["tool_calls"] = [self._tool_call(call) for call in calls]
        elif not texts:
            said["content"] = ""
        for part in message.parts:
            if isinstance(part, ReasoningPart) and part.origin == origin:
                field = part.opaque if part.opaque in _THOUGHT_FIELDS else ""
                if field:
                    said[field] = said.get(field, "") + part.text
        return said

    def _tool_call(self, call: ToolCallPart) -> dict[str, Any]:
        name = portable_name(call.name, self._tools)
        function = {"name": name, "arguments": arguments_text(call.arguments_json)}
        return {"id": self._id(call.call_id), "type": "function", "function": function}

    def _id(self, call_id: str) -> str:
        return call_id if self._max_id_chars is None else portable_id(call_id, self._max_id_chars)


def _user(parts: Sequence[object], contents: Contents) -> dict[str, Any]:
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return {"role": "user", "content": parts[0].text}
    return {
        "role": "user",
        "content": [
            {"type": "text", "text": part.text}
            if isinstance(part, TextPart)
            else _medium(part, contents)
            for part in parts
            if isinstance(part, TextPart | MediaPart)
        ],
    }


def _medium(part: MediaPart, contents: Contents) -> dict[str, Any]:
    url = data_url(part, contents)
    if part.media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    if part.media_type in _AUDIO:
        audio = {"data": url.partition(",")[2], "format": _AUDIO[part.media_type]}
        return {"type": "input_audio", "input_audio": audio}
    return {"type": "file", "file": {"filename": file_name(part), "file_data": url}}


def _tool(schema: dict[str, Any]) -> dict[str, Any]:
    # Here `strict` is off by default, and not every server knows it.
    del schema["strict"]
    return {"type": "function", "function": schema}
