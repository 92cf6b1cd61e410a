"""Anthropic's Messages API, as its reference describes it (version 2026-10-21)."""

import base64
import json
from collections.abc import Iterator
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

__all__ = ["AnthropicWire"]

_STOPS = {
    "stop": "end_turn",
    "tool_use": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}
_ERRORS: dict[Failure, tuple[int, str, str]] = {
    "bad_key": (401, "authentication_error", ""),
    "forbidden": (403, "permission_error", ""),
    "unknown_model": (404, "not_found_error", ""),
    "bad_request": (400, "invalid_request_error", ""),
    "context_too_long": (
        400,
        "invalid_request_error",
        "prompt is too long: 210000 tokens > 200000 maximum. ",
    ),
    "too_large": (413, "request_too_large", ""),
    "rate_limit": (429, "rate_limit_error", ""),
    "server_error": (500, "api_error", ""),
    "unavailable": (503, "api_error", ""),
    "overloaded": (529, "overloaded_error", ""),
}


class AnthropicWire(Wire):
    # The API takes no temperature since this version, and makes no media.
    lacks: ClassVar[frozenset[Feature]] = frozenset({"temperature", "media_output"})
    environment: ClassVar[dict[str, str]] = {
        "ANTHROPIC_API_KEY": "leaked-key",
        "ANTHROPIC_AUTH_TOKEN": "leaked-token",
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:9/leaked",
        "ANTHROPIC_CUSTOM_HEADERS": "X-Leaked: leaked-header\nAuthorization: leaked-auth",
    }

    def read_request(self, raw: RawRequest) -> SeenRequest:
        assert (raw.method, raw.path) == ("POST", "/v1/messages")
        assert raw.headers["anthropic-version"] == "2026-10-21"
        body = json.loads(raw.body)
        assert "temperature" not in body
        output = body.get("output_config", {})
        thinking = body.get("thinking", {}).get("type")
        choice = body.get("tool_choice", {}).get("type")
        system = body.get("system", "")
        lifetimes = [*_lifetimes(body)]
        assert len(lifetimes) <= 4  # what the API takes
        assert len({*lifetimes}) <= 1
        if not isinstance(system, str):
            ((kind, system),) = [(one["type"], one["text"]) for one in system]
            assert kind == "text"
            assert system.strip()
        return SeenRequest(
            model=body["model"],
            key=raw.headers.get("authorization", "").removeprefix("Bearer "),
            streaming=body.get("stream", False),
            system=system,
            messages=tuple(_message(one) for one in body["messages"]),
            tools=tuple(
                ToolSpec(one["name"], one["description"], one["input_schema"])
                for one in body.get("tools", ())
            ),
            tool_choice={"any": "required"}.get(choice, choice),
            max_output_tokens=body["max_tokens"],
            response_schema=output.get("format", {}).get("schema"),
            thinks=None if thinking is None else thinking in ("adaptive", "enabled"),
            stop=tuple(body.get("stop_sequences", ())),
            cache=lifetimes[0] if lifetimes else None,
        )

    def stream(self, script: Script) -> list[bytes]:
        return [_event(one) for one in _events(script)]

    def whole(self, script: Script) -> bytes:
        message = {
            **_head(script),
            "content": [_block(part) for part in script.parts],
            "stop_reason": _STOPS[script.stop_reason],
            "stop_sequence": None,
        }
        if script.usage is not None:
            message["usage"] = {**_input(script.usage), **_output(script.usage)}
        return json.dumps(message).encode()

    def error(self, failure: Failure, message: str) -> HttpResponse:
        status, kind, words = _ERRORS[failure]
        error = {"type": kind, "message": words + message}
        return HttpResponse((json.dumps({"type": "error", "error": error}).encode(),), status)

    def stream_error(self, message: str) -> bytes:
        error = {"type": "overloaded_error", "message": message}
        return _event({"type": "error", "error": error})

    def reasoning(self) -> tuple[ScriptPart, ...]:
        return (
            ReasoningPart("The user wants to know the tide.", "", "RXFRQkNrZ0lBUg=="),
            TextPart("I look it up."),
            ToolCallPart("toolu_1", "look_up", '{"word": "tide"}'),
        )


