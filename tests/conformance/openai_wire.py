"""OpenAI's two wire formats, written from the vendor's documentation of them."""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from ryecore.llm import (
    MediaPart,
    MemoryMediaStore,
    Message,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    ToolSpec,
    Usage,
)
from ryecore.testing.conformance import (
    Failure,
    Feature,
    HttpResponse,
    RawRequest,
    Script,
    ScriptPart,
    SeenRequest,
    Wire,
)

_ERRORS: dict[Failure, tuple[int, str, str | None]] = {
    "bad_key": (401, "invalid_request_error", "invalid_api_key"),
    "forbidden": (403, "invalid_request_error", None),
    "unknown_model": (404, "invalid_request_error", "model_not_found"),
    "bad_request": (400, "invalid_request_error", None),
    "context_too_long": (400, "invalid_request_error", "context_length_exceeded"),
    "too_large": (413, "invalid_request_error", None),
    "rate_limit": (429, "requests", "rate_limit_exceeded"),
    "server_error": (500, "server_error", None),
    "unavailable": (503, "server_error", None),
    "overloaded": (503, "overloaded_error", None),
}
_STOPS = {"stop": "stop", "tool_use": "tool_calls", "length": "length"}


class OpenAIWire(Wire):
    """What both formats share: errors, the key, the environment."""

    environment: ClassVar[Mapping[str, str]] = {
        "OPENAI_API_KEY": "leaked-key",
        "OPENAI_ADMIN_KEY": "leaked-admin",
        "OPENAI_BASE_URL": "http://127.0.0.1:1/leaked",
        "OPENAI_ORG_ID": "leaked-org",
        "OPENAI_PROJECT_ID": "leaked-project",
        "OPENAI_CUSTOM_HEADERS": "X-Leaked: leaked-header",
    }

    def error(self, failure: Failure, message: str) -> HttpResponse:
        status, kind, code = _ERRORS[failure]
        error = {"message": message, "type": kind, "param": None, "code": code}
        return HttpResponse((json.dumps({"error": error}).encode(),), status)


def _key(raw: RawRequest) -> str:
    return raw.headers.get("authorization", "").removeprefix("Bearer ")


