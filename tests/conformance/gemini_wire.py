"""The Gemini API (v1beta), as its reference describes it."""

import base64
import json
import re
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
    MadeMedia,
    RawRequest,
    Script,
    ScriptPart,
    SeenRequest,
    Wire,
)

__all__ = ["GeminiWire"]

_PATH = re.compile(r"/v1beta/models/([^/:]+):(generateContent|streamGenerateContent)(\?alt=sse)?")
_STOPS = {"stop": "STOP", "tool_use": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}
_OPAQUE = {"args", "response", "parametersJsonSchema", "responseJsonSchema"}
_UNSIGNED = "skip_thought_signature_validator"
_ERRORS: dict[Failure, tuple[int, str, str, list[dict[str, Any]]]] = {
    "bad_key": (
        400,
        "INVALID_ARGUMENT",
        "API key not valid. Please pass a valid API key. ",
        [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}],
    ),
    "forbidden": (403, "PERMISSION_DENIED", "", []),
    "unknown_model": (404, "NOT_FOUND", "models/x is not found for API version v1beta. ", []),
    "bad_request": (400, "INVALID_ARGUMENT", "", []),
    "context_too_long": (
        400,
        "INVALID_ARGUMENT",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576). ",
        [],
    ),
    "too_large": (413, "INVALID_ARGUMENT", "Request payload size exceeds the limit. ", []),
    "rate_limit": (429, "RESOURCE_EXHAUSTED", "", []),
    "server_error": (500, "INTERNAL", "", []),
    "unavailable": (503, "UNAVAILABLE", "", []),
    "overloaded": (503, "UNAVAILABLE", "The model is overloaded. ", []),
}


class GeminiWire(Wire):
    # Arguments travel as objects; what is written to the cache isn't counted.
    lacks: ClassVar[frozenset[Feature]] = frozenset(
        {"cache_lifetime", "cache_write", "cache_write_1h", "raw_arguments"}
    )
    environment: ClassVar[dict[str, str]] = {
        "GOOGLE_API_KEY": "leaked-key",
        "GEMINI_API_KEY": "leaked-key-2",
        "GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:9/leaked",
        "GOOGLE_GENAI_USE_VERTEXAI": "true",
        "GOOGLE_GENAI_USE_ENTERPRISE": "true",
        "GOOGLE_GENAI_API_VERSION": "v9leaked",
        "GOOGLE_GENAI_CLIENT_MODE": "replay",
        "GOOGLE_CLOUD_PROJECT": "leaked-project",
    }

    def read_request(self, raw: RawRequest) -> SeenRequest:
        found = _PATH.fullmatch(raw.path)
        assert raw.method == "POST"
        assert found, raw.path
        body = _camel(json.loads(raw.body))
        config = body.get("generationConfig", {})
        mode = body.get("toolConfig", {}).get("functionCallingConfig", {}).get("mode")
        system = body.get("systemInstruction", {}).get("parts", ())
        declared = [one for tool in body.get("tools", ()) for one in tool["functionDeclarations"]]
        if "responseJsonSchema" in config:
            assert config["responseMimeType"] == "application/json"
        return SeenRequest(
            model=found[1],
            key=raw.headers.get("x-goog-api-key", ""),
            streaming=found[2] == "streamGenerateContent",
            system="".join(part["text"] for part in system),
            messages=tuple(_message(one) for one in body["contents"]),
            tools=tuple(
                ToolSpec(one["name"], one["description"], one["parametersJsonSchema"])
                for one in declared
            ),
            tool_choice={"ANY": "required", "NONE": "none"}.get(mode, mode),
            max_output_tokens=config.get("maxOutputTokens"),
            temperature=config.get("temperature"),
            response_schema=config.get("responseJsonSchema"),
            thinks=config.get("thinkingConfig", {}).get("includeThoughts"),
            stop=tuple(config.get("stopSequences", ())),
        )

    def stream(self, script: Script) -> list[bytes]:
        parts = [one for part in _signed(script.parts) for one in _deltas(part, script)]
        responses = [_response(script, [part], last=False) for part in parts]
        if responses:
            responses.pop()
        responses.append(_response(script, parts[-1:], last=True))
        return [f"data: {json.dumps(one)}\r\n\r\n".encode() for one in responses]

    def whole(self, script: Script) -> bytes:
        return json.dumps(_response(script, _signed(script.parts), last=True)).encode()

    def error(self, failure: Failure, message: str) -> HttpResponse:
        status, name, words, details = _ERRORS[failure]
        error = {"code": status, "message": words + message, "status": name, "details": details}
        return HttpResponse((json.dumps({"error": error}).encode(),), status)

    def stream_error(self, message: str) -> bytes:
        error = {"code": 503, "message": message, "status": "UNAVAILABLE"}
        return f"data: {json.dumps({'error': error})}\r\n\r\n".encode()

    def reasoning(self) -> tuple[ScriptPart, ...]:
        return (
            ReasoningPart("The user wants to know the tide.", "", "+/+/c2lnbmF0dXJl"),
            ToolCallPart("call_9", "look_up", '{"word": "tide"}'),
        )