def _lifetimes(told: object) -> Iterator[Any]:
    """Yield the lifetime of each mark for the cache; blocks of reasoning can't have one."""
    if isinstance(told, list):
        for one in told:
            yield from _lifetimes(one)
    elif isinstance(told, dict):
        mark = told.get("cache_control")
        if mark is not None:
            assert mark["type"] == "ephemeral"
            assert told.get("type") not in ("thinking", "redacted_thinking")
            yield mark.get("ttl", "5m")
        for one in told.values():
            yield from _lifetimes(one)


def _event(event: dict[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _head(script: Script) -> dict[str, Any]:
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": script.model}


def _input(usage: Usage) -> dict[str, Any]:
    """`input_tokens` counts neither what was read from the cache nor what was written to it."""
    return {
        "input_tokens": usage.input_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens + usage.cache_write_1h_tokens,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_write_tokens,
            "ephemeral_1h_input_tokens": usage.cache_write_1h_tokens,
        },
    }


def _output(usage: Usage) -> dict[str, Any]:
    """`output_tokens` counts the reasoning too."""
    return {
        "output_tokens": usage.output_tokens + usage.reasoning_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }


def _block(part: ScriptPart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, ToolCallPart):
        arguments = json.loads(part.arguments_json)
        return {"type": "tool_use", "id": part.call_id, "name": part.name, "input": arguments}
    assert isinstance(part, ReasoningPart)
    return {"type": "thinking", "thinking": part.text, "signature": part.opaque}


def _events(script: Script) -> Iterator[dict[str, Any]]:
    usage = {} if script.usage is None else {"usage": {**_input(script.usage), "output_tokens": 1}}
    message = {**_head(script), "content": [], "stop_reason": None, "stop_sequence": None, **usage}
    yield {"type": "message_start", "message": message}
    yield {"type": "ping"}
    for index, part in enumerate(script.parts):
        yield from _block_events(index, part, script)
    delta = {"stop_reason": _STOPS[script.stop_reason], "stop_sequence": None}
    counted = {} if script.usage is None else {"usage": _output(script.usage)}
    yield {"type": "message_delta", "delta": delta, **counted}
    yield {"type": "message_stop"}


def _block_events(index: int, part: ScriptPart, script: Script) -> Iterator[dict[str, Any]]:
    if isinstance(part, TextPart):
        empty: dict[str, Any] = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": one} for one in script.pieces(part.text)]
    elif isinstance(part, ToolCallPart):
        empty = {"type": "tool_use", "id": part.call_id, "name": part.name, "input": {}}
        written = "" if part.arguments_json == "{}" else part.arguments_json
        pieces = ["", *script.pieces(written)]
        deltas = [{"type": "input_json_delta", "partial_json": one} for one in pieces]
    else:
        assert isinstance(part, ReasoningPart)
        empty = {"type": "thinking", "thinking": "", "signature": ""}
        deltas = [{"type": "thinking_delta", "thinking": one} for one in script.pieces(part.text)]
        deltas.append({"type": "signature_delta", "signature": part.opaque})
    yield {"type": "content_block_start", "index": index, "content_block": empty}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _message(message: dict[str, Any]) -> Message:
    content = message["content"]
    assert content
    parts = tuple(_part(block) for block in content)
    has_results = any(isinstance(one, ToolResultPart) for one in parts)
    return Message("tool" if has_results else message["role"], parts)


def _part(block: dict[str, Any]) -> Part:
    match block["type"]:
        case "text":
            assert block["text"]
            return TextPart(block["text"])
        case "tool_use":
            assert isinstance(block["input"], dict)
            return ToolCallPart(block["id"], block["name"], json.dumps(block["input"]))
        case "tool_result":
            content = tuple(_part(one) for one in block["content"])
            return ToolResultPart(
                block["tool_use_id"], "", content, is_error=block.get("is_error", False)
            )
        case "thinking":
            return ReasoningPart(block["thinking"], "", block["signature"])
        case "image" | "document":
            return _medium(block["source"])
        case other:
            raise AssertionError(f"no such block: {other}")


def _medium(source: dict[str, Any]) -> MediaPart:
    assert source["type"] == "base64"
    content = base64.b64decode(source["data"], validate=True)
    return MemoryMediaStore().put(content, source["media_type"])
