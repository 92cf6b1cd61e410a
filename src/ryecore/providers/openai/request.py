"""Requests in OpenAI's two formats, chat completions and responses, and what each model takes."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from ryecore.frozen import frozen
from ryecore.llm import (
    Capabilities,
    LlmRequest,
    MediaPart,
    Message,
    ReasoningEffort,
    ReasoningPart,
    ResponseFormat,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    ToolSpec,
)
from ryecore.providers.openai.errors import listed, mapped
from ryecore.providers.openai.media import Contents, data_url, file_name
from ryecore.providers.openai.response import THOUGHT_FIELDS, ChatReader, ResponsesReader
from ryecore.providers.portable_calls import arguments_of, portable_id, portable_name

__all__ = [
    "COMPATIBLE",
    "ChatApi",
    "ResponsesApi",
    "arguments_text",
    "effort_word",
    "fits_strict",
    "openai_capabilities",
    "takes_temperature",
]

_READABLE: Final = frozenset(
    {"image/png", "image/jpeg", "image/webp", "image/gif", "application/pdf"}
)

COMPATIBLE: Final = Capabilities(
    reasoning=True, input_media=frozenset({"image/*", "audio/*", "application/pdf"})
)
"""The default capabilities of a compatible server's models: all of them."""

# By the prefix of a name; the first that fits counts.
_KNOWN: Final = (
    (
        "gpt-3.5",
        Capabilities(response_format=False, context_tokens=16_385, max_output_tokens=4_096),
    ),
    (
        "gpt-4.1",
        Capabilities(input_media=_READABLE, context_tokens=1_047_576, max_output_tokens=32_768),
    ),
    (
        "gpt-4o",
        Capabilities(input_media=_READABLE, context_tokens=128_000, max_output_tokens=16_384),
    ),
    ("gpt-4-turbo", Capabilities(response_format=False, input_media=_READABLE)),
    ("gpt-4", Capabilities(response_format=False)),
    ("chatgpt-4o", Capabilities(tools=False, parallel_tools=False, input_media=_READABLE)),
    ("o3-mini", Capabilities(reasoning=True, context_tokens=200_000, max_output_tokens=100_000)),
)
_ANY: Final = Capabilities(reasoning=True, input_media=_READABLE)
_CHAT: Final = Capabilities(input_media=_READABLE)
_ALWAYS_THINKS: Final = re.compile(r"o\d|gpt-5(?!\.|-chat)")


def openai_capabilities(model: str) -> Capabilities:
    """Return the capabilities of one of OpenAI's models."""
    name = model.removeprefix("ft:")
    for beginning, capabilities in _KNOWN:
        if name.startswith(beginning):
            return capabilities
    return _CHAT if "-chat" in name else _ANY


def effort_word(model: str, effort: ReasoningEffort) -> str:
    """Return a model's word for an effort; models that always think don't take `none`."""
    if effort != "none" or not _ALWAYS_THINKS.match(model):
        return effort
    return "low" if model.startswith("o") else "minimal"


def takes_temperature(model: str) -> bool:
    """Return whether a model takes a temperature; models that always think refuse one."""
    return not _ALWAYS_THINKS.match(model)


_WriteMedium: TypeAlias = Callable[[MediaPart, Contents], dict[str, Any]]
_AUDIO: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_STRICT_WORDS: Final = frozenset(
    {
        "$defs", "$ref", "additionalProperties", "anyOf", "const", "description", "enum", "items",
        "properties", "required", "title", "type",
    }
)  # fmt: skip


@frozen
class ChatApi:
    """The format of requests for chat completions.

    `max_id_chars` bounds a call's id; None sends ids back unchanged, because a server may store
    data in them. `prompt_cache` tells whether the server takes OpenAI's parameters for caching.
    """

    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_tokens"
    stream_usage: bool = True
    max_id_chars: int | None = None
    prompt_cache: bool = False
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
        """Return the request's body; only the reasoning of the provider `origin` is sent back."""
        system = _system_text(request, can)
        body: dict[str, Any] = {
            "model": request.model,
            "messages": [
                *_ChatWriter(request, contents, origin, self.max_id_chars).messages(system)
            ],
        }
        if request.response_format is not None:
            body["response_format"] = _format(request.response_format, can, nested=True)
        if request.tools:
            body["tools"] = [_chat_tool(_tool_schema(tool)) for tool in request.tools]
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
        if self.prompt_cache:
            body.update(_prompt_cache(request))
        if stream:
            body["stream"] = True
            if self.stream_usage:
                body["stream_options"] = {"include_usage": True}
        return body

    def reader(self) -> ChatReader:
        """Return a reader of one answer."""
        return ChatReader()


