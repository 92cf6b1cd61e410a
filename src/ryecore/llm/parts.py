"""Messages and their parts, independent of any vendor's types."""

from typing import ClassVar, Literal, Self, TypeAlias

from attrs import field

from ryecore.convert.fields import omitted_at_default
from ryecore.frozen import frozen

__all__ = [
    "MediaPart",
    "Message",
    "Part",
    "ReasoningPart",
    "ResultContent",
    "Role",
    "TextPart",
    "ToolCallPart",
    "ToolResultPart",
]

Role: TypeAlias = Literal["user", "assistant", "tool"]


@frozen
class TextPart:
    """Text.

    Attributes:
        text: The text.
        summary_of: How many earlier messages it stands for, where it is their summary; else 0.
    """

    type: ClassVar[Literal["text"]] = "text"

    text: str
    summary_of: int = field(default=0, metadata=omitted_at_default())


@frozen
class ReasoningPart:
    """A model's reasoning. It is sent back only to the provider that it came from.

    Attributes:
        text: The readable text; empty if the provider shows none.
        origin: The id of the provider that it came from.
        opaque: What that provider needs to accept it again: a signature, or encrypted content.
            Without text, it belongs to the part that follows.

    Source: decision 56.
    """

    type: ClassVar[Literal["reasoning"]] = "reasoning"

    text: str
    origin: str
    opaque: str = ""


@frozen
class ToolCallPart:
    """A model's request to call a tool.

    Attributes:
        call_id: The id that its result refers to.
        name: The tool's name, as the model wrote it.
        arguments_json: The arguments as the model wrote them, JSON or not.
    """

    type: ClassVar[Literal["tool_call"]] = "tool_call"

    call_id: str
    name: str
    arguments_json: str


@frozen
class MediaPart:
    """An image, a sound, a video or a document, by the handle of its content.

    Attributes:
        handle: `media://` and the SHA-256 of the content in hex.
        media_type: Such as `image/png`.
        size_bytes: The size of the content.
        name: The file's name, if it has one.
    """

    type: ClassVar[Literal["media"]] = "media"

    handle: str
    media_type: str
    size_bytes: int
    name: str = ""


ResultContent: TypeAlias = TextPart | MediaPart


@frozen(slots=False)
class ToolResultPart:
    """The result of a tool call, as the model sees it.

    Attributes:
        call_id: The call that it answers.
        name: The tool's name.
        content: Texts, which are JSON if the tool returned data, and media.
        is_error: Whether the call failed.
        untrusted: Whether it may hold text of untrusted origin. It is for the host; no adapter
            sends it to a model.
    """

    type: ClassVar[Literal["tool_result"]] = "tool_result"

    call_id: str
    name: str
    content: tuple[ResultContent, ...]
    is_error: bool = False
    untrusted: bool = True

    @property
    def text(self) -> str:
        """The texts, joined."""
        return "".join(part.text for part in self.content if isinstance(part, TextPart))


Part: TypeAlias = TextPart | ReasoningPart | ToolCallPart | ToolResultPart | MediaPart


@frozen
class Message:
    """One message of a conversation.

    Attributes:
        role: The speaker. The results of tools are messages of the role `tool`.
        parts: The content, in order.
    """

    role: Role
    parts: tuple[Part, ...]

    @classmethod
    def user(cls, *content: str | TextPart | MediaPart) -> Self:
        """Return a message of the user, made of texts and media."""
        return cls("user", tuple(TextPart(one) if isinstance(one, str) else one for one in content))

    @classmethod
    def assistant(cls, *content: str | Part) -> Self:
        """Return a message of the model."""
        return cls(
            "assistant", tuple(TextPart(one) if isinstance(one, str) else one for one in content)
        )

    @classmethod
    def results(cls, *results: ToolResultPart) -> Self:
        """Return a message with the results of tool calls, in the order of the calls."""
        return cls("tool", results)

    @property
    def text(self) -> str:
        """The texts, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def tool_calls(self) -> tuple[ToolCallPart, ...]:
        """The tool calls, in order."""
        return tuple(part for part in self.parts if isinstance(part, ToolCallPart))
