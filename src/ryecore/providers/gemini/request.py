"""Requests in Gemini's format, and what each model takes and returns."""

import base64
import binascii
from typing import Final, Literal

from google.genai import types

from ryecore.frozen import frozen
from ryecore.llm import (
    Capabilities,
    LlmRequest,
    MediaPart,
    MediaStore,
    Message,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from ryecore.providers.gemini.media import read_medium
from ryecore.providers.gemini.response import MADE
from ryecore.providers.portable_calls import arguments_of, portable_name

__all__ = ["ModelFacts", "capabilities_of", "config_of", "contents_of", "facts_of"]

_MEDIA: Final = frozenset({"image/*", "audio/*", "video/*", "text/*", "application/pdf"})


@frozen
class ModelFacts:
    """The limits and request options of a model.

    `thinking` says whether it takes a level or a budget of tokens, or doesn't think; `least`, the
    least reasoning it can be set to, as a level or a budget; `medium`, the level for a medium
    effort; `modern`, whether it needs the signatures of its calls sent back, and takes a schema
    beside tools and media within the results of tools.
    """

    context_tokens: int | None = 1_048_576
    max_output_tokens: int | None = 65_536
    thinking: Literal["level", "budget", ""] = "level"
    least: str | int = "LOW"
    medium: Literal["MEDIUM", "HIGH"] = "MEDIUM"
    modern: bool = True


_OLD: Final = ModelFacts(max_output_tokens=8_192, thinking="", modern=False)
_BUDGET: Final = ModelFacts(thinking="budget", least=0, modern=False)
_MINIMAL: Final = ModelFacts(least="MINIMAL")
_UNKNOWN: Final = ModelFacts(None, None)

# The longest prefix wins.
_BY_PREFIX: Final[dict[str, ModelFacts]] = {
    "gemini-1.5": _OLD,
    "gemini-2.0": _OLD,
    "gemini-2.5": _BUDGET,
    "gemini-2.5-pro": ModelFacts(thinking="budget", least=128, modern=False),
    "gemini-2.5-flash-image": ModelFacts(32_768, 32_768, thinking="", modern=False),
    "gemini-3": ModelFacts(),
    "gemini-3-pro": ModelFacts(medium="HIGH"),
    "gemini-3-flash": _MINIMAL,
    "gemini-3.1-flash-lite": _MINIMAL,
    "gemini-3.5": _MINIMAL,
    "gemini-3.6": _MINIMAL,
}


def facts_of(model: str) -> ModelFacts:
    """Return the facts of a model; an unknown one is treated as a recent one."""
    name = model.removeprefix("models/")
    known = [prefix for prefix in _BY_PREFIX if name.startswith(prefix)]
    return _BY_PREFIX[max(known, key=len)] if known else _UNKNOWN


def capabilities_of(model: str) -> Capabilities:
    """Return the capabilities of a model; an unknown one has all."""
    facts = facts_of(model)
    return Capabilities(
        reasoning=bool(facts.thinking),
        input_media=_MEDIA,
        context_tokens=facts.context_tokens,
        max_output_tokens=facts.max_output_tokens,
    )


_BUDGETS: Final = {"low": 1_024, "medium": 8_192, "high": 24_576}
# The signature that the vendor documents for calls of another provider's model.
_UNSIGNED: Final = base64.urlsafe_b64decode("skip_thought_signature_validator")


def config_of(request: LlmRequest) -> types.GenerateContentConfig:
    """Return everything of a request except its messages."""
    facts = facts_of(request.model)
    takes_schema = facts.modern or not request.tools
    config = types.GenerateContentConfig(
        system_instruction=(request.system if takes_schema else request.system_with_schema) or None,
        max_output_tokens=request.max_output_tokens,
        temperature=request.temperature,
        stop_sequences=list(request.stop) or None,
        thinking_config=_thinking(request, facts),
        # Keep the SDK from calling functions itself.
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )
    if request.tools:
        declarations = [
            types.FunctionDeclaration(
                name=tool.name,
                description=tool.description,
                parameters_json_schema=dict(tool.parameters),
            )
            for tool in request.tools
        ]
        config.tools = [types.Tool(function_declarations=declarations)]
        config.tool_config = _tool_choice(request)
    if request.response_format is not None and takes_schema:
        config.response_mime_type = "application/json"
        config.response_json_schema = dict(request.response_format.schema)
    return config


def contents_of(
    request: LlmRequest, provider_id: str, media: MediaStore | None
) -> list[types.Content]:
    """Return the messages of a request; only this provider's own reasoning is sent back."""
    write = _Writer(request, provider_id, media)
    contents = (write.content(message) for message in request.messages)
    return [content for content in contents if content.parts]


def _tool_choice(request: LlmRequest) -> types.ToolConfig | None:
    modes = types.FunctionCallingConfigMode
    mode = {"none": modes.NONE, "required": modes.ANY}.get(request.tool_choice)
    if mode is None:
        return None
    return types.ToolConfig(function_calling_config=types.FunctionCallingConfig(mode=mode))


def _thinking(request: LlmRequest, facts: ModelFacts) -> types.ThinkingConfig | None:
    effort = request.reasoning
    if effort is None or not facts.thinking:
        return None
    if facts.thinking == "budget":
        budget = int(facts.least) if effort == "none" else _BUDGETS[effort]
        return types.ThinkingConfig(include_thoughts=effort != "none", thinking_budget=budget)
    levels = {"none": str(facts.least), "low": "LOW", "medium": facts.medium, "high": "HIGH"}
    return types.ThinkingConfig(
        include_thoughts=effort != "none", thinking_level=types.ThinkingLevel(levels[effort])
    )


class _Writer:
    """Converts messages to Gemini's format."""

    def __init__(self, request: LlmRequest, provider_id: str, media: MediaStore | None) -> None:
        self._model = request.model
        self._tools = {tool.name for tool in request.tools}
        self._provider_id = provider_id
        self._media = media
        self._facts = facts_of(request.model)

    def content(self, message: Message) -> types.Content:
        if message.role == "assistant":
            return types.Content(role="model", parts=self._said(message))
        parts: list[types.Part] = []
        for part in message.parts:
            if isinstance(part, TextPart):
                parts.append(types.Part(text=part.text))
            elif isinstance(part, ToolResultPart):
                parts.extend(self._result(part))
            elif isinstance(part, MediaPart):
                parts.append(types.Part(inline_data=self._read(part)))
        return types.Content(role="user", parts=parts)

    def _said(self, message: Message) -> list[types.Part]:
        """Return the parts of a model's message. A signature is sent on the part after it."""
        parts: list[types.Part] = []
        signature: bytes | None = None
        called = False
        for part in message.parts:
            if isinstance(part, ReasoningPart):
                if part.origin == self._provider_id:
                    if part.text:
                        parts.append(types.Part(text=part.text, thought=True))
                    signature = _signature(part.opaque) or signature
                continue
            if isinstance(part, TextPart):
                written = types.Part(text=part.text)
            elif isinstance(part, ToolCallPart):
                written = types.Part(function_call=self._call(part))
                if self._facts.modern and not called and signature is None:
                    signature = _UNSIGNED
                called = True
            elif isinstance(part, MediaPart):
                written = types.Part(inline_data=self._read(part))
            else:
                continue
            written.thought_signature, signature = signature, None
            parts.append(written)
        if signature is not None:
            parts.append(types.Part(text="", thought_signature=signature))
        return parts

    def _call(self, part: ToolCallPart) -> types.FunctionCall:
        arguments = arguments_of(part.arguments_json)
        return types.FunctionCall(
            id=_id(part.call_id),
            name=portable_name(part.name, self._tools),
            args={"invalid_arguments": part.arguments_json} if arguments is None else arguments,
        )

    def _result(self, part: ToolResultPart) -> list[types.Part]:
        blobs = [self._read(one) for one in part.content if isinstance(one, MediaPart)]
        response = types.FunctionResponse(
            id=_id(part.call_id),
            name=portable_name(part.name, self._tools),
            response={"error" if part.is_error else "output": part.text},
        )
        written = types.Part(function_response=response)
        if not self._facts.modern:
            return [written, *(types.Part(inline_data=blob) for blob in blobs)]
        if blobs:
            response.parts = [
                types.FunctionResponsePart(
                    inline_data=types.FunctionResponseBlob(mime_type=one.mime_type, data=one.data)
                )
                for one in blobs
            ]
        return [written]

    def _read(self, part: MediaPart) -> types.Blob:
        return read_medium(part, self._media, self._provider_id, self._model)


def _id(call_id: str) -> str | None:
    return None if call_id.startswith(MADE) else call_id


def _signature(opaque: str) -> bytes | None:
    try:
        return base64.b64decode(opaque, validate=True) or None
    except binascii.Error:
        return None