def _event(data: object, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def _medium(url: str) -> MediaPart:
    media_type, _, content = url.removeprefix("data:").partition(";base64,")
    return MemoryMediaStore().put(base64.b64decode(content), media_type)


class _Conversation:
    """Puts the names back that results don't carry, and joins what one role says in a row."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._names: dict[str, str] = {}

    def say(self, role: Any, *parts: Part) -> None:
        for part in parts:
            if isinstance(part, ToolCallPart):
                self._names[part.call_id] = part.name
        self.messages.append(Message(role, parts))

    def result(self, call_id: str, *content: Any) -> None:
        self.say("tool", ToolResultPart(call_id, self._names[call_id], content))


class ChatWire(OpenAIWire):
    """Chat completions, with the reasoning that compatible servers add."""

    lacks: ClassVar[frozenset[Feature]] = frozenset(
        {"cache_lifetime", "cache_write_1h", "error_results", "media_output", "result_media"}
    )

    def read_request(self, raw: RawRequest) -> SeenRequest:
        assert (raw.method, raw.path) == ("POST", "/v1/chat/completions")
        body = json.loads(raw.body)
        streaming = body.get("stream", False)
        assert body.get("stream_options") == ({"include_usage": True} if streaming else None)
        messages = body["messages"]
        system = messages.pop(0)["content"] if messages[0]["role"] == "system" else ""
        told = _Conversation()
        for message in messages:
            if message["role"] == "tool":
                told.result(message["tool_call_id"], TextPart(message["content"]))
            else:
                told.say(message["role"], *self._parts(message))
        tools = [one["function"] for one in body.get("tools", [])]
        format_ = body.get("response_format", {}).get("json_schema", {})
        return SeenRequest(
            body["model"],
            _key(raw),
            streaming,
            system,
            tuple(told.messages),
            tuple(ToolSpec(one["name"], one["description"], one["parameters"]) for one in tools),
            body.get("tool_choice"),
            body.get("max_tokens"),
            body.get("temperature"),
            format_.get("schema"),
            None if "reasoning_effort" not in body else body["reasoning_effort"] != "none",
            tuple(body.get("stop", ())),
        )

    def _parts(self, message: dict[str, Any]) -> Iterator[Part]:
        if "reasoning_content" in message:
            yield ReasoningPart(message["reasoning_content"], "", "reasoning_content")
        content = message["content"]
        if isinstance(content, str) and content:
            yield TextPart(content)
        for part in content if isinstance(content, list) else ():
            if part["type"] == "text":
                yield TextPart(part["text"])
            elif part["type"] == "image_url":
                yield _medium(part["image_url"]["url"])
            else:
                yield _medium(part["file"]["file_data"])
        for call in message.get("tool_calls", ()):
            function = call["function"]
            yield ToolCallPart(call["id"], function["name"], function["arguments"])

    def stream(self, script: Script) -> Sequence[bytes]:
        return [*self._stream(script)]

    def _stream(self, script: Script) -> Iterator[bytes]:
        def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            return _event(self._answer(script, "chat.completion.chunk", choice) | {"usage": None})

        yield chunk({"role": "assistant", "content": ""})
        calls = 0
        for part in script.parts:
            if isinstance(part, TextPart):
                yield from (chunk({"content": text}) for text in script.pieces(part.text))
            elif isinstance(part, ReasoningPart):
                for text in script.pieces(part.text):
                    yield chunk({"content": None, "reasoning_content": text})
            elif isinstance(part, ToolCallPart):
                head = self._call(part) | {"index": calls}
                head["function"] = {"name": part.name, "arguments": ""}
                yield chunk({"tool_calls": [head]})
                for text in script.pieces(part.arguments_json):
                    more = {"index": calls, "function": {"arguments": text}}
                    yield chunk({"tool_calls": [more]})
                calls += 1
        yield chunk({}, self._finish(script))
        if script.usage is not None:
            base = self._answer(script, "chat.completion.chunk")
            yield _event(base | {"usage": self._usage(script.usage)})
        yield b"data: [DONE]\n\n"

    def whole(self, script: Script) -> bytes:
        texts = [part.text for part in script.parts if isinstance(part, TextPart)]
        thoughts = [part.text for part in script.parts if isinstance(part, ReasoningPart)]
        calls = [self._call(part) for part in script.parts if isinstance(part, ToolCallPart)]
        message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) or None}
        message |= {"reasoning_content": "".join(thoughts)} if thoughts else {}
        message |= {"tool_calls": calls} if calls else {}
        choice = {"index": 0, "message": message, "finish_reason": self._finish(script)}
        answer = self._answer(script, "chat.completion", choice)
        if script.usage is not None:
            answer["usage"] = self._usage(script.usage)
        return json.dumps(answer).encode()

    def stream_error(self, message: str) -> bytes:
        return _event({"error": {"message": message, "type": "server_error", "code": None}})

    def reasoning(self) -> tuple[ScriptPart, ...]:
        thought = ReasoningPart("The tide follows the moon.", "", "reasoning_content")
        return (thought, ToolCallPart("call_1", "look_up", '{"word": "moon"}'))

    def _answer(self, script: Script, kind: str, *choices: dict[str, Any]) -> dict[str, Any]:
        head = {"id": "chatcmpl-1", "object": kind, "created": 1, "model": script.model}
        return head | {"choices": [*choices]}

    def _call(self, part: ToolCallPart) -> dict[str, Any]:
        function = {"name": part.name, "arguments": part.arguments_json}
        return {"id": part.call_id, "type": "function", "function": function}

    def _finish(self, script: Script) -> str:
        return _STOPS.get(script.stop_reason, script.stop_reason)

    def _usage(self, usage: Usage) -> dict[str, Any]:
        read = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        written = usage.output_tokens + usage.reasoning_tokens
        return {
            "prompt_tokens": read,
            "completion_tokens": written,
            "total_tokens": read + written,
            "prompt_tokens_details": {
                "cached_tokens": usage.cache_read_tokens,
                "cache_write_tokens": usage.cache_write_tokens,
            },
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        }


class ResponsesWire(OpenAIWire):
    """The Responses API."""

    lacks: ClassVar[frozenset[Feature]] = frozenset(
        {"cache_lifetime", "error_results", "media_output", "stop"}
    )

    def read_request(self, raw: RawRequest) -> SeenRequest:
        assert (raw.method, raw.path) == ("POST", "/v1/responses")
        body = json.loads(raw.body)
        assert body["store"] is False
        assert body["include"] == ["reasoning.encrypted_content"]
        told = _Conversation()
        for item in body["input"]:
            kind = item.get("type", "message")
            if kind == "message":
                content = item["content"]
                parts = [content] if isinstance(content, str) else content
                told.say(item["role"], *map(self._part, parts))
            elif kind == "function_call":
                call = ToolCallPart(item["call_id"], item["name"], item["arguments"])
                told.say("assistant", call)
            elif kind == "reasoning":
                text = "".join(one["text"] for one in item["summary"])
                sealed = {"id": item["id"], "encrypted_content": item["encrypted_content"]}
                told.say("assistant", ReasoningPart(text, "", json.dumps(sealed)))
            else:
                output = item["output"]
                parts = [output] if isinstance(output, str) else output
                told.result(item["call_id"], *map(self._part, parts))
        assert all(one["strict"] is False for one in body.get("tools", []))
        effort = body.get("reasoning", {}).get("effort")
        return SeenRequest(
            body["model"],
            _key(raw),
            body.get("stream", False),
            body.get("instructions", ""),
            tuple(told.messages),
            tuple(
                ToolSpec(one["name"], one["description"], one["parameters"])
                for one in body.get("tools", [])
            ),
            body.get("tool_choice"),
            body.get("max_output_tokens"),
            body.get("temperature"),
            body.get("text", {}).get("format", {}).get("schema"),
            None if effort is None else effort != "none",
        )

    def _part(self, part: str | dict[str, Any]) -> TextPart | MediaPart:
        if isinstance(part, str):
            return TextPart(part)
        if part["type"] == "input_text":
            return TextPart(part["text"])
        return _medium(part["image_url"] if part["type"] == "input_image" else part["file_data"])

    def stream(self, script: Script) -> Sequence[bytes]:
        events = [*self._stream(script)]
        return [
            _event(event | {"sequence_number": number}, event["type"])
            for number, event in enumerate(events)
        ]

    def _stream(self, script: Script) -> Iterator[dict[str, Any]]:
        started = self._response(script) | {"status": "in_progress", "output": [], "usage": None}
        yield {"type": "response.created", "response": started}
        yield {"type": "response.in_progress", "response": started}
        for at, part in enumerate(script.parts):
            item = self._item(at, part)
            place = {"output_index": at, "item_id": item["id"]}
            begun = item | {"status": "in_progress"}
            if isinstance(part, TextPart):
                begun |= {"content": []}
            elif isinstance(part, ToolCallPart):
                begun |= {"arguments": ""}
            else:
                begun |= {"summary": [], "encrypted_content": "not whole yet"}
            yield {"type": "response.output_item.added", "output_index": at, "item": begun}
            yield from self._deltas(script, part, place)
            yield {"type": "response.output_item.done", "output_index": at, "item": item}
        response = self._response(script)
        yield {"type": f"response.{response['status']}", "response": response}

    def _deltas(
        self, script: Script, part: ScriptPart, place: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        if isinstance(part, TextPart):
            place = place | {"content_index": 0}
            blank = {"type": "output_text", "text": "", "annotations": []}
            yield {"type": "response.content_part.added", "part": blank, **place}
            for text in script.pieces(part.text):
                yield {"type": "response.output_text.delta", "delta": text, **place}
            yield {"type": "response.output_text.done", "text": part.text, **place}
        elif isinstance(part, ToolCallPart):
            kind = "response.function_call_arguments"
            for text in script.pieces(part.arguments_json):
                yield {"type": f"{kind}.delta", "delta": text, **place}
            yield {"type": f"{kind}.done", "arguments": part.arguments_json, **place}
        elif isinstance(part, ReasoningPart):
            place = place | {"summary_index": 0}
            yield {"type": "response.reasoning_summary_part.added", **place}
            for text in script.pieces(part.text):
                yield {"type": "response.reasoning_summary_text.delta", "delta": text, **place}

    def whole(self, script: Script) -> bytes:
        return json.dumps(self._response(script)).encode()

    def stream_error(self, message: str) -> bytes:
        return _event({"type": "error", "code": "server_error", "message": message}, "error")

    def reasoning(self) -> tuple[ScriptPart, ...]:
        sealed = json.dumps({"id": "rs_1", "encrypted_content": "c2VhbGVk"})
        thought = ReasoningPart("The tide follows the moon.", "", sealed)
        return (thought, ToolCallPart("call_1", "look_up", '{"word": "moon"}'))

    def _response(self, script: Script) -> dict[str, Any]:
        reasons = {"length": "max_output_tokens", "content_filter": "content_filter"}
        reason = reasons.get(script.stop_reason)
        return {
            "id": "resp_1",
            "object": "response",
            "created_at": 1,
            "status": "incomplete" if reason else "completed",
            "error": None,
            "incomplete_details": {"reason": reason} if reason else None,
            "model": script.model,
            "output": [self._item(at, part) for at, part in enumerate(script.parts)],
            "usage": None if script.usage is None else self._usage(script.usage),
        }

    def _item(self, at: int, part: ScriptPart) -> dict[str, Any]:
        if isinstance(part, TextPart):
            content = [{"type": "output_text", "text": part.text, "annotations": []}]
            head = {"id": f"msg_{at}", "type": "message", "role": "assistant"}
            return head | {"status": "completed", "content": content}
        if isinstance(part, ToolCallPart):
            head = {"id": f"fc_{at}", "type": "function_call", "status": "completed"}
            said = {"name": part.name, "arguments": part.arguments_json}
            return head | {"call_id": part.call_id} | said
        assert isinstance(part, ReasoningPart)
        summary = [{"type": "summary_text", "text": part.text}] if part.text else []
        return {"type": "reasoning", "summary": summary, **json.loads(part.opaque)}

    def _usage(self, usage: Usage) -> dict[str, Any]:
        stored = usage.cache_write_tokens + usage.cache_write_1h_tokens
        read = usage.input_tokens + usage.cache_read_tokens + stored
        written = usage.output_tokens + usage.reasoning_tokens
        return {
            "input_tokens": read,
            "input_tokens_details": {
                "cached_tokens": usage.cache_read_tokens,
                "cache_write_tokens": stored,
                "cache_write_tokens_details": {
                    "ttl_30m_tokens": usage.cache_write_tokens,
                    "ttl_12h_tokens": usage.cache_write_1h_tokens,
                },
            },
            "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
            "total_tokens": read + written,
        }
