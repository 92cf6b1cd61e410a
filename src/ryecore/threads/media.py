"""The media of threads whose host has no store of media: kept with a thread's large results.

They are pruned with the thread. A thread that continues another one gets copies of its own, so that
it needs no other thread's files.
"""

from collections.abc import Callable, Iterable

from attrs import evolve

from ryecore.errors import StoreError
from ryecore.llm.media import MediaStore, media_digest, media_handle
from ryecore.llm.parts import MediaPart, Message, Part, ResultContent, TextPart, ToolResultPart
from ryecore.state.store import ThreadStore

__all__ = ["ThreadMediaStore", "carry_media", "has_media", "replace_media"]


class ThreadMediaStore:
    """The store of one thread's media. Nothing is made before the first medium is stored.

    Args:
        store: The project's threads.
        thread_id: The thread.
        takes: Says whether the thread's models take media of a type. Other media are refused, so
            that the model is told their type and size.
    """

    def __init__(
        self,
        store: ThreadStore,
        thread_id: str,
        takes: Callable[[str], bool] | None = None,
    ) -> None:
        self._store = store
        self._thread_id = thread_id
        self._takes = takes

    def takes(self, media_type: str) -> bool:
        """Return whether the thread's models take media of a type."""
        return self._takes is None or self._takes(media_type)

    def put(self, content: bytes, media_type: str, name: str = "") -> MediaPart:
        """Store content, and return its handle; see `MediaStore.put`."""
        if not self.takes(media_type):
            raise StoreError(
                f"The thread's model takes no {media_type}.",
                next_step="Choose a model that takes such media, for the directive and its "
                "fallback.",
            )
        digest = self._store.put_artifact(self._thread_id, content)
        return MediaPart(media_handle(digest), media_type, len(content), name)

    def read(self, part: MediaPart) -> bytes:
        """Read the content of a handle; see `MediaStore.read`."""
        return self._store.get_artifact(self._thread_id, media_digest(part))


def carry_media(
    messages: Iterable[Message], source: MediaStore, target: MediaStore | None
) -> tuple[Message, ...]:
    """Return a conversation to continue, whose media can all be read. It blocks.

    Args:
        messages: The conversation.
        source: The store of its media. Media that it can't read are replaced by type and size.
        target: The store that gets a copy of the others; None for no copy.
    """
    seen: dict[str, bool] = {}

    def carried(part: MediaPart) -> bool:
        if part.handle not in seen:
            try:
                content = source.read(part)
                if target is not None:
                    target.put(content, part.media_type, part.name)
            except StoreError:
                seen[part.handle] = False
            else:
                seen[part.handle] = True
        return seen[part.handle]

    return replace_media(messages, carried)


def has_media(messages: Iterable[Message]) -> bool:
    """Return whether messages, or results of tools in them, have media."""
    parts = [part for message in messages for part in message.parts]
    return any(
        isinstance(one, MediaPart)
        for part in parts
        for one in (part.content if isinstance(part, ToolResultPart) else (part,))
    )


def replace_media(
    messages: Iterable[Message], keeps: Callable[[MediaPart], bool]
) -> tuple[Message, ...]:
    """Return messages in which text with type and size stands for media that aren't kept."""

    def said(one: ResultContent) -> ResultContent:
        if isinstance(one, MediaPart) and not keeps(one):
            return TextPart(f"[{one.media_type}, {one.size_bytes:,} bytes]")
        return one

    def part_said(part: Part) -> Part:
        if isinstance(part, ToolResultPart):
            return evolve(part, content=tuple(map(said, part.content)))
        return said(part) if isinstance(part, MediaPart) else part

    return tuple(
        evolve(message, parts=tuple(map(part_said, message.parts)))
        if has_media([message])
        else message
        for message in messages
    )
