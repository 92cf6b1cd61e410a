"""rye execute: what a tool reports while it runs."""

import os
import pty

import pytest

from ryecore.cli.reports import log_line, progress_line
from ryecore.results import ToolLog, ToolProgress
from tests.unit.cli.conftest import Run, read_all, start
from tests.workspace import Workspace

REPORTS = """
printf '{"progress": 1, "total": 2, "message": "half\\\\u001b[2J"}\\n' > "$RYE_CHANNEL"
printf '{"log": "hidden", "level": "debug"}\\n' > "$RYE_CHANNEL"
printf '{"log": {"rows": 7}, "level": "warning", "logger": "db\\\\nx"}\\n' > "$RYE_CHANNEL"
echo '"done"'
"""


@pytest.mark.parametrize(
    ("progress", "total", "line"),
    [
        (1, 2, "██████████             50%  read"),
        (0, 3, "                        0%  read"),
        (9, 3, "████████████████████  100%  read"),
        (-1, 3, "                        0%  read"),
        (3, None, "3  read"),
        (1.5, 0, "1.5  read"),
    ],
)
def test_progress_is_a_bar_where_the_total_is_known(
    progress: float, total: float | None, line: str
) -> None:
    assert progress_line(ToolProgress("tool:a/t", "c", progress, total, "read")) == line


def test_what_a_tool_writes_stays_one_line_without_controls() -> None:
    text = log_line(ToolLog("tool:a/t", "c", "error", "a\nb\x1b[31m\u202e", "x\ny")).plain()
    assert text.count("\n") == 0
    assert text.isprintable()
    shown = progress_line(ToolProgress("tool:a/t", "c", 1, None, "a\nb\x1b[2J"))
    assert shown.isprintable()


def test_log_messages_are_on_standard_error_and_the_result_alone_on_output(
    workspace: Workspace, run: Run
) -> None:
    workspace.shell("a/t", REPORTS, reports=True)
    done = run("execute", "a/t", "--json")
    assert (done.code, done.json["data"]) == (0, "done")
    assert done.err == 'warning  tool:a/t db x  {"rows": 7}\n'


def test_progress_is_drawn_in_place_on_a_terminal(workspace: Workspace) -> None:
    workspace.shell("a/t", REPORTS, reports=True)
    ours, theirs = pty.openpty()
    command = start(workspace, "execute", "a/t", stderr=theirs, env={"TERM": "xterm"})
    os.close(theirs)
    drawn = read_all(ours)
    assert command.wait() == 0
    assert "\r\x1b[2K██████████             50%  half" in drawn
    assert "\x1b[2J" not in drawn
    assert "warning" in drawn.rpartition("\x1b[2K")[2]  # the bar is gone by then
