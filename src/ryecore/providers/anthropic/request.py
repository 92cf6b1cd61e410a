"""Requests in Anthropic's format, and what each model takes and returns."""

import base64
from collections.abc import Mapping
from typing import Any, Final, Literal

from ryecore.frozen import frozen
from ryecore.llm import (
    CacheLifetime,
    Capabilities,
    LlmError,
    LlmRequest,
    MediaPart,
    MediaStore,
    Message,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from ryecore.providers.anthropic.schemas import answer_schema
from ryecore.providers.errors import no_media_store
from ryecore.providers.portable_calls import arguments_of, portable_id, portable_name

__all__ = ["REDACTED", "ModelFacts", "capabilities_of", "facts_of", "parameters_of", "write_medium"]

_MEDIA: Final = frozenset(
    {"image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf", "text/plain"}
)


@frozen
class ModelFacts:
    """The limits and request options of a model.

    `known` says whether `max_output_tokens` is the model's own bound, not a cautious guess;
    `thinking`, whether it decides how long to think, or takes a budget; `without`, which setting
    turns thinking off, if any; `forced_tools`, whether it can be forced to call a tool.
    """

    context_tokens: int | None = 1_000_000
    max_output_tokens: int = 128_000
    known: bool = True
    thinking: Literal["adaptive", "budget"] = "adaptive"
    without: Literal["disabled", "between_tools", ""] = "disabled"
    forced_tools: bool = True


_BUDGET: Final = ModelFacts(200_000, 64_000, thinking="budget")
_ALWAYS: Final = ModelFacts(without="", forced_tools=False)
_UNKNOWN: Final = ModelFacts(None, 32_000, known=False)

# The longest prefix wins, so a date after the name makes no difference.
_BY_PREFIX: Final[dict[str, ModelFacts]] = {
    "claude-haiku-4-5": _BUDGET,
    "claude-sonnet-4-5": _BUDGET,
    "claude-opus-4-5": _BUDGET,
    "claude-sonnet-4-6": ModelFacts(max_output_tokens=64_000),
    "claude-opus-4-6": ModelFacts(),
    "claude-opus-4-7": ModelFacts(),
    "claude-opus-4-8": ModelFacts(),
    "claude-opus-5": ModelFacts(),
    "claude-sonnet-5": ModelFacts(),
    "claude-fable-5": ModelFacts(without=""),
    "claude-mythos": ModelFacts(without=""),
    "claude-haiku-5-5": ModelFacts(),
    "claude-sonnet-5-5": ModelFacts(without="between_tools", forced_tools=False),
    "claude-opus-5-5": _ALWAYS,
    "claude-fable-5-1": _ALWAYS,
    "claude-fable-5-2": _ALWAYS,
    "claude-mythos-5-1": _ALWAYS,
    "claude-mythos-5-2": _ALWAYS,
}


def facts_of(model: str) -> ModelFacts:
    """Return the facts of a model; an unknown one is treated as a recent one."""
    known = [prefix for prefix in _BY_PREFIX if model.startswith(prefix)]
    return _BY_PREFIX[max(known, key=len)] if known else _UNKNOWN


def capabilities_of(model: str) -> Capabilities:
    """Return the capabilities of a model; an unknown one has all."""
    facts = facts_of(model)
    return Capabilities(
        reasoning=True,
        input_media=_MEDIA,
        context_tokens=facts.context_tokens,
        max_output_tokens=facts.max_output_tokens if facts.known else None,
    )


REDACTED: Final = "redacted_thinking:"
"""The prefix of a redacted block's opaque text. A signature is base64 and has no colon."""

_BUDGETS: Final = {"low": 4_096, "medium": 12_288, "high": 24_576}
_LEAST_BUDGET: Final = 1_024


def parameters_of(
    request: LlmRequest, provider_id: str, media: MediaStore | None
) -> dict[str, Any]:
    """Return the arguments of the SDK's `messages.create`.

    The temperature is left out: the API takes none since its version 2026-10-21. Only this
    provider's own reasoning is sent back.
    """
    facts = facts_of(request.model)
    write = _Writer(provider_id, request, media)
    max_tokens = request.max_output_tokens
    parameters: dict[str, Any] = {
        "model": request.model,
        "max_tokens": facts.max_output_tokens if max_tokens is None else max_tokens,
        "messages": [one for one in map(write.message, request.messages) if one["content"]],
    }
    answer = (
        None if request.response_format is None else answer_schema(request.response_format.schema)
    )
    if system := request.system if answer else request.system_with_schema:
        parameters["system"] = system
    if request.tools:
        parameters["tools"] = [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": dict(tool.parameters),
            }
            for tool in request.tools
        ]
        parameters.update(_tool_choice(request, facts))
    if request.stop:
        parameters["stop_sequences"] = list(request.stop)
    parameters.update(_thinking(request, facts, parameters["max_tokens"]))
    if answer is not None:
        schema = {"type": "json_schema", "schema": answer}
        parameters["output_config"] = {**parameters.get("output_config", {}), "format": schema}
    if request.cache is not None:
        _mark_for_cache(parameters, request.cache)
    return parameters


_CACHE_MARKS: Final[dict[CacheLifetime, Mapping[str, str]]] = {
    "5m": {"type": "ephemeral"},
    "1h": {"type": "ephemeral", "ttl": "1h"},
}


