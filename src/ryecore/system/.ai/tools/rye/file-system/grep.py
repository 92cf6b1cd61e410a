# rye:signed:2026-11-28T17:20:55Z:cbd9d2f3dbb8d8cc2b162b311776fbe89316529359e6fe3562afefd2e45a8033:j_DIlpxqTGPu9wY7V82X435McDZv5gvl7BI6IqnwJh8QtQsXHUWVYYPrzPFASqwugYZ004PDI55l9bqTmpuHAw:a50d0ff255b90b74
"""Search files for lines that match a regular expression."""

from __future__ import annotations

import json
import os
import re
import signal
import time

from answers import Refused, flag, number, reported, text
from confined import Place, locate
from patterns import Pattern
from tree import walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "rye/file-system"
__hints__ = {"read_only": True}
__tool_description__ = (
    "Search the project's text files for lines that match a Python regular expression."
)

CONFIG_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "pattern": {
            "type": "string",
            "minLength": 1,
            "maxLength": 10000,
            "description": "A Python regular expression, searched in each line by itself.",
        },
        "path": {
            "type": "string",
            "minLength": 1,
            "maxLength": 4096,
            "default": ".",
            "description": "The folder or file to search, relative to the project or absolute "
            "inside it.",
        },
        "glob": {
            "type": "string",
            "minLength": 1,
            "maxLength": 1000,
            "description": "Only files whose path below the folder matches, such as `*.py` (in "
            "any folder) or `src/**/*.py`.",
        },
        "ignore_case": {
            "type": "boolean",
            "default": False,
            "description": "Whether upper and lower case count as the same.",
        },
        "context": {
            "type": "integer",
            "minimum": 0,
            "maximum": 10,
            "default": 0,
            "description": "How many lines to show before and after each match.",
        },
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": 2000,
            "default": 100,
            "description": "How many matching lines to show at most.",
        },
    },
    "required": ["pattern"],
    "additionalProperties": False,
}

CONFIG_RESOLVE = {"path": "file-system/access.yaml", "mode": "deep_merge", "signed": True}

TIME_BOUND_S = 20
MAX_BYTES = 10 * 1024 * 1024
LINE_CHARACTERS = 1000
RESULT_CHARACTERS = 256 * 1024


@reported
def execute(params: dict[str, object], project_path: str) -> dict[str, object]:
    """Search files for lines that match a regular expression; see CONFIG_SCHEMA.

    A regular expression can take forever, and while it does Python may not even see a signal. So a
    child process searches, which the system itself ends at the time bound.
    """
    answer_read, answer_write = os.pipe()
    child = os.fork()
    if child == 0:
        _answer(answer_write, params, project_path)
    os.close(answer_write)
    with open(answer_read, "rb") as file:
        answer = file.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == -signal.SIGALRM:
        raise Refused(
            f"The search was ended after {TIME_BOUND_S} s. Simplify the pattern (repeats within "
            "repeats, such as `(a+)+`, take forever), or narrow it by path or glob."
        )
    if status:
        raise Refused(
            f"The search ended unexpectedly (status {status}); narrow it by path or glob."
        )
    result: dict[str, object] = json.loads(answer)
    return result


def _answer(descriptor: int, params: dict[str, object], project_path: str) -> None:
    """Search, write the result as JSON and end this process, whatever happens."""
    status = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, TIME_BOUND_S)
        with open(descriptor, "wb") as file:
            file.write(json.dumps(search(params, project_path)).encode())
        status = 0
    finally:
        os._exit(status)


@reported
def search(params: dict[str, object], project_path: str) -> dict[str, object]:
    """Search in this process, without a bound on the time that one match takes."""
    source = text(params, "pattern")
    try:
        expression = re.compile(source, re.IGNORECASE if flag(params, "ignore_case", False) else 0)
    except re.error as failure:
        where = "" if failure.pos is None else f" at position {failure.pos}"
        raise Refused(
            f"The pattern isn't a valid regular expression: {failure.msg}{where}."
        ) from None
    except (RecursionError, OverflowError) as failure:
        raise Refused(
            f"Python can't compile the pattern as a regular expression: {failure}."
        ) from None
    place = locate(text(params, "path", "."), project_path, params)
    found = Matches(expression, number(params, "context", 0), number(params, "limit", 100))
    missed: list[str] = []
    until = time.monotonic() + 0.75 * TIME_BOUND_S
    for file in _files(place, text(params, "glob", "**"), missed):
        found.search(file)
        if not found.notes and time.monotonic() > until:
            found.notes.append("The search ended early for want of time; narrow it.")
        if found.notes:
            break
    truncated = bool(found.notes)
    if missed:
        found.notes.append(f"Could not be read: {', '.join(missed[:10])}.")
    return {
        "success": True,
        "matches": found.matches,
        "truncated": truncated,
        "files_searched": found.files,
        "skipped": found.skipped,
        "notes": found.notes,
    }


def _files(place: Place, glob: str, missed: list[str]) -> Iterator[Place]:
    # As in other search tools, a filter without a slash means the name, in any folder.
    pattern = Pattern(glob if "/" in glob else f"**/{glob}")
    if place.is_file():
        yield place
        return
    for entry, state in walk(place, pattern.start, pattern.enter, missed):
        if entry.kind == "file" and pattern.matches(state, entry.name):
            yield entry.place


class Matches:
    """What was found so far; `notes` says why the search is to end, once it is."""

    def __init__(self, expression: re.Pattern[str], context: int, limit: int) -> None:
        self.matches: list[dict[str, object]] = []
        self.files = 0
        self.skipped = {"binary": 0, "too_big": 0, "unreadable": 0}
        self.notes: list[str] = []
        self._expression = expression
        self._context = context
        self._limit = limit
        self._room = RESULT_CHARACTERS

    def search(self, place: Place) -> None:
        """Search one file."""
        try:
            descriptor, status = place.open_file()
        except Refused:
            self.skipped["unreadable"] += 1
            return
        with open(descriptor, "rb") as file:
            if status.st_size > MAX_BYTES:
                self.skipped["too_big"] += 1
                return
            data = file.read(MAX_BYTES)
        if b"\0" in data[:8192]:
            self.skipped["binary"] += 1
            return
        self.files += 1
        lines = data.decode("utf-8", "replace").split("\n")
        if not lines[-1]:
            lines.pop()
        for index, line in enumerate(lines):
            if self._expression.search(line.removesuffix("\r")):
                self._add(place, lines, index)
                if self.notes:
                    return

    def _add(self, place: Place, lines: list[str], index: int) -> None:
        if len(self.matches) == self._limit:
            self.notes.append(f"There are more than {self._limit} matches; narrow the search.")
            return
        before = [_shown(line) for line in lines[max(0, index - self._context) : index]]
        after = [_shown(line) for line in lines[index + 1 : index + 1 + self._context]]
        match = _shown(lines[index])
        self._room -= sum(map(len, (match, *before, *after)))
        if self._room < 0:
            self.notes.append("There is more text than a result can hold; narrow the search.")
            return
        self.matches.append(
            {
                "path": place.shown,
                "line": index + 1,
                "text": match,
                "before": before,
                "after": after,
            }
        )


def _shown(line: str) -> str:
    line = line.removesuffix("\r")
    return line if len(line) <= LINE_CHARACTERS else f"{line[:LINE_CHARACTERS]} [cut]"
