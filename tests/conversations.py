"""Any conversation, for property tests: all kinds of parts, and calls that share an id."""

from hypothesis import strategies as st

from ryecore.llm import (
    MediaPart,
    Message,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

TEXT = st.text(st.characters(), max_size=8)  # halves of characters, too
TEXTS = st.builds(TextPart, TEXT, st.integers(0, 2))  # some are summaries
MEDIA = st.builds(MediaPart, TEXT, TEXT, st.integers(0), TEXT)
REASONING = st.builds(ReasoningPart, TEXT, TEXT, TEXT)
CONTENT = st.lists(TEXTS | MEDIA, max_size=3).map(tuple)
CALLS = st.builds(ToolCallPart, st.sampled_from("abc"), TEXT, TEXT)  # ids repeat
USER = st.lists(TEXTS | MEDIA, min_size=1, max_size=3).map(lambda it: Message("user", tuple(it)))


@st.composite
def turns(draw: st.DrawFn) -> list[Message]:
    """What one answer adds: the answer, the results of its calls or a nudge."""
    said = draw(st.lists(TEXTS | REASONING | MEDIA, max_size=2))
    calls = draw(st.lists(CALLS, max_size=3))
    added = [Message("assistant", (*said, *calls))] if said or calls else []
    if calls:
        results = [
            ToolResultPart(
                call.call_id, call.name, draw(CONTENT), draw(st.booleans()), draw(st.booleans())
            )
            for call in calls
        ]
        added.append(Message("tool", tuple(results)))
    return [*added, *draw(st.lists(USER, max_size=1))]


CONVERSATIONS = st.tuples(USER, st.lists(turns(), max_size=4)).map(
    lambda it: [it[0], *(message for turn in it[1] for message in turn)]
)
