"""How results, chains and refusals look."""

import re

from hypothesis import given
from hypothesis import strategies as st

from ryecore.chain.rendering import (
    StyledText,
    render_chain,
    render_error,
    render_result,
    render_trace,
)
from ryecore.display.sanitize import shorten

ELEMENT = {"item_id": "a/t", "integrity": "ab" * 32, "space": "project"}
RESULT = {
    "status": "success",
    "item_id": "tool:a/t",
    "metadata": {"duration_ms": 7},
    "chain_elements": [ELEMENT],
}


def result(**changes: object) -> StyledText:
    return render_result(RESULT | changes)


def test_a_result_says_what_ran_how_it_ended_and_how_long_it_took():
    first, *_ = result(data=[1]).plain().splitlines()
    assert first == "✓ tool:a/t  success  7 ms"


def test_what_a_tool_printed_is_shown_as_it_was_printed():
    shown = result(data={"stdout": "one\ntwo\n", "stderr": "careful\n", "return_code": 0}).plain()
    assert "  one\n  two\n  stderr: careful" in shown


def test_a_failure_is_shown_once_and_the_rest_of_what_was_returned_stays():
    data = {
        "success": False,
        "status": "error",
        "error": "a: boom",
        "node": "a",
        "problems": [{"message": "boom", "line": 1}],
    }
    shown = result(status="error", error="a: boom\n", data=data).plain()
    assert shown.count("boom") == 1
    assert '"node": "a"' in shown
    other = result(status="error", error="a: boom", data={"error": "another", "status": "late"})
    assert '"error": "another"' in other.plain()
    assert '"status": "late"' in other.plain()
    bare = result(status="error", error="no", data={"success": False, "error": "no"}).plain()
    assert "{" not in bare
    assert '"error": "x"' in result(status="success", data={"error": "x"}).plain()


def test_a_refusal_by_an_mcp_server_is_shown_once():
    data = {"error_type": "mcp", "message": "It ended.", "next_step": "Mend it.", "server": "notes"}
    shown = result(status="error", error="It ended.", data=data).plain()
    assert (shown.count("It ended."), shown.count("Mend it.")) == (1, 1)
    assert '"server": "notes"' in shown
    content = {"content": [{"type": "text", "text": "Error executing tool search"}]}
    shown = result(status="error", error="Error executing tool search", data=content).plain()
    assert shown.count("Error executing") == 1
    content["content"].append({"type": "text", "text": "more"})
    assert '"more"' in result(status="error", error="Error executing", data=content).plain()


def test_a_long_error_is_shown_once():
    document = {"success": False, "error": "x" * 9000}
    error = shorten(document["error"])
    shown = result(status="error", error=error, data=document).plain()
    assert shown.count("x" * 300) == error.count("x" * 300)
    assert shown.count("… 4000 more characters") == 1


def test_no_line_of_a_next_step_is_empty():
    refused = render_error({}, "No.", "").plain()
    failed = result(status="error", error="No.", data={"error": "No.", "next_step": ""}).plain()
    assert "next:" not in refused + failed


def test_a_trace_does_not_repeat_the_error_above_it():
    trace = [{"step": "resolve", "item_id": "a/t", "failed": True, "error": "No a/t. Write it."}]
    shown = render_error({"item_id": "a/t", "trace": trace}, "No a/t.", "Write it.").plain()
    assert shown.count("No a/t.") == 1
    assert "resolve" in shown
    assert "No a/t." in render_trace(trace).plain()


def test_an_exit_code_is_shown():
    data = {"stdout": "", "stderr": "", "return_code": 3}
    shown = result(status="error", error="why", data=data).plain()
    assert shown.startswith("✗ tool:a/t  error")
    assert "exit code 3" in shown


def test_long_data_is_cut_and_what_is_cut_is_counted():
    shown = result(data={"stdout": "line\n" * 1000, "stderr": "", "return_code": 0}).plain()
    assert "more lines" in shown
    assert len(shown.splitlines()) < 100
    assert (
        len(result(data={"stdout": "x" * 100_000, "stderr": "", "return_code": 0}).plain()) < 2000
    )


def test_an_element_that_is_not_verified_stands_out():
    shown = render_chain([ELEMENT | {"integrity": "unverified"}])
    assert "unverified" in shown.plain()
    assert ("unverified", "warn") in shown.lines[0]


def test_a_failing_event_stands_out():
    shown = render_trace([{"step": "seal", "item_id": "a/t", "failed": True, "error": "why"}])
    assert shown.plain().startswith("✗ seal")
    assert "why" in shown.plain()


def test_an_event_of_an_unknown_step_is_shown_too():
    assert "colour=" in render_trace([{"step": "new", "colour": {"a": 1}}]).plain()


def test_a_refusal_shows_what_was_asked_for_the_reason_and_the_next_step():
    shown = render_error({"item_id": "tool:a/t"}, "It doesn't fit.", "Mend it.").plain()
    for part in ("tool:a/t", "refused", "It doesn't fit.", "Mend it."):
        assert part in shown


ANY_TEXT = st.text(max_size=50)
ANY_RESULT = st.builds(
    lambda item_id, stdout, error: (
        RESULT
        | {
            "item_id": item_id,
            "error": error,
            "data": {"stdout": stdout, "stderr": stdout, "return_code": 1},
        }
    ),
    ANY_TEXT,
    ANY_TEXT,
    ANY_TEXT,
)


@given(ANY_RESULT)
def test_no_text_steers_a_terminal(document):
    plain, styled = render_result(document).plain(), render_result(document).ansi()
    for shown in (plain, re.sub(r"\x1b\[[0-9;]*m", "", styled)):
        assert all(char.isprintable() or char in "\n\t" for char in shown)


@given(ANY_RESULT)
def test_no_text_becomes_markup(document):
    page = render_result(document).html()
    inside = re.sub(r"</?(?:pre|span)(?: style=\"[^\"<>]*\")?>", "", page)
    assert "<" not in inside
    assert ">" not in inside


def test_html_loads_nothing_from_elsewhere():
    page = result(data={"a": "http://example.org/x.png"}).html()
    assert not re.search(r"(src|href|url\()", page)
