"""What a stranger writes steers, forges and hides nothing, on every surface that people read."""

import json
import logging
import re
import sys
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest

from ryecore.chain.rendering import render_error, render_result, render_trace
from ryecore.cli.output import show_json
from ryecore.cli.threads_transcript import record_lines
from ryecore.cli.work import LogFormatter
from ryecore.display import Box, Line, Picture, to_html, to_mermaid, to_svg
from ryecore.display.sanitize import (
    drop_invisible,
    escape_controls,
    escape_markdown,
    is_visible,
    replace_controls,
    replace_invisible,
    to_one_line,
    warn,
)
from ryecore.display.text import StyledText
from ryecore.mcp_client.pins import ToolDeclaration
from ryecore.state.events import RunEvent
from ryecore.threads.records.conversation import fenced
from ryecore.threads.records.export import frontmatter
from ryecore.threads.rendering import render_change, render_tree
from ryecore.threads.tree_node import TreeNode

HOSTILE = {
    "escape": "\x1b]0;owned\x07\x1b[2Jx",
    "one-byte escape": "\x9b31mx",
    "return": "safe\roverwritten",
    "backspace": "rm\b\bls",
    "line feed": "first\n✓ forged",
    "line separators": "a\u2028b\u2029c\x85d\x0be\x0cf",
    "turned direction": "\u202etxt.exe\u2066x\u2069",
    "zero width": "a\u200bb\u200cc\u2060d\ufeffe",
    "tags": "x\U000e0041\U000e0042",
    "soft hyphen": "pass\xadword",
    "nul": "a\0b\x7fc",
    "half a character": "a\ud800b",
    "markup": "<script>alert('&\"')</script><!-- ]]>",
    "mermaid": 'x"]; click n0 call evil() %% #quot;',
    "markdown": "```\n# forged",
}

NODE = TreeNode("thread", "directive:x", "error", started_at=0.0, ended_at=1.0)


def _styled(make: Callable[[str], StyledText]) -> dict[str, Callable[[str], str]]:
    """The three ways in which styled text is shown."""
    own = re.compile("\x1b\\[\\d+m")
    return {
        "terminal": lambda text: own.sub("", make(text).ansi()),
        "log": lambda text: make(text).plain(),
        "html": lambda text: _texts(make(text).html()),
    }


def _texts(markup: str) -> str:
    """The texts of markup, which has to be well-formed and to hold no elements but ours."""
    root = ET.fromstring(markup)
    names = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert names <= {
        *("div", "pre", "span", "svg", "title", "desc", "style"),
        *("g", "rect", "path", "polygon", "text", "circle"),
    }
    return "".join(root.itertext())


def _line(text: str) -> StyledText:
    lines = StyledText()
    lines.line("before ", (text, "bad"), (" after", ""))
    return lines


def _node(text: str) -> TreeNode:
    return TreeNode(text, f"directive:{text}", "error", started_at=0.0, ended_at=1.0, note=text)


def _change(text: str) -> StyledText:
    lines = StyledText()
    lines.line(*render_change(_node(text), now=2.0))
    return lines


def _result(text: str) -> StyledText:
    return render_result({"status": "error", "item_id": text, "error": text, "data": {text: text}})


def _trace(text: str) -> StyledText:
    return render_trace([{"step": text, "item_id": text, "failed": True, "error": text}])


def _record(text: str) -> StyledText:
    payload = {"tool": text, "input": {text: text}, "text": text}
    return record_lines(RunEvent("thread", 0.0, "tool_call_start", payload))


def _error(text: str) -> StyledText:
    return render_error({"item_id": text, "trace": [{"step": "x", "k": text}]}, text, text)


def _picture(text: str) -> Picture:
    boxes = (Box("a", text, (text,), status="failed", tooltip=text), Box("b", "b"))
    return Picture(boxes, (Line("a", "b", text),), text)


def _warning(text: str) -> str:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        warn(text)
    return str(shown[0].message)


def _log_line(text: str) -> str:
    record = logging.LogRecord("x", logging.INFO, "", 0, "The run %s begins.", (text,), None)
    return LogFormatter().format(record)


