"""Tool calls that a model writes as text."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.llm.parts import TextPart, ToolCallPart, ToolResultPart
from ryecore.llm.request import ToolSpec
from ryecore.threads.calls.text_calls import (
    extract_tool_calls,
    render_call,
    render_results,
    render_tools,
)

SEARCH = ToolSpec(
    "search",
    "Finds.",
    {
        "type": "object",
        "properties": {
            "words": {"type": "string"},
            "limit": {"type": "integer"},
            "tags": {"type": "array"},
            "note": {"type": ["string", "null"]},
            "kind": {"enum": ["1", 2]},
        },
    },
)


def called(text: str) -> list[tuple[str, Any]]:
    """What is called; the answer must not be malformed."""
    found = extract_tool_calls(text, tools=[SEARCH])
    assert found.problem == ""
    return [(one.name, json.loads(one.arguments_json)) for one in found.calls]


def problem(text: str) -> str:
    """What is wrong with an answer; nothing of it is run."""
    found = extract_tool_calls(text)
    assert found.calls == ()
    assert found.text == text
    return found.problem


ONE = '<invoke name="search">\n<parameter name="words">tides</parameter>\n</invoke>'


@pytest.mark.parametrize(
    "text",
    [
        ONE,
        f"Let me look.\n{ONE}",
        f"Let me look: {ONE} And then.",
        f"<function_calls>\n{ONE}\n</function_calls>",
        ONE.replace('"', "'"),
        ONE.replace("\n", "\r\n"),
        '```tool_call\r\n{"name": "search", "arguments": {"words": "tides"}}\r\n```\r\n',
        '<invoke name="search"><parameter name="words">\ntides\n</parameter></invoke>',
        '```tool_call\n{"name": "search", "arguments": {"words": "tides"}}\n```',
        '```json\n{"arguments": {"words": "tides"}, "name": "search"}\n```',
        '~~~ json\n{"name": "search",\n "arguments": {"words": "tides"}}\n~~~',
        'So:\n\n````TOOL_CALL\n{"name": "search", "arguments": {"words": "tides"}}\n````\n',
    ],
)
def test_a_call_is_found_in_each_of_its_forms(text: str) -> None:
    assert called(text) == [("search", {"words": "tides"})]


def test_several_calls_keep_their_order_and_get_ids_of_their_own() -> None:
    text = (
        f'First.\n<function_calls>\n{ONE}\n<invoke name="b"></invoke>\n</function_calls>\nThen.'
        '\n```tool_call\n{"name": "c", "arguments": {}}\n```\nLast.'
    )

    found = extract_tool_calls(text, start=7)

    assert [(one.call_id, one.name) for one in found.calls] == [
        ("textcall_7", "search"), ("textcall_8", "b"), ("textcall_9", "c"),
    ]  # fmt: skip
    assert found.text.split() == ["First.", "Then.", "Last."]


def test_parameters_have_the_types_that_the_tool_wants() -> None:
    text = (
        '<invoke name="search"><parameter name="words">5</parameter>'
        '<parameter name="limit"> 5 </parameter><parameter name="tags">["a"]</parameter>'
        '<parameter name="note">null</parameter><parameter name="kind">1</parameter>'
        '<parameter name="other">{"a": [1]}</parameter><parameter name="bare">so so</parameter>'
        '<parameter name="zip">01234</parameter><parameter name="quoted">"x"</parameter></invoke>'
    )

    assert called(text) == [
        ("search", {
            "words": "5", "limit": 5, "tags": ["a"], "note": "null", "kind": "1",
            "other": {"a": [1]}, "bare": "so so", "zip": "01234", "quoted": '"x"',
        })
    ]  # fmt: skip


def test_a_value_may_hold_marks_of_code_and_anything_but_its_own_end() -> None:
    code = 'echo `date`\n```python\nprint("<invoke name=\\"x\\">")\n```\n  a < b'
    text = f'<invoke name="search"><parameter name="words">{code}</parameter></invoke>'

    assert called(text) == [("search", {"words": code})]


@pytest.mark.parametrize(
    "text",
    [
        "Just text.",
        "",
        f"```\n{ONE}\n```",
        f"```xml\n{ONE}\n```\nThat is how.",
        f"~~~\n{ONE}\n~~~",
        f"```\n{ONE}",
        f"An example: `{ONE.replace(chr(10), '')}` so.",
        'Write `<invoke name="x">` for that.',
        '```json\n{"name": "Ada", "age": 3}\n```',
        '```json\n{"name": "search", "arguments": {"words": "tides"}',
        "```json\n[1, 2]\n```",
        '```python\n{"name": "search", "arguments": {}}\n```',
        '{"name": "search", "arguments": {}}',
        "We <invoke>d it.",
        f"```\r\n{ONE}\r\n```\r\n",
        "<function_calls></function_calls>",
        '````\n```tool_call\n{"name": "a", "arguments": {}}\n```\n````',
    ],
)
def test_what_only_quotes_a_call_or_is_none_is_text(text: str) -> None:
    found = extract_tool_calls(text)

    assert (found.text, found.calls, found.problem) == (text, (), "")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("<invoke name=search></invoke>", "not of the form"),
        ('<invoke tool="search"></invoke>', "not of the form"),
        ('<invoke name="search"', "not of the form"),
        ('<invoke name="search">', "is not closed"),
        ('<invoke name="search">tides</invoke>', "something besides its parameters"),
        ('<invoke name="a"><parameter name="b">c</invoke>', "parameter b of a is not closed"),
        ('<invoke name="a"><parameter name="b">1</parameter>x</invoke>', "something besides"),
        (
            '<invoke name="a"><parameter name="b">1</parameter>'
            '<parameter name="b">2</parameter></invoke>',
            "is there twice",
        ),
        ('```tool_call\n{"name": "a"}\n```', "not one JSON object"),
        ('```tool_call\n{"name": "a", "arguments": "x"}\n```', "not one JSON object"),
        ('```tool_call\n{"name": "a", "parameters": {}}\n```', "not one JSON object"),
        ('```tool_call\n{"name": "a", "arguments": {"x": NaN}}\n```', "not one JSON object"),
        ('```tool_call\n{"name": "a", "arguments": {}, "also": 1}\n```', "not one JSON object"),
        ('```tool_call\n{"name": "a", "arguments": {}}', "is not closed"),
        (f"{ONE}\n<invoke name=", "not of the form"),
        (f'{ONE}\n```tool_call\nsearch("x")\n```', "not one JSON object"),
    ],
)
def test_what_can_not_be_read_for_certain_runs_nothing_and_is_told(text: str, says: str) -> None:
    told = problem(text + "\n" if text.endswith("=") else text)

    assert says in told
    assert "none of its calls was run" in told
    assert "```tool_call" in told


def test_a_model_is_told_its_tools_and_how_to_call_one() -> None:
    told = render_tools([SEARCH])

    assert "### search\nFinds." in told
    assert json.dumps(SEARCH.parameters) in told
    assert called(told) == [("TOOL", {})]  # the very form that it is shown is read
    assert render_tools([]) == ""


def test_results_are_told_with_their_calls_and_can_not_leave_their_block() -> None:
    text = '```\n<invoke name="x"></invoke>\n````\n'
    results = [
        ToolResultPart("textcall_1", "a", (TextPart('{"n": 1}'),)),
        ToolResultPart("textcall_2", "b", (TextPart(text),), is_error=True),
    ]

    told = render_results(results)

    assert 'Tool result of a (textcall_1):\n```\n{"n": 1}\n```' in told
    assert f"Tool error of b (textcall_2):\n`````\n{text}\n`````" in told
    assert extract_tool_calls(told).calls == ()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
CALLS = st.lists(st.tuples(st.text(min_size=1), st.dictionaries(st.text(), JSON)), max_size=4)
PROSE = st.text(st.characters(exclude_characters="`~<", exclude_categories=["Cs"]))


@given(CALLS, PROSE, st.integers(1, 1_000))
def test_what_is_rendered_is_read_again(
    calls: list[tuple[str, dict[str, Any]]], prose: str, start: int
) -> None:
    written = [
        ToolCallPart(f"textcall_{start + place}", name, json.dumps(arguments))
        for place, (name, arguments) in enumerate(calls)
    ]
    text = "\n".join([prose, *(render_call(one.name, one.arguments_json) for one in written)])

    found = extract_tool_calls(text, start=start)

    assert found.problem == ""
    assert [(one.call_id, one.name) for one in found.calls] == [
        (one.call_id, one.name) for one in written
    ]
    assert [json.loads(one.arguments_json) for one in found.calls] == [
        json.loads(one.arguments_json) for one in written
    ]
    assert all(one.arguments_json.encode() for one in found.calls)


PIECES = st.lists(
    st.sampled_from([
        "```", "```json\n", "```tool_call\n", "\n", "`", "~~~", "<invoke ", '<invoke name="a">',
        "</invoke>", '<parameter name="p">', "</parameter>", "<function_calls>", '{"name": "a", ',
        '"arguments": {}}', " ", "x", "5",
    ]),
    max_size=30,
).map("".join)  # fmt: skip


@given(PIECES)
def test_whatever_is_written_it_is_text_or_calls_or_told(text: str) -> None:
    found = extract_tool_calls(text)

    if found.problem or not found.calls:
        assert found.text == text
    assert not (found.problem and found.calls)
    for call in found.calls:
        assert isinstance(json.loads(call.arguments_json), dict)
        assert call.name


@given(PIECES.filter(lambda one: "`" not in one and "~" not in one))
def test_a_fence_quotes_whatever_stands_in_it(text: str) -> None:
    quoted = f"```xml\n{text}\n```"

    assert extract_tool_calls(quoted).calls == ()
    assert extract_tool_calls(quoted).problem == ""


@pytest.mark.parametrize("unit", ["`", "``` ", "<invoke ", "\n```", "`a\n", "<invoke name='a'>"])
def test_a_long_answer_takes_time_that_grows_with_its_length(unit: str) -> None:
    def seconds(chars: int) -> float:
        text = unit * (chars // len(unit))
        times = []
        for _ in range(3):
            began = time.process_time()
            assert extract_tool_calls(text).calls == ()
            times.append(time.process_time() - began)
        return min(times)

    # Sixteen times the text: were it quadratic, that would take 256 times as long.
    assert seconds(320_000) < 100 * max(seconds(20_000), 1e-4)
