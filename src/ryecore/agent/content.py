"""The content of a user's message: texts, media and files."""

from collections.abc import Sequence
from typing import Final, TypeAlias, cast

from ryecore.errors import AgentTurnError, InputError
from ryecore.llm.attachments import Media
from ryecore.llm.media import MediaStore
from ryecore.llm.parts import MediaPart, Message, TextPart
from ryecore.policy.cancelling import bounded_by
from ryecore.policy.context import CallContext, CancelToken

__all__ = ["Content", "check_content", "message_of"]

Content: TypeAlias = str | TextPart | MediaPart | Media
"""What can be sent: a text, or an image or a file."""

_CONTENT: Final = (str, TextPart, MediaPart, Media)


def check_content(content: Sequence[Content]) -> None:
    """Refuse an empty message, and what can't be sent."""
    for one in content:
        if not isinstance(one, _CONTENT):
            raise InputError(
                f"A {type(one).__name__} can't be sent to an agent.",
                next_step="Pass texts and media, such as Media(path); messages go to "
                "AgentSession(messages=...).",
            )
    if not any(not isinstance(one, str) or one.strip() for one in content):
        raise InputError("The message is empty.", next_step="Pass a text or a medium.")


async def message_of(
    content: Sequence[Content],
    store: MediaStore,
    call: CallContext,
    cancellation: CancelToken | None,
) -> Message:
    """Return the message of the user; files are read and kept in a store of media."""
    if not any(isinstance(one, Media) for one in content):
        return Message.user(*cast("Sequence[str | TextPart | MediaPart]", content))
    with bounded_by(cancellation, call.cancellation, deadline=call.deadline):
        return Message.user(
            *[await one.part(store) if isinstance(one, Media) else one for one in content]
        )
    raise AgentTurnError("The message was cancelled.", code="cancelled", retryable=False)
