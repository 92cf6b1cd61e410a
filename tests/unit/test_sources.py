"""Each `Source:` names something that a reader can open. CONTRIBUTING.md has the grammar.

Source: docs/design/index.md.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.forking import ROOT
from tests.unit.test_docs import _anchors

CODE = frozenset({".py", ".pyi", ".rs", ".yaml", ".js", ".cjs"})
FOLDERS = ("src", "native", "tests", "docs", "examples", ".ai")

_COMMENT = re.compile(r"^[ \t]*(?:#:?|//[/!]?|\*)[ \t]?", re.MULTILINE)
_CODE_SPAN = re.compile(r"^(`{3,}).*?^\1$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_STATEMENT = re.compile(
    r'\bSources?:\s(?P<list>.*?)(?:(?P<end>\.)(?=\s|"""|$)|(?="""|\n\s*\n|\Z))', re.DOTALL
)
_NUMBERS = r"\d+(?: to \d+)?(?:(?:, \d+(?: to \d+)?)* and \d+(?: to \d+)?)?"
_DECISIONS = re.compile(rf"decisions? ({_NUMBERS})")
_RECORD = re.compile(r"ADR (\d{3})")
_PAGE = re.compile(r"((?:docs/[\w/.-]+|[A-Z]+)\.md)(?:#([\w-]+))?")
_ELSEWHERE = re.compile(
    r"RFC \d+(?:, section [\d.]*\d)?"
    r"|https://[^\s;]+"
    r'|[^;"]+, "[^"]+", \d{4}'  # a paper: authors, title, year
)
_SPOKEN = re.compile(rf"\b[Dd]ecisions?\s({_NUMBERS})\b|\bADRs? (\d+)")
_FORMER = re.compile(
    r"\bseeds? 0\d\d\b|seed_?00\d|\bthe seed(?:'?s)?\b|/work/" r"shared|reference-" r"rye"
    r'|\bSource: reference\b|; reference "'
)  # fmt: skip


@cache
def _decisions() -> frozenset[int]:
    page = (ROOT / "docs/design/decisions.md").read_text()
    return frozenset(int(number) for number in re.findall(r"^### (\d+)\. \S", page, re.MULTILINE))


@cache
def _records() -> frozenset[int]:
    return frozenset(int(page.name[:3]) for page in (ROOT / "docs/adr").glob("[0-9]*.md"))


@cache
def _anchors_of(page: Path) -> frozenset[str]:
    return frozenset(_anchors(page))


def _unwritten(numbers: str) -> list[int]:
    """Return the numbers of a list such as `14, 15 and 18 to 20` that no decision has."""
    asked: set[int] = set()
    for part in re.split(r", | and ", numbers):
        first, _, last = part.partition(" to ")
        asked |= set(range(int(first), int(last or first) + 1))
    return sorted(asked - _decisions())


def problem_of(source: str) -> str | None:
    """Return what is wrong with one source; None if it can be opened."""
    if found := _DECISIONS.fullmatch(source):
        is_one = found[1].isdigit()
        if is_one is source.startswith("decisions"):
            return "write 'decision' before one number and 'decisions' before several"
        return f"no decision {missing[0]}" if (missing := _unwritten(found[1])) else None
    if found := _RECORD.fullmatch(source):
        return None if int(found[1]) in _records() else f"no record {found[1]}"
    if found := _PAGE.fullmatch(source):
        page = ROOT / found[1]
        if not page.is_file():
            return f"no page {found[1]}"
        if found[2] and found[2] not in _anchors_of(page):
            return f"{found[1]} has no anchor {found[2]}"
        return None
    return None if _ELSEWHERE.fullmatch(source) else "not in the grammar"


def problems_of(text: str) -> Iterator[str]:
    """Yield what is wrong with the `Source:` statements of a text without comment signs."""
    for found in _STATEMENT.finditer(text):
        sources = " ".join(found["list"].split())
        if not found["end"]:
            yield f"{found[0]!r}: it ends with no full stop"
        elif found[0].startswith("Sources"):
            yield f"{found[0]!r}: write 'Source:'"
        else:
            for source in sources.split("; "):
                if problem := problem_of(source):
                    yield f"{source!r}: {problem}"


def _texts() -> Iterator[tuple[Path, str]]:
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    for page in pages:
        yield page, page.read_text()
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in CODE and path != Path(__file__) and "target" not in path.parts:
                yield path, path.read_text()


def test_every_source_can_be_opened() -> None:
    count = 0
    wrong = []
    for path, text in _texts():
        if "Source" in text:
            prose = _CODE_SPAN.sub("", text) if path.suffix == ".md" else _COMMENT.sub("", text)
            count += len(_STATEMENT.findall(prose))
            wrong += [f"{path.relative_to(ROOT)}: {one}" for one in problems_of(prose)]
    assert wrong == []
    assert count > 200


def test_every_decision_that_is_spoken_of_is_written_down() -> None:
    wrong = []
    for path, text in _texts():
        for found in _SPOKEN.finditer(text):
            decisions, record = found.groups()
            if (decisions and _unwritten(decisions)) or (record and int(record) not in _records()):
                wrong.append(f"{path.relative_to(ROOT)}: {found[0]}")
    assert wrong == []


def test_nothing_cites_what_is_not_in_the_repository() -> None:
    assert [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path, text in _texts()
        for found in _FORMER.finditer(text)
    ] == []


@pytest.mark.parametrize(
    "sources",
    [
        "decision 38",
        "decisions 38 and 40",
        "decisions 14, 15 and 18 to 20; ADR 018",
        "docs/design/threads.md#turn-loop; SECURITY.md",
        "RFC 8032; RFC 9421, section 2.5",
        'Leslie Lamport, "Time, Clocks, and the Ordering of Events", 1978',
        "https://www.sqlite.org/wal.html",
        "docs/design/agent-node.md#what-the-host-injects;\n    decision 61",
    ],
)
def test_what_the_grammar_takes(sources: str) -> None:
    assert list(problems_of(f"Says it.\n\nSource: {sources}.\n")) == []


@pytest.mark.parametrize(
    ("sources", "problem"),
    [
        ("decision 99.", "no decision 99"),
        ("decisions 38, 40 and 999.", "no decision 999"),
        ("decisions 80 to 99.", "no decision 84"),
        ("decision 38 and 40.", "write 'decision' before one"),
        ("ADR 019.", "no record 019"),
        ("docs/design/nothing.md.", "no page"),
        ("docs/design/threads.md#nothing.", "no anchor nothing"),
        ("decision 38; the meeting on Monday.", "not in the grammar"),
        ("decision 38: why not.", "not in the grammar"),
        ("decision 38\n\n", "no full stop"),
    ],
)
def test_what_the_grammar_refuses(sources: str, problem: str) -> None:
    assert problem in "\n".join(problems_of(f"Says it.\n\nSource: {sources}"))