@frozen
class ResponsesApi:
    """The format of requests for responses. The vendor stores nothing of them."""

    reasoning_summary: Literal["auto", "concise", "detailed"] | None = None
    prompt_cache: bool = False
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
        """Return the request's body; see `ChatApi.body`."""
        body: dict[str, Any] = {
            "model": request.model,
            "input": [*_responses_input(request, contents, origin)],
            "store": False,
        }
        if system := _system_text(request, can):
            body["instructions"] = system
        if request.tools:
            body["tools"] = [{"type": "function", **_tool_schema(tool)} for tool in request.tools]
            if request.tool_choice != "auto":
                body["tool_choice"] = request.tool_choice
        if request.max_output_tokens is not None:
            body["max_output_tokens"] = request.max_output_tokens
        if request.temperature is not None and takes_temperature(request.model):
            body["temperature"] = request.temperature
        if request.response_format is not None:
            body["text"] = {"format": _format(request.response_format, can, nested=False)}
        if can.reasoning:
            body["include"] = ["reasoning.encrypted_content"]
            reasoning: dict[str, str] = {}
            if request.reasoning is not None:
                reasoning["effort"] = effort_word(request.model, request.reasoning)
            if self.reasoning_summary is not None and request.reasoning != "none":
                reasoning["summary"] = self.reasoning_summary
            if reasoning:
                body["reasoning"] = reasoning
        if self.prompt_cache:
            body.update(_prompt_cache(request))
        if stream:
            body["stream"] = True
        return body

    def reader(self) -> ResponsesReader:
        """Return a reader of one answer."""
        return ResponsesReader()


# The models that let a request choose what is cached, and for how long.
_CHOOSES_CACHE: Final = re.compile(r"(?:ft:)?gpt-(?:5\.[6-9]|5\.\d\d|[6-9]|\d\d)")


def _prompt_cache(request: LlmRequest) -> dict[str, Any]:
    """Return the parameters for caching.

    The vendor caches by itself, for 30 minutes with the newer models, whose only longer time is 12
    hours. Requests with the same key reach the same servers, so that those of one agent share it.
    For older models nothing is said of the time: it depends on the organisation's agreement about
    what the vendor may store.

    Source: https://developers.openai.com/api/docs/guides/prompt-caching.
    """
    chooses = _CHOOSES_CACHE.match(request.model) is not None
    if request.cache is None:
        # Without marks of its own, such a request is neither read from the cache nor written to it.
        return {"prompt_cache_options": {"mode": "explicit"}} if chooses else {}
    parameters: dict[str, Any] = {}
    if chooses and request.cache == "1h":
        parameters["prompt_cache_options"] = {"ttl": "12h"}
    if not (request.system or request.tools):
        return parameters
    names = "\0".join(tool.name for tool in request.tools)
    shared = f"{request.system}\0{names}".encode(errors="surrogatepass")
    parameters["prompt_cache_key"] = hashlib.sha256(shared).hexdigest()[:32]
    return parameters


class _ChatWriter:
    """Converts messages to the format of chat completions."""

    def __init__(
        self, request: LlmRequest, contents: Contents, origin: str, max_id_chars: int | None
    ) -> None:
        self._said = request.messages
        self._tools = {tool.name for tool in request.tools}
        self._contents = contents
        self._origin = origin
        self._max_id_chars = max_id_chars

    def messages(self, system: str) -> Iterator[dict[str, Any]]:
        """Yield all messages, the system text first."""
        if system:
            yield {"role": "system", "content": system}
        asked = max((at for at, one in enumerate(self._said) if one.role == "user"), default=-1)
        # Only a user's message can hold media: those of a tool or the model follow its results.
        shown: list[MediaPart] = []
        for at, message in enumerate(self._said):
            if shown and message.role != "tool":
                yield _user(shown, self._contents, "text", _chat_medium)
                shown = []
            if message.role == "user":
                yield _user(message.parts, self._contents, "text", _chat_medium)
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
            yield _user(shown, self._contents, "text", _chat_medium)

    def _assistant(self, message: Message, origin: str | None) -> dict[str, Any]:
        """Return a message of the model, with its own reasoning until the question is answered."""
        texts = [part.text for part in message.parts if isinstance(part, TextPart)]
        said: dict[str, Any] = {"role": "assistant", "content": "".join(texts) if texts else None}
        calls = message.tool_calls
        if calls:
            said["tool_calls"] = [self._tool_call(call) for call in calls]
        elif not texts:
            said["content"] = ""
        for part in message.parts:
            if isinstance(part, ReasoningPart) and part.origin == origin:
                field = part.opaque if part.opaque in THOUGHT_FIELDS else ""
                if field:
                    said[field] = said.get(field, "") + part.text
        return said

    def _tool_call(self, call: ToolCallPart) -> dict[str, Any]:
        name = portable_name(call.name, self._tools)
        function = {"name": name, "arguments": arguments_text(call.arguments_json)}
        return {"id": self._id(call.call_id), "type": "function", "function": function}

    def _id(self, call_id: str) -> str:
        return call_id if self._max_id_chars is None else portable_id(call_id, self._max_id_chars)