def _camel(value: Any) -> Any:
    """Fields may be spelled like_this or likeThis; what is the caller's own stays as it is."""
    if isinstance(value, list):
        return [_camel(one) for one in value]
    if not isinstance(value, dict):
        return value
    renamed = {re.sub("_([a-z])", lambda found: found[1].upper(), name): name for name in value}
    return {
        name: value[was] if name in _OPAQUE else _camel(value[was]) for name, was in renamed.items()
    }


def _response(script: Script, parts: list[dict[str, Any]], *, last: bool) -> dict[str, Any]:
    candidate: dict[str, Any] = {"index": 0}
    if parts:
        candidate["content"] = {"role": "model", "parts": parts}
    if last:
        candidate["finishReason"] = _STOPS[script.stop_reason]
    response = {
        "candidates": [candidate],
        "modelVersion": script.model,
        "responseId": "answer-1",
    }
    if script.usage is not None:
        response["usageMetadata"] = _usage(script.usage)
    return response


def _usage(usage: Usage) -> dict[str, int]:
    """`promptTokenCount` counts the cached ones too; `candidatesTokenCount` no thoughts."""
    counted = {
        "promptTokenCount": usage.input_tokens + usage.cache_read_tokens,
        "candidatesTokenCount": usage.output_tokens,
        "totalTokenCount": usage.total_tokens,
    }
    if usage.cache_read_tokens:
        counted["cachedContentTokenCount"] = usage.cache_read_tokens
    if usage.reasoning_tokens:
        counted["thoughtsTokenCount"] = usage.reasoning_tokens
    return counted


def _signed(parts: tuple[ScriptPart, ...]) -> list[dict[str, Any]]:
    """The vendor's parts: a signature stands on the part after the thought."""
    written: list[dict[str, Any]] = []
    signature = ""
    for part in parts:
        if isinstance(part, ReasoningPart):
            signature = part.opaque
            if part.text:
                written.append({"text": part.text, "thought": True})
            continue
        one = _part(part)
        if signature:
            one["thoughtSignature"], signature = signature, ""
        written.append(one)
    return written


def _part(part: ScriptPart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"text": part.text}
    if isinstance(part, MadeMedia):
        data = base64.b64encode(part.content).decode()
        return {"inlineData": {"mimeType": part.media_type, "data": data}}
    assert isinstance(part, ToolCallPart)
    arguments = json.loads(part.arguments_json)
    return {"functionCall": {"id": part.call_id, "name": part.name, "args": arguments}}


def _deltas(part: dict[str, Any], script: Script) -> list[dict[str, Any]]:
    if not part.get("text"):
        return [part]
    return [{**part, "text": piece} for piece in script.pieces(part["text"])]


def _message(content: dict[str, Any]) -> Message:
    parts: list[Part] = []
    signature_of: list[int] = []
    for written in content["parts"]:
        if written.get("thought"):
            parts.append(ReasoningPart(written["text"], ""))
            signature_of = [len(parts) - 1]
            continue
        signature = written.get("thoughtSignature", "")
        if signature and signature != _UNSIGNED:
            opaque = base64.b64encode(base64.urlsafe_b64decode(signature)).decode()
            if signature_of:
                thought = parts[signature_of[0]]
                assert isinstance(thought, ReasoningPart)
                parts[signature_of[0]] = ReasoningPart(thought.text, "", opaque)
            else:
                parts.append(ReasoningPart("", "", opaque))
        parts.append(_read(written))
    role = {"model": "assistant", "user": "user"}[content["role"]]
    has_results = any(isinstance(one, ToolResultPart) for one in parts)
    return Message("tool" if has_results else role, tuple(parts))


def _read(written: dict[str, Any]) -> Part:
    if "text" in written:
        return TextPart(written["text"])
    if "inlineData" in written:
        return _medium(written["inlineData"])
    if "functionCall" in written:
        call = written["functionCall"]
        return ToolCallPart(call.get("id", ""), call["name"], json.dumps(call["args"]))
    result = written["functionResponse"]
    ((key, text),) = result["response"].items()
    media = tuple(_medium(one["inlineData"]) for one in result.get("parts", ()))
    content = (TextPart(text), *media)
    return ToolResultPart(result.get("id", ""), result["name"], content, is_error=key == "error")


def _medium(blob: dict[str, Any]) -> MediaPart:
    return MemoryMediaStore().put(base64.urlsafe_b64decode(blob["data"]), blob["mimeType"])