def _mark_for_cache(parameters: dict[str, Any], lifetime: CacheLifetime) -> None:
    """Mark up to four ends of what the vendor should cache, the most that it takes.

    They are the ends of the tools, of the system text, of this conversation, and of the
    conversation as the request before had it: the vendor looks only 20 blocks back from a mark for
    what it has, and one turn may add more.

    Source: https://platform.claude.com/docs/en/build-with-claude/prompt-caching.
    """
    mark = _CACHE_MARKS[lifetime]
    if "tools" in parameters:
        parameters["tools"][-1]["cache_control"] = mark
    if parameters.get("system", "").strip():  # the API refuses a block of only blanks
        block = {"type": "text", "text": parameters["system"], "cache_control": mark}
        parameters["system"] = [block]
    messages = parameters["messages"]
    answers = [at for at, one in enumerate(messages) if one["role"] == "assistant"]
    for end in {len(messages), *answers[-1:]} - {0}:
        for block in reversed(messages[end - 1]["content"]):
            if block["type"] not in ("thinking", "redacted_thinking"):  # they take no mark
                block["cache_control"] = mark
                break


def _tool_choice(request: LlmRequest, facts: ModelFacts) -> dict[str, Any]:
    if request.tool_choice == "none":
        return {"tool_choice": {"type": "none"}}
    if request.tool_choice == "required" and facts.forced_tools:
        return {"tool_choice": {"type": "any"}}
    return {}


def _thinking(request: LlmRequest, facts: ModelFacts, max_tokens: int) -> dict[str, Any]:
    """Return the arguments for the effort of reasoning, as the model takes them."""
    effort = request.reasoning
    if effort is None:
        return {}
    if effort == "none":
        if facts.without:
            return {"thinking": {"type": facts.without}}
        return {"output_config": {"effort": "low"}}
    if facts.thinking == "adaptive":
        # Newer models show their reasoning only as a summary, and only on request.
        thinking = {"type": "adaptive", "display": "summarized"}
        return {"thinking": thinking, "output_config": {"effort": effort}}
    budget = min(_BUDGETS[effort], max_tokens - 1)
    forced = bool(request.tools) and request.tool_choice == "required"
    if budget < _LEAST_BUDGET or forced:
        return {}
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


class _Writer:
    """Converts messages to Anthropic's format."""

    def __init__(self, provider_id: str, request: LlmRequest, media: MediaStore | None) -> None:
        self._provider_id = provider_id
        self._model = request.model
        self._tools = {tool.name for tool in request.tools}
        self._media = media

    def message(self, message: Message) -> dict[str, Any]:
        role = "assistant" if message.role == "assistant" else "user"
        blocks = (self._block(part, role) for part in message.parts)
        return {"role": role, "content": [block for block in blocks if block is not None]}

    def _block(self, part: Part, role: str) -> dict[str, Any] | None:
        if isinstance(part, TextPart):
            # The API refuses text of only blanks, though models write it.
            return {"type": "text", "text": part.text} if part.text.strip() else None
        if isinstance(part, ToolCallPart):
            return self._call(part)
        if isinstance(part, ToolResultPart):
            return self._result(part)
        if isinstance(part, ReasoningPart):
            return self._reasoning(part)
        # Media that a model made: the vendor's assistant messages can't hold them.
        return (
            write_medium(part, self._media, self._provider_id, self._model)
            if role == "user"
            else None
        )

    def _reasoning(self, part: ReasoningPart) -> dict[str, Any] | None:
        if part.origin != self._provider_id or not part.opaque:
            return None
        if part.opaque.startswith(REDACTED):
            return {"type": "redacted_thinking", "data": part.opaque.removeprefix(REDACTED)}
        return {"type": "thinking", "thinking": part.text, "signature": part.opaque}

    def _call(self, part: ToolCallPart) -> dict[str, Any]:
        arguments = arguments_of(part.arguments_json)
        return {
            "type": "tool_use",
            "id": portable_id(part.call_id),
            "name": portable_name(part.name, self._tools),
            "input": {"invalid_arguments": part.arguments_json} if arguments is None else arguments,
        }

    def _result(self, part: ToolResultPart) -> dict[str, Any]:
        blocks = (self._block(one, "user") for one in part.content)
        return {
            "type": "tool_result",
            "tool_use_id": portable_id(part.call_id),
            "content": [block for block in blocks if block is not None],
            "is_error": part.is_error,
        }


def write_medium(
    part: MediaPart, media: MediaStore | None, provider_id: str, model: str
) -> dict[str, Any]:
    """Return a medium as a block of a message, if the API takes such media."""
    kind = part.media_type
    if media is None:
        raise no_media_store(part, provider_id, model)
    content = media.read(part)
    if kind == "text/plain":
        text = content.decode("utf-8", "replace")
        source = {"type": "text", "media_type": kind, "data": text}
    elif kind == "application/pdf" or kind.startswith("image/"):
        data = base64.b64encode(content).decode("ascii")
        source = {"type": "base64", "media_type": kind, "data": data}
    else:
        raise LlmError(
            f"A medium of type {kind} can't be sent to {model}: the API takes images, PDF and "
            "plain text.",
            next_step="Convert it to one of these types.",
            kind="bad_request",
            provider=provider_id,
            model=model,
        )
    if kind.startswith("image/"):
        return {"type": "image", "source": source}
    title = {"title": part.name} if part.name else {}
    return {"type": "document", "source": source, **title}
