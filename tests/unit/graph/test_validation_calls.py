"""What graphs call, against what the called items declare."""

from collections.abc import Mapping

import pytest

from ryecore.errors import ItemNotFound
from ryecore.graph.reading import located
from ryecore.graph.validation.calls import called_items, check_calls
from ryecore.items.refs import ItemRef
from tests.unit.graph.written import PATH, cases, examined, written

SCHEMAS: Mapping[str, Mapping[str, object] | None] = {
    "tool:strict": {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "count": {"type": "integer"},
            "rows": {"type": "array", "items": {"$ref": "#/$defs/row"}},
            "mode": {"enum": ["fast", "slow"]},
        },
        "$defs": {"row": {"type": "object", "properties": {"n": {"type": "integer"}}}},
        "required": ["path"],
        "additionalProperties": False,
    },
    "tool:lax": {"type": "object", "properties": {"path": {"default": "."}}, "required": ["path"]},
    "tool:any": None,
    "directive:ask": {
        "type": "object",
        "properties": {"count": {"type": "integer"}, "text": {"type": "string"}},
        "required": ["count"],
        "additionalProperties": False,
    },
}

CASES = cases("calls")


def look_up(ref: ItemRef) -> Mapping[str, object] | None:
    if str(ref) not in SCHEMAS:
        raise ItemNotFound(f"There is no {ref}.", next_step="Write it.")
    return SCHEMAS[str(ref)]


@pytest.mark.parametrize("name", CASES)
def test_what_a_call_is_given_is_checked_against_what_its_item_declares(name: str) -> None:
    case = CASES[name]
    report = examined(case.text)
    assert report.errors == ()
    assert report.graph is not None

    found = check_calls(report.graph, look_up)

    told = located(found.warnings if name.startswith("warn") else found.errors, case.text, PATH)
    assert [(one.line, one.message) for one in told] == case.expected
    assert not (found.errors and found.warnings)


def test_each_item_is_looked_up_once() -> None:
    graph = examined(
        written("""
        config:
          start: a
          nodes:
            a: {action: {item_id: tool:any}, next: b}
            b: {type: foreach, over: [], action: {item_id: tool:any}, next: c}
            c: {action: {item_id: directive:ask, params: {count: 1}}}
        """)
    ).graph
    assert graph is not None
    asked: list[ItemRef] = []

    def look(ref: ItemRef) -> Mapping[str, object] | None:
        asked.append(ref)
        return None

    check_calls(graph, look)

    assert asked == [ItemRef("tool", "any"), ItemRef("directive", "ask")]
    assert called_items(graph) == tuple(asked)
