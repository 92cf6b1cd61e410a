"""Answers as chunks, in OpenAI's two formats: chat completions and responses."""

import json
from collections.abc import Callable
from typing import Any, Final
from uuid import uuid4

from ryecore.llm import (
    ReasoningDelta,
    StopReason,
    StreamChunk,
    StreamEnd,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
    UsageUpdate,
)
from ryecore.providers.errors import BrokenAnswer
from ryecore.providers.openai.errors import (
    Json,
    error_in_body,
    listed,
    mapped,
    number,
    text_of,
)

__all__ = ["THOUGHT_FIELDS", "ChatReader", "ResponsesReader"]

_STOPS: Final[dict[str, StopReason]] = {
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "content_filter",
    "sensitive": "content_filter",
}
_CHAT_FAILED: Final = frozenset({"error", "abort", "insufficient_system_resource", "network_error"})
THOUGHT_FIELDS: Final = ("reasoning_content", "reasoning")


class _ChatCall:
    """A tool call whose parts are still arriving."""

    __slots__ = ("announced", "call_id", "index", "name", "waiting")

    def __init__(self, index: int, call_id: str, name: str) -> None:
        self.index = index
        self.call_id = call_id
        self.name = name
        self.announced = False
        self.waiting: list[str] = []


class ChatReader:
    """Reads one answer, streamed or whole, without I/O.

    Servers differ: ids, indices and names of calls may be missing; usage may come in any chunk, in
    a choice, or never; and reasoning has two names.
    """

    __slots__ = (
        "_by_id",
        "_by_index",
        "_calls",
        "_failed",
        "_finish",
        "_model",
        "_refused",
        "_thinking",
        "_usage",
        "finished",
    )  # fmt: skip

    def __init__(self) -> None:
        self._calls: list[_ChatCall] = []
        self._by_index: dict[int, _ChatCall] = {}
        self._by_id: dict[str, _ChatCall] = {}
        self._finish = ""
        self._failed: object = None
        self._model = ""
        self._refused = False
        self._thinking = ""
        self._usage: Usage | None = None
        self.finished = False

    def read(self, event: object) -> list[StreamChunk]:
        """Return the chunks of one event of the stream."""
        out: list[StreamChunk] = []
        data = mapped(event)
        if data.get("error") or data.get("object") == "error":
            raise error_in_body(data)
        choices = data.get("choices")
        if choices and isinstance(choices, list):
            choice = mapped(choices[0])
            if choice.get("index"):  # a second answer, which wasn't requested
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
        if counted and (usage := _chat_usage(mapped(counted))) is not None:
            self._usage = usage
            self._model = text_of(data.get("model")) or self._model
            out.append(UsageUpdate(usage))
            # Counts that come with or after the reason are totals.
            self.finished = bool(self._finish)
        return out

    def end(self, *, said_done: bool) -> list[StreamChunk]:
        """Return the chunks at the end of the stream; BrokenAnswer says that it was cut off.

        `said_done` says whether the server sent `[DONE]`.
        """
        if self._finish in _CHAT_FAILED:
            raise error_in_body(self._failed)
        if not self._finish or not (said_done or self.finished):
            raise BrokenAnswer("the stream was cut before the answer was complete.")
        return self._last()

    def whole(self, answer: object) -> list[StreamChunk]:
        """Return the chunks of a whole answer."""
        data = mapped(answer)
        choices = listed(data.get("choices"))
        message = mapped(choices[0]).get("message") if choices else None
        if message is None and not data.get("error"):
            raise BrokenAnswer("the answer isn't what chat completions promise.")
        first = {"finish_reason": "stop", **mapped(choices[0] if choices else None)}
        out = self.read({**data, "choices": [{**first, "delta": message}]})
        if self._finish in _CHAT_FAILED:
            raise error_in_body(self._failed)
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
        for name in THOUGHT_FIELDS:
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
        """Read content in parts, as some servers send it, reasoning included."""
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

    def _call(self, index: object, call_id: str, name: str) -> _ChatCall:
        """Return the call that a delta belongs to, or a new one."""
        call = self._by_id.get(call_id) if call_id else None
        if call is None and isinstance(index, int):
            call = self._by_index.get(index)
            # Some servers give every call the index 0, but its own id and name.
            if call is not None and name and call_id and call.name:
                call = None
        elif call is None and not call_id and not name and self._calls:
            call = self._calls[-1]
        if call is None:
            call = _ChatCall(len(self._calls), call_id or f"call_{uuid4().hex[:24]}", name)
            self._calls.append(call)
            self._by_id[call.call_id] = call
            if isinstance(index, int):
                self._by_index[index] = call
        return call

    def _announce(self, call: _ChatCall, out: list[StreamChunk]) -> None:
        if not call.announced:
            call.announced = True
            out.append(ToolCallStart(call.index, call.call_id, call.name))
            out.extend(ToolCallDelta(call.index, text) for text in call.waiting)

    def _stop_thinking(self, out: list[StreamChunk]) -> None:
        """End the reasoning, and record the name under which to send it back."""
        if self._thinking:
            out.append(ReasoningDelta("", self._thinking))
            self._thinking = ""


