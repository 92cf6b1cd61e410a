"""What stands in a conversation's messages: each is looked at once, however often it is sent."""

from ryecore.llm.parts import MediaPart, Message, ReasoningPart, ToolResultPart

__all__ = ["Contents"]


class Contents:
    """What stands in a conversation that grows from request to request.

    Attributes:
        media_types: The types of all media in it, those in tools' results too.
        reasoned_by: The ids of the providers whose reasoning stands in it.
    """

    __slots__ = ("_seen", "media_types", "reasoned_by")

    def __init__(self) -> None:
        self._seen: tuple[Message, ...] = ()
        self.media_types: set[str] = set()
        self.reasoned_by: set[str] = set()

    def look(self, messages: tuple[Message, ...]) -> None:
        """Look at what is new; at everything, where it isn't the same conversation that grew."""
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
