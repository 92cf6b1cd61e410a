"""Where a conversation is cut for a summary, and what any conversation keeps."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ryecore.agent.compaction import cut_for_summary, summary_in, with_summary
from ryecore.llm import Message, TextPart
from ryecore.llm.messages import check_order
from tests.conversations import CONVERSATIONS


def unmarked(part: Any) -> Any:
    return TextPart(part.text) if isinstance(part, TextPart) else part


@given(
    messages=CONVERSATIONS.filter(lambda it: cut_for_summary(it, 0) > 0), most=st.integers(0, 60)
)
def test_calls_keep_their_results_and_the_user_the_last_word(
    messages: list[Message], most: int
) -> None:
    cut = cut_for_summary(messages, most) or cut_for_summary(messages, 0)
    shorter = with_summary(messages, cut, "Short.")
    check_order(shorter)
    assert shorter[0].role == "user"
    [summary] = [
        part
        for part in shorter[0].parts
        if isinstance(part, TextPart) and part.text.strip().startswith("<summary>")
    ]
    assert summary.summary_of
    assert "Short." in summary.text
    # The end is as it was, and not longer than allowed, but for one answer.
    end = messages[cut:]
    assert list(shorter[1:]) == end[len(end) - len(shorter) + 1 :]
    assert any(one.role == "assistant" for one in end)
    last = max(place for place, one in enumerate(messages) if one.role == "user")
    said = [part for part in messages[last].parts if not getattr(part, "summary_of", 0)]
    if last >= cut or not any(summary_in(one) for one in messages):
        assert all(part in [p for one in shorter for p in one.parts] for part in said)


@given(middle=CONVERSATIONS, most=st.integers(0, 20), again=st.integers(0, 20))
def test_a_second_summary_replaces_the_first(middle: list[Message], most: int, again: int) -> None:
    plain = [
        Message.user("One?"),
        Message.assistant("One."),
        *(Message(one.role, tuple(map(unmarked, one.parts))) for one in middle),
        Message.assistant("Two."),
    ]
    cut = cut_for_summary(plain, most) or cut_for_summary(plain, 0)
    more = [*with_summary(plain, cut, "First."), Message.user("More?"), Message.assistant("!")]
    cut_again = cut_for_summary(more, again) or cut_for_summary(more, 0)
    assert cut > 0 < cut_again
    second = with_summary(more, cut_again, "Second.")
    check_order(second)
    [summary] = [p for one in second for p in one.parts if getattr(p, "summary_of", 0)]
    assert "Second." in summary.text  # type: ignore[union-attr]
    assert "First." not in str(second)
    assert summary.summary_of == cut + cut_again - 1  # type: ignore[union-attr]