def _chat_usage(told: Json) -> Usage | None:
    """Return disjoint counts: the server's `prompt_tokens` and `completion_tokens` overlap."""
    if "prompt_tokens" not in told and "completion_tokens" not in told:
        return None
    read, written = number(told.get("prompt_tokens")), number(told.get("completion_tokens"))
    details = mapped(told.get("prompt_tokens_details"))
    cached = (
        number(details.get("cached_tokens"))
        or number(told.get("prompt_cache_hit_tokens"))
        or number(told.get("cached_tokens"))
    )
    stored, stored_1h = _stored(details)
    thought = number(mapped(told.get("completion_tokens_details")).get("reasoning_tokens"))
    # Some servers count reasoning beside the completion, which the total shows.
    if thought and number(told.get("total_tokens")) == read + written + thought:
        written += thought
    return _disjoint(read, written, cached, (stored, stored_1h), thought)


def _stored(details: Json) -> tuple[int, int]:
    """Return the tokens that were written to the cache, all and those for 12 hours."""
    stored = number(details.get("cache_write_tokens"))
    by_time = mapped(details.get("cache_write_tokens_details"))
    return stored, min(number(by_time.get("ttl_12h_tokens")), stored)


def _disjoint(read: int, written: int, cached: int, stored: tuple[int, int], thought: int) -> Usage:
    """Return disjoint counts: all that was read and written includes the others."""
    whole, stored_1h = stored
    return Usage(
        max(0, read - cached - whole),
        max(0, written - thought),
        cached,
        whole - stored_1h,
        thought,
        stored_1h,
    )


_RESPONSES_FAILED: Final = ("failed", "cancelled")


class ResponsesReader:
    """Reads one answer, streamed or whole, without I/O."""

    __slots__ = ("_calls", "_end", "_refused", "_said", "finished")

    def __init__(self) -> None:
        self._calls: set[int] = set()
        self._end: StreamEnd | None = None
        self._refused = False
        self._said: set[int] = set()
        self.finished = False

    def read(self, event: object) -> list[StreamChunk]:
        """Return the chunks of one event of the stream."""
        data = mapped(event)
        out: list[StreamChunk] = []
        act = _ACTS.get(text_of(data.get("type")))
        if act is not None:
            act(self, data, out)
        elif data.get("error"):
            raise error_in_body(data)
        return out

    def end(self, *, said_done: bool) -> list[StreamChunk]:
        """Return the chunks at the end of the stream; BrokenAnswer says that it was cut off."""
        if self._end is None:
            raise BrokenAnswer("the stream was cut before the answer was complete.")
        return [self._end]

    def whole(self, answer: object) -> list[StreamChunk]:
        """Return the chunks of a whole answer."""
        data = mapped(answer)
        out: list[StreamChunk] = []
        for at, item in enumerate(listed(data.get("output"))):
            self._item(at, mapped(item), out)
        if data.get("status") in _RESPONSES_FAILED or data.get("error"):
            raise error_in_body(data.get("error"))
        if "output" not in data or data.get("status") not in ("completed", "incomplete"):
            raise BrokenAnswer("the answer isn't what the Responses API promises.")
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
        # If the call hasn't begun, the whole item will bring the arguments.
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
        """Read a whole item: the parts that weren't streamed, and the end of the item."""
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
        if response.get("status") in _RESPONSES_FAILED:
            raise error_in_body(response.get("error"))
        if not response:
            raise BrokenAnswer("the last event has no response.")
        if not self._said:  # some servers stream nothing else
            for at, item in enumerate(listed(response.get("output"))):
                self._item(at, mapped(item), out)
        self._finish(response)

    def _failed(self, data: Json, out: list[StreamChunk]) -> None:
        raise error_in_body(mapped(data.get("response")).get("error"))

    def _error(self, data: Json, out: list[StreamChunk]) -> None:
        raise error_in_body(data)

    def _finish(self, response: Json) -> None:
        reason = mapped(response.get("incomplete_details")).get("reason")
        stop: StopReason = "tool_use" if self._calls else "stop"
        if response.get("status") == "incomplete":
            stop = "content_filter" if reason == "content_filter" else "length"
        elif self._refused:
            stop = "content_filter"
        usage = _responses_usage(mapped(response.get("usage")))
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


def _responses_usage(told: Json) -> Usage | None:
    """Return disjoint counts: the server's include cached and reasoning tokens."""
    if "input_tokens" not in told and "output_tokens" not in told:
        return None
    details = mapped(told.get("input_tokens_details"))
    cached = number(details.get("cached_tokens"))
    thought = number(mapped(told.get("output_tokens_details")).get("reasoning_tokens"))
    read, written = number(told.get("input_tokens")), number(told.get("output_tokens"))
    return _disjoint(read, written, cached, _stored(details), thought)
