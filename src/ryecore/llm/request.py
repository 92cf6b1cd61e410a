"""Requests to models, and the capabilities of models."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

from attrs import field

from ryecore.frozen import frozen
from ryecore.llm.parts import MediaPart, Message, ReasoningPart, ToolResultPart

__all__ = [
    "CacheLifetime",
    "Capabilities",
    "Contents",
    "LlmRequest",
    "ReasoningEffort",
    "ResponseFormat",
    "ToolChoice",
    "ToolSpec",
    "missing_capabilities",
]


class Contents:
    """A summary of the media types and reasoning providers in a conversation that grows."""

    __slots__ = ("_seen", "media_types", "reasoned_by")

    def __init__(self) -> None:
        self._seen: tuple[Message, ...] = ()
        self.media_types: set[str] = set()
        self.reasoned_by: set[str] = set()

    def look(self, messages: tuple[Message, ...]) -> None:
        """Read the new messages; read all if they don't continue the conversation."""
        known = len(self._seen)
        if messages[:known] != self._seen:
            known = 0
            self.media_types, self.reasoned_by = set(), set()
        self._seen = messages
        for message in messages[known:]:
            for part in message.parts:
                if type(part) is MediaPart:
                    self.media_types.add(part.media_type)
                elif type(part) is ReasoningPart:
                    self.reasoned_by.add(part.origin)
                elif type(part) is ToolResultPart:
                    for one in part.content:
                        if type(one) is MediaPart:
                            self.media_types.add(one.media_type)


CacheLifetime: TypeAlias = Literal["5m", "1h"]
"""The time that a provider should keep what it read: five minutes, or an hour."""

ReasoningEffort: TypeAlias = Literal["none", "low", "medium", "high"]
ToolChoice: TypeAlias = Literal["auto", "none", "required"]


@frozen
class ToolSpec:
    """A tool as the model sees it.

    Attributes:
        name: Its exact name for the model.
        description: Its description for the model.
        parameters: The JSON Schema of its arguments, which are an object.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]


@frozen
class ResponseFormat:
    """The wanted form of the answer. It is a hint: answers are checked all the same.

    Attributes:
        schema: The answer's JSON Schema.
        name: The schema's name, for providers that need one.
    """

    schema: Mapping[str, Any]
    name: str = "output"


@frozen(slots=False)
class LlmRequest:
    """One request to a model.

    Attributes:
        model: The model's name, as its provider spells it.
        messages: The conversation.
        system: The system text; empty for none.
        tools: The tools that the model may call.
        tool_choice: Whether the model may, must not, or must call a tool.
        max_output_tokens: The bound of the answer; None for the provider's own.
        temperature: From 0 to 2; None for the provider's own.
        response_format: The wanted form of the answer.
        reasoning: The effort of reasoning; None for the model's own.
        stop: Texts that end the answer.
        cache: The least time for which the provider should keep what it reads for the next request,
            where that can be chosen; None to ask for no caching.
    """

    model: str
    messages: tuple[Message, ...]
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    max_output_tokens: int | None = None
    temperature: float | None = None
    response_format: ResponseFormat | None = None
    reasoning: ReasoningEffort | None = None
    stop: tuple[str, ...] = ()
    cache: CacheLifetime | None = "5m"

    @property
    def system_with_schema(self) -> str:
        """The system text with the answer's schema, for a model that takes it in no other way."""
        if self.response_format is None:
            return self.system
        schema = json.dumps(dict(self.response_format.schema))
        return f"{self.system}\n\nAnswer with JSON that fits this schema: {schema}".lstrip()


def _as_set(media_types: Iterable[str]) -> frozenset[str]:
    return frozenset(media_types)


@frozen
class Capabilities:
    """The capabilities of a model. An unknown capability should be declared as possible.

    Attributes:
        tools: Whether it can call tools.
        parallel_tools: Whether it can call several tools in one turn.
        reasoning: Whether it can reason before it answers.
        response_format: Whether it takes a schema for its answer.
        input_media: The media types that it takes, such as `image/png` or `image/*`.
        context_tokens: The size of its context; None if unknown.
        max_output_tokens: The most that it writes; None if unknown.
    """

    tools: bool = True
    parallel_tools: bool = True
    reasoning: bool = False
    response_format: bool = True
    input_media: frozenset[str] = field(default=frozenset(), converter=_as_set)
    context_tokens: int | None = None
    max_output_tokens: int | None = None

    def takes(self, media_type: str) -> bool:
        """Return whether the model takes media of a type."""
        return media_type in self.input_media or (
            f"{media_type.partition('/')[0]}/*" in self.input_media or "*/*" in self.input_media
        )


def missing_capabilities(
    request: LlmRequest, has: Capabilities, contents: Contents | None = None
) -> tuple[str, ...]:
    """List the capabilities that a request needs and a model lacks, in words.

    Args:
        request: The request.
        has: The capabilities of the model.
        contents: The summary of the request's messages, if it was made already.
    """
    missing: list[str] = []
    if request.tools and not has.tools:
        missing.append("tools")
    if contents is None:
        contents = Contents()
        contents.look(request.messages)
    if contents.media_types:
        unread = sorted(one for one in contents.media_types if not has.takes(one))
        missing.extend(f"input of type {one}" for one in unread)
    return tuple(missing)
