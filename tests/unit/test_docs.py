"""The documentation is true: its blocks and the examples run, its links and names lead somewhere.

Every fenced `python` and `console` block runs, page by page and from top to bottom, in one
temporary project. A block with a title is a file that is written there. What stands behind a
command, or in a `text` block behind a `python` block, is the output that is expected: `…` matches
anything, and durations, hashes, times and the machine's own paths don't count. A comment before a
block says what else there is: `<!-- not run: REASON -->`, or `<!-- setup: COMMAND -->`. With
`<!-- serve: URL COMMAND -->` a server runs to the end of the page, or until the same URL is served
again, and its real URL stands for this one. The prompt `bob@gpu$ ` is that of another user, who has
a home of their own.
"""

import importlib
import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from ruamel.yaml import YAML

import ryecore
import ryecore.agent
import ryecore.errors
import ryecore.lillux
import ryecore.llm
import ryecore.node
import ryecore.results
import ryecore.testing
import ryecore.testing.conformance
import ryecore.testing.node
import ryecore.testing.objects
import ryecore.testing.state
import ryecore.tools
from ryecore.cli.commands import rye as rye_command
from ryecore.items.metadata import _PLAIN_KEYS, parse_metadata
from ryecore.items.spaces import built_in_space
from tests.forking import ROOT, SERVERS, Forked, forking_python, relay_command
from tests.npm import npm_program
from tests.reader import Reader, assert_printed

DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
_REAL_ENVIRON = dict(os.environ)

_BLOCK = re.compile(
    r"(?:^<!--\s*(?P<note>[\w ]+):(?P<said>(?:(?!-->).)*)-->\n+)?"
    r"^(?P<fence>`{3,})(?P<language>\w+)(?P<options>[^\n]*)\n(?P<body>.*?)^(?P=fence)$"
    r"|^<!--\s*(?P<alone>setup|serve):(?P<doing>.*?)-->$",
    re.MULTILINE | re.DOTALL,
)
_TITLE = re.compile(r'title="([^"]+)"')


def _named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def _rust_folder() -> list[str]:
    """Where the compiler itself stands; what rustup puts on the PATH needs the real home."""
    if shutil.which("rustc", path=_REAL_ENVIRON["PATH"]) is None:
        return []
    asked = subprocess.run(
        ["rustc", "--print", "sysroot"], check=True, capture_output=True, env=_REAL_ENVIRON
    )
    return [f"{asked.stdout.decode().strip()}/bin"]


@pytest.fixture
def needed(example: Path) -> dict[str, str]:
    """What an example has to be given, had while the environment is still the real one."""
    return {"RYE_NODE": str(npm_program("tsx", "tsx"))} if "typescript" in example.name else {}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `python3` that forks what ryecore starts with it, and the pages' MCP servers."""
    folder = tmp_path_factory.mktemp("python")
    options = "-EP|-PXutf8|-m|server.py|notes_server.py"
    return Path(forking_python(folder, options, SERVERS)).rename(folder / "python3")