def _chat_medium(part: MediaPart, contents: Contents) -> dict[str, Any]:
    url = data_url(part, contents)
    if part.media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    if part.media_type in _AUDIO:
        audio = {"data": url.partition(",")[2], "format": _AUDIO[part.media_type]}
        return {"type": "input_audio", "input_audio": audio}
    return {"type": "file", "file": {"filename": file_name(part), "file_data": url}}


def _chat_tool(schema: dict[str, Any]) -> dict[str, Any]:
    # `strict` is off by default in this format, and some servers don't know it.
    del schema["strict"]
    return {"type": "function", "function": schema}


def _responses_input(
    request: LlmRequest, contents: Contents, origin: str
) -> Iterator[dict[str, Any]]:
    tools = {tool.name for tool in request.tools}
    for message in request.messages:
        if message.role == "user":
            yield _user(message.parts, contents, "input_text", _responses_medium)
            continue
        for part in message.parts:
            if isinstance(part, TextPart):
                yield {"role": "assistant", "content": part.text}
            elif isinstance(part, MediaPart):
                yield _user((part,), contents, "input_text", _responses_medium)
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
                    "output": _responses_output(part, contents),
                }
            elif part.origin == origin and (item := _responses_reasoning(part)) is not None:
                yield item


def _responses_medium(part: MediaPart, contents: Contents) -> dict[str, Any]:
    url = data_url(part, contents)
    if part.media_type.startswith("image/"):
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    return {"type": "input_file", "filename": file_name(part), "file_data": url}


def _responses_output(part: ToolResultPart, contents: Contents) -> str | list[dict[str, Any]]:
    if any(isinstance(one, MediaPart) for one in part.content):
        return _content(part.content, contents, "input_text", _responses_medium)
    return part.text


def _responses_reasoning(part: ReasoningPart) -> dict[str, Any] | None:
    """Return a reasoning item to send back; None if its encrypted content is missing."""
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


def _format(wanted: ResponseFormat, can: Capabilities, *, nested: bool) -> dict[str, Any]:
    if not can.response_format:
        return {"type": "json_object"}
    schema = dict(wanted.schema)
    named = {"name": wanted.name, "schema": schema, "strict": fits_strict(schema)}
    return {"type": "json_schema", **({"json_schema": named} if nested else named)}


def _user(
    parts: Sequence[object], contents: Contents, text_type: str, write_medium: _WriteMedium
) -> dict[str, Any]:
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return {"role": "user", "content": parts[0].text}
    return {"role": "user", "content": _content(parts, contents, text_type, write_medium)}


def _content(
    parts: Sequence[object], contents: Contents, text_type: str, write_medium: _WriteMedium
) -> list[dict[str, Any]]:
    return [
        {"type": text_type, "text": part.text}
        if isinstance(part, TextPart)
        else write_medium(part, contents)
        for part in parts
        if isinstance(part, TextPart | MediaPart)
    ]


def _system_text(request: LlmRequest, can: Capabilities) -> str:
    """Return the system text, with the answer's schema if the model takes no schema."""
    if request.response_format is None or can.response_format:
        return request.system
    return request.system_with_schema


def _tool_schema(tool: ToolSpec) -> dict[str, Any]:
    """Return a tool's function. It isn't strict, because tools choose their schemas."""
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
        "strict": False,
    }


def arguments_text(text: str) -> str:
    """Return a call's arguments to send back, as a JSON object: servers fail at other texts."""
    if arguments_of(text) is None:
        return json.dumps({"invalid_arguments": text})
    return text or "{}"


def fits_strict(schema: object) -> bool:
    """Return whether a schema can be strict: closed objects that require all their properties."""
    if isinstance(schema, bool) or not isinstance(schema, Mapping) or not schema:
        return False
    if not _STRICT_WORDS.issuperset(schema):
        return False
    properties = mapped(schema.get("properties"))
    if "object" in (schema.get("type"), *listed(schema.get("type"))) and (
        schema.get("additionalProperties") is not False
        or set(listed(schema.get("required"))) != set(properties)
    ):
        return False
    inner = [*properties.values(), *mapped(schema.get("$defs")).values()]
    inner += listed(schema.get("anyOf"))
    if "items" in schema:
        inner.append(schema["items"])
    return all(fits_strict(one) for one in inner)