def _traceback(text: str) -> str:
    try:
        raise ValueError(text)
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "", 0, "It failed.", (), sys.exc_info())
        return LogFormatter().format(record)


SURFACES: dict[str, Callable[[str], str]] = {
    **{
        f"{name}, {how}": surface
        for name, make in {
            "line": _line,
            "tree": lambda text: render_tree([_node(text)], width=60, now=2.0),
            "change": _change,
            "result": _result,
            "trace": _trace,
            "record": _record,
            "error": _error,
        }.items()
        for how, surface in _styled(make).items()
    },
    "svg": lambda text: _texts(to_svg(_picture(text))),
    "notebook picture": lambda text: _texts(to_html(_picture(text))),
    "mermaid": lambda text: to_mermaid(_picture(text)),
    "warning": _warning,
    "declaration of an MCP tool": lambda text: "\n".join(ToolDeclaration(text, text, {}).lines()),
    "log on a terminal": lambda text: replace_controls(text, keep="\n\t"),
    "log line": _log_line,
    "traceback in a log": _traceback,
    "field of an export": lambda text: frontmatter({"name": text}),
    "search": lambda text: replace_controls(text, " "),
}


@pytest.mark.parametrize("surface", SURFACES)
def test_no_surface_lets_a_text_steer_or_hide(surface: str) -> None:
    for case, text in HOSTILE.items():
        shown = SURFACES[surface](text)
        assert [char for char in shown if not char.isprintable() and char not in "\n\t"] == [], case


ONE_LINE = {"line", "log line", "change", "trace", "warning", "field of an export"}


@pytest.mark.parametrize("surface", [one for one in SURFACES if one.partition(",")[0] in ONE_LINE])
def test_a_text_forges_no_line(surface: str) -> None:
    for case, text in HOSTILE.items():
        assert SURFACES[surface](text).count("\n") == SURFACES[surface]("x").count("\n"), case


@pytest.mark.parametrize("case", HOSTILE)
def test_printed_json_is_the_document_and_steers_nothing(
    case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show_json({HOSTILE[case]: HOSTILE[case]})
    printed = capsys.readouterr().out
    assert printed.replace("\n", "").isprintable()
    assert json.loads(printed) == {HOSTILE[case]: HOSTILE[case]}


@pytest.mark.parametrize("case", HOSTILE)
def test_names_and_questions_show_all_that_they_hold(case: str) -> None:
    for text in (HOSTILE[case], f"a\u3164b\u115f\u2800\ufe0f{HOSTILE[case]}"):
        assert all(map(is_visible, replace_invisible(text)))
        assert all(is_visible(char) or char.isspace() for char in drop_invisible(text))


@pytest.mark.parametrize("case", HOSTILE)
def test_a_fence_holds_what_stands_in_it(case: str) -> None:
    first, *_, last = fenced(HOSTILE[case]).rstrip("\n").split("\n")
    mark = first.removesuffix("text")
    assert set(mark) == {"`"} == set(last)
    assert mark == last
    assert mark not in escape_markdown(HOSTILE[case])


def test_what_is_spelled_out_can_be_read() -> None:
    assert escape_controls("a\x1b[2J\u202eb\tc") == "a\\x1b[2J\\u202eb\tc"
    assert escape_controls("a\nb", keep="\n") == "a\nb"
    assert replace_controls("a\x1bb\nc", keep="\n") == "a�b\nc"
    assert to_one_line("  a \r\n b\x07 ") == "a b�"
    assert escape_markdown("é\xa0👍🏽\ufe0f\r\n\x1b\u200b") == "é\xa0👍🏽\ufe0f\n\\x1b\\u200b"


def test_a_space_is_the_one_blank_that_counts_as_visible() -> None:
    visible = [
        char for char in " \t\n\r\x0b\x0c\xa0\u2003\u200b\u3164\u2800\ufe0f" if is_visible(char)
    ]
    assert visible == [" "]
    assert is_visible("é")
    assert is_visible("漢")