@pytest.fixture(scope="module")
def forked(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a `rye` that becomes a process of the installed one which has all imported."""
    program = tmp_path_factory.mktemp("forked") / "rye"
    command = [*relay_command(SERVERS, str(python)), str(Path(sys.executable).with_name("rye"))]
    program.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    program.chmod(0o755)
    return program.parent


@pytest.fixture
def reader(tmp_path: Path, forked: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    home, project = tmp_path / "ada", tmp_path / "ada" / "shop"
    project.mkdir(parents=True)
    python = Path(sys.executable)
    programs = [str(forked), str(python.parent), str(python.resolve().parent), *_rust_folder()]
    environ = {
        "PATH": ":".join([*programs, "/usr/local/bin", "/usr/bin", "/bin"]),
        "HOME": str(home),
        "LOGNAME": "ada",
        "LANG": "C.UTF-8",
        "COLUMNS": "80",
    }
    for name in os.environ:
        if name not in environ and not name.startswith(("PYTEST", "PYTHON")):
            monkeypatch.delenv(name)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    reader = Reader(home, project, dict(os.environ))
    yield reader
    reader.end_servers()
    for name, module in tuple(sys.modules.items()):  # another page's are its own
        if (getattr(module, "__file__", None) or "").startswith(f"{home}/"):
            del sys.modules[name]


@pytest.mark.parametrize("page", PAGES, ids=_named)
def test_every_block_of_a_page_does_what_the_page_says(
    page: Path, reader: Reader, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = page.read_text()
    for language, program in {"ruby": "ruby", "javascript": "node", "rust": "rustc"}.items():
        if f"```{language}" in text and "console" in text and shutil.which(program) is None:
            pytest.skip(f"the page runs {program}, which is not installed here; CI installs it")
    monkeypatch.setattr(sys, "executable", str(python))
    if "mcp.server" in text:  # whose servers are started by their command
        reader.environ["PATH"] = f"{python.parent}:{reader.environ['PATH']}"
        monkeypatch.setenv("PATH", reader.environ["PATH"])
    previous = ""
    assert not re.search(r"^\s*```", _BLOCK.sub("", text), re.MULTILINE), "a block is passed over"
    for found in _BLOCK.finditer(text):
        if found["alone"]:
            reader.prepare(found["alone"], found["doing"].strip())
            continue
        if found["note"] == "not run":
            assert found["said"].strip(), "a block that is not run says why"
            previous = ""
            continue
        if found["note"]:
            reader.prepare(found["note"], found["said"].strip())
        title, language = _TITLE.search(found["options"]), found["language"]
        if title:
            file = reader.project / title[1]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(found["body"])
        elif language == "console":
            reader.console(found["body"])
        elif language == "python":
            monkeypatch.chdir(reader.project)
            monkeypatch.syspath_prepend(reader.project)
            reader.python(found["body"], page)
        elif language == "text" and previous == "python":
            assert_printed(reader.printed, found["body"], reader, "the python block before")
        previous = "file" if title else language


@pytest.mark.parametrize("example", EXAMPLES, ids=_named)
def test_every_example_runs_in_under_sixty_lines_and_touches_nothing_of_the_user(
    example: Path, needed: dict[str, str], reader: Reader, python: Path
) -> None:
    with Forked(
        [str(example)],
        imported=SERVERS,
        executable=python,
        cwd=reader.project,
        env=reader.environ | needed,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        out, err = process.communicate(timeout=60)

    assert (process.returncode, err) == (0, b"")
    assert out.strip()
    assert [*reader.home.rglob("*")] == [reader.project]
    assert len(example.read_text().splitlines()) < 60


def test_examples_are_numbered_without_a_gap() -> None:
    assert [int(example.name[:2]) for example in EXAMPLES] == [*range(1, len(EXAMPLES) + 1)]


def _slug(heading: str) -> str:
    text = re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower()
    return re.sub(r"[-\s]+", "-", text)


def _anchors(page: Path) -> set[str]:
    prose = _BLOCK.sub("", page.read_text())
    return {_slug(heading) for heading in re.findall(r"^#+ (.*)$", prose, re.MULTILINE)}


def test_every_link_of_a_page_leads_somewhere() -> None:
    for page in PAGES:
        check_links(page)


def check_links(page: Path) -> None:
    """Fail if a link of a page leads nowhere."""
    prose = _BLOCK.sub("", page.read_text())
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if target.startswith(("https://", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), f"{_named(page)} links to {target}"
        assert not anchor or anchor in _anchors(file), f"{_named(page)} links to {target}"
    for name in re.findall(r"\]\[(ryecore[\w.]*)\]", prose):
        assert _resolve(name) is not None, f"{_named(page)} links to {name}"


def _records() -> list[tuple[str, str, str]]:
    """Return the decision records in order, each as its file, its title and its status."""
    found = []
    for page in sorted((DOCS / "adr").glob("[0-9]*.md")):
        lines = page.read_text().splitlines()
        title = re.fullmatch(rf"# {page.name[:3]} (.+)", lines[0])
        status = re.fullmatch(r"\*\*Status\.\*\* (.+)\.", lines[2])
        assert title is not None, f"{page.name} doesn't begin with its number and title"
        assert status is not None, f"{page.name} has no status below its title"
        found.append((page.name, title[1], status[1]))
    return found


def test_the_index_of_decisions_has_each_record_with_its_title_and_status() -> None:
    rows = re.findall(
        r"^\| \[(\d{3})\]\(([^)]+)\) \| (.+) \| (.+) \|$",
        (DOCS / "adr" / "index.md").read_text(),
        re.MULTILINE,
    )
    assert [row[1:] for row in rows] == _records()
    assert all(file.startswith(f"{number}-") for number, file, *_ in rows)


def test_the_navigation_has_each_decision_once_and_in_order() -> None:
    listed = re.findall(r": adr/(\S+)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert listed == ["index.md", *(file for file, _, _ in _records())]


def _pages_of(entry: object) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, dict):
        for below in entry.values():
            yield from _pages_of(below)
    else:
        assert isinstance(entry, list)
        for below in entry:
            yield from _pages_of(below)


def test_the_navigation_has_a_tab_for_each_reader_and_each_page_once() -> None:
    navigation = YAML(typ="safe").load(ROOT / "mkdocs.yml")["nav"]
    tabs = {name: [*_pages_of(below)] for tab in navigation for name, below in tab.items()}
    listed = [page for pages in tabs.values() for page in pages]

    assert [*tabs] == ["Start", "Embed", "Write", "Operate", "Reference", "Design"]
    assert sorted(listed) == sorted(p.relative_to(DOCS).as_posix() for p in DOCS.rglob("*.md"))
    assert {page for page in listed if page.startswith(("adr/", "design/"))} == {*tabs["Design"]}


def test_each_page_begins_with_what_it_is_for() -> None:
    for page in DOCS.rglob("*.md"):
        first = re.sub(r"<!--.*?-->\s*", "", page.read_text(), flags=re.DOTALL).split("\n\n")[1]
        assert not first.startswith(("```", "````", "#", "|", "- ", "!")), _named(page)


def test_the_glossary_is_in_order_and_leads_on() -> None:
    text = (DOCS / "glossary.md").read_text()
    entries = re.findall(r"^\*\*([^*]+)\*\*\n:   (.*(?:\n    .*)*)$", text, re.MULTILINE)
    terms = [term for term, _ in entries]

    assert len(terms) == text.count("\n**")
    assert terms == sorted(terms, key=str.casefold)
    assert [term for term, meaning in entries if "](" not in meaning] == []


def test_a_decision_that_extends_or_replaces_another_is_named_by_it() -> None:
    files = {file for file, _, _ in _records()}
    for file, _, status in _records():
        assert status.startswith(("Accepted", "Replaced", "Rejected")), file
        for link in re.findall(r"\]\(([^)]+)\)", status):
            assert link in files
            assert file[:3] in (DOCS / "adr" / link).read_text(), f"{link} doesn't name {file}"


def test_no_page_loads_anything_from_the_network() -> None:
    loads = re.compile(r"!\[[^\]]*\]\(https?:|<(img|script|link|iframe)\b")
    assert [_named(page) for page in PAGES if loads.search(page.read_text())] == []


def _resolve(dotted: str) -> object:
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise AssertionError(f"{dotted} is not there")


def _directives(page: str) -> set[str]:
    return set(re.findall(r"^::: ([\w.]+)$", (DOCS / page).read_text(), re.MULTILINE))


@pytest.mark.parametrize(
    ("page", "module"),
    [
        ("reference/api.md", ryecore),
        ("reference/agent.md", ryecore.agent),
        ("reference/errors.md", ryecore.errors),
        ("reference/lillux.md", ryecore.lillux),
        ("reference/llm.md", ryecore.llm),
        ("reference/results.md", ryecore.results),
        ("reference/node.md", ryecore.node),
        ("reference/testing.md", ryecore.testing),
        ("reference/conformance.md", ryecore.testing.conformance),
        ("reference/testing-state.md", ryecore.testing.state),
        ("reference/testing-objects.md", ryecore.testing.objects),
        ("reference/testing-node.md", ryecore.testing.node),
        ("reference/tools.md", ryecore.tools),
    ],
)
def test_a_reference_page_has_every_public_name_of_its_module(
    page: str, module: ModuleType
) -> None:
    directives = _directives(page)

    for name in directives:
        assert _resolve(name) is not None
    shown = {name.rpartition(".")[2] for name in directives}
    assert module.__name__ in directives or shown == set(module.__all__)


def test_the_table_of_errors_has_every_error_with_its_type() -> None:
    text = (DOCS / "reference/errors.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (.*) \|$", text, re.MULTILINE)
    classes = {name: getattr(ryecore.errors, name) for name in ryecore.errors.__all__}

    assert {name: kind for name, kind, _ in rows} == {
        name: cls.error_type for name, cls in classes.items()
    }
    for name, _, meaning in rows:
        said = " ".join(inspect.getdoc(classes[name]).split("\n\n")[0].split())
        also = re.fullmatch(r"(.*?)(?: Also a `(\w+)`\.)?", meaning)
        assert also is not None
        assert also[1] == said
        assert also[2] is None or also[2] in {base.__name__ for base in classes[name].__bases__}


def test_the_page_of_metadata_has_every_key_that_is_read() -> None:
    text = (DOCS / "reference/tool-metadata.md").read_text()

    assert {key for key in _PLAIN_KEYS if f"`{key}`" not in text} == set()


def test_the_page_of_the_command_has_every_subcommand_and_option() -> None:
    text = (DOCS / "reference/cli.md").read_text()

    for command in _subcommands(rye_command, "rye"):
        assert f"$ {command} --help" in text


def _subcommands(group: click.Command, name: str) -> Iterator[str]:
    yield name
    if isinstance(group, click.Group):
        ctx = click.Context(group)
        for sub in group.list_commands(ctx):
            if command := group.get_command(ctx, sub):
                yield from _subcommands(command, f"{name} {sub}")


def test_the_page_of_system_tools_has_every_tool_with_its_parameters() -> None:
    text = (DOCS / "reference/system-tools.md").read_text()
    rows = dict(re.findall(r"^\| `(rye/[\w/-]+)` \| .* \| (.*) \|$", text, re.MULTILINE))
    folder = built_in_space().folder("tool")
    tools: dict[str, Any] = {
        path.relative_to(folder).with_suffix("").as_posix(): parse_metadata(path.read_bytes(), path)
        for path in folder.rglob("*.py")
    }

    assert {name: set(re.findall(r"`(\w+)`", listed)) for name, listed in rows.items()} == {
        name: set(declared["config_schema"]["properties"])
        for name, declared in tools.items()
        if "executor_id" in declared
    }
