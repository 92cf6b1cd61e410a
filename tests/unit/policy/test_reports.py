"""What tools report and ask, as values."""

import pytest

from ryecore.policy.reports import ToolLog, ToolProgress, event_of, why_not_asked


@pytest.mark.parametrize(
    ("declared", "capabilities", "why"),
    [
        (["elicit"], None, None),
        (["elicit", "roots"], ["rye.ask.elicit.acme.sub.t"], None),
        (["elicit"], ["rye.ask.*"], None),
        (["elicit"], ["rye.*"], None),
        (["elicit"], ["rye.ask.*.acme.*"], None),
        (["elicit"], [], "lacks the capability rye.ask.elicit.acme.sub.t"),
        (["elicit"], ["rye.execute.*", "rye.ask.sample.*"], "lacks the capability"),
        (["elicit"], ["rye.ask.elicit.acme.sub"], "lacks the capability"),
        (["roots"], None, "doesn't declare elicit in may_ask"),
        ([], ["*"], "doesn't declare elicit in may_ask"),
    ],
)
def test_a_question_needs_its_declaration_and_a_capability(
    declared: list[str], capabilities: list[str] | None, why: str | None
) -> None:
    found = why_not_asked("elicit", "acme/sub/t", declared, capabilities)
    assert found is None if why is None else why in str(found)


def test_a_report_is_an_event_with_what_it_says() -> None:
    assert event_of(ToolProgress("tool:a/t", "c", 1)) == {
        "step": "progress", "item_id": "tool:a/t", "call_id": "c", "progress": 1,
    }  # fmt: skip
    assert event_of(ToolLog("tool:a/t", "c", "info", None)) == {
        "step": "log", "item_id": "tool:a/t", "call_id": "c", "level": "info", "data": None,
    }  # fmt: skip
