"""CONTRIBUTING's table of rooms is made from the linter's layers and the rooms' docstrings."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTRACT = '[[tool.importlinter.contracts]]\nlayers = ["shop", "till | stock : shelf"]\n'
CONTRIBUTING = "# Rooms\n\n<!-- rooms -->\n<!-- /rooms -->\n\nBelow.\n"
TABLE = """\
| Layer | Room | Holds |
| --- | --- | --- |
| 1 | `shop` | What is sold, and to whom. |
|  | `shop/window` | What is shown. |
| 2 | `till.py` | Money \\| coins. |
|  | `stock.py` | Goods. |
|  | `shelf.py` | Boards. |
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    files = {
        "pyproject.toml": CONTRACT,
        "CONTRIBUTING.md": CONTRIBUTING,
        "src/ryecore/shop/__init__.py": '"""What is sold,\nand to whom.\n\nAnd more.\n"""\n',
        "src/ryecore/shop/window/__init__.py": '"""What is shown."""\n',
        "src/ryecore/till.py": '"""Money | coins."""\n',
        "src/ryecore/stock.py": '"""Goods."""\n',
        "src/ryecore/shelf.py": '"""Boards."""\n',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/rooms.py", tmp_path / ".ci")
    return tmp_path


def run(checkout: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    program = [sys.executable, str(checkout / ".ci/rooms.py"), *options]
    return subprocess.run(program, capture_output=True, text=True, check=False)


def test_this_repository_has_the_table_of_its_rooms() -> None:
    done = run(ROOT)

    assert done.returncode == 0, done.stderr


def test_the_table_of_where_to_look_names_what_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| .+ \| (`.+) \|$", text.partition("### Where to look")[2], re.MULTILINE)
    named = [path for row in rows for path in re.findall(r"`([\w./]+)`", row) if "/" in path]

    assert len(named) > 20
    for path in named:
        found = (ROOT if path.startswith("native/") else ROOT / "src/ryecore") / path
        assert found.is_file() or [*found.glob("*.py"), *found.glob("*.rs")], path


def test_the_table_is_written_between_its_marks_in_the_order_of_the_layers(checkout: Path) -> None:
    refused = run(checkout)
    assert refused.returncode == 1
    assert "python .ci/rooms.py --write" in refused.stderr
    assert (checkout / "CONTRIBUTING.md").read_text() == CONTRIBUTING

    assert run(checkout, "--write").returncode == 0

    text = (checkout / "CONTRIBUTING.md").read_text()
    assert text == f"# Rooms\n\n<!-- rooms -->\n{TABLE}<!-- /rooms -->\n\nBelow.\n"
    assert run(checkout).returncode == 0


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("pyproject.toml", '"shop", ', ""),
        ("src/ryecore/till.py", "coins", "notes"),
        ("CONTRIBUTING.md", "Goods.", "Stores."),
    ],
)
def test_a_layer_a_docstring_or_a_table_that_changed_alone_is_noticed(
    checkout: Path, name: str, old: str, new: str
) -> None:
    run(checkout, "--write")
    path = checkout / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))

    assert run(checkout).returncode == 1


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("src/ryecore/till.py", "", "src/ryecore/till.py has no docstring"),
        ("src/ryecore/till.py", None, "The layers name till, and src/ryecore has no such room"),
        ("CONTRIBUTING.md", "# Rooms\n", "CONTRIBUTING.md has no lines <!-- rooms -->"),
    ],
)
def test_what_is_missing_is_named(
    checkout: Path, name: str, text: str | None, problem: str
) -> None:
    if text is None:
        (checkout / name).unlink()
    else:
        (checkout / name).write_text(text)

    done = run(checkout, "--write")

    assert done.returncode == 1
    assert done.stderr.startswith(problem)


BEHIND_THE_STORE = re.compile(
    r"\b(folder_of|make_folder|TRANSCRIPT|THREAD_FILE|read_thread_file|write_thread_file"
    r"|read_records|check_graph_folders|private_folder|store\.folder|ChangeWatcher|run_blocking"
    r"|sqlite3|Transcript"
    r"|ryecore\.state\.(transcript(_check|_store)?|database|schema|thread_rows|sqlite_\w+))\b"
)
BESIDE_THE_STORE = {
    "lillux/processes.py": r"_native\.run_blocking",  # which runs a process
    "search/store.py": r"sqlite3|ryecore\.state\.database",  # a database of its own
    "node/": r"sqlite3|ryecore\.state\.database",  # a database of its own
}


def test_no_room_above_the_store_knows_a_file_a_query_or_a_blocking_call_of_it() -> None:
    source = ROOT / "src/ryecore"
    found = [
        f"{name}:{number}: {line.strip()}"
        for path in sorted(source.rglob("*.py"))
        for name in [str(path.relative_to(source))]
        if not name.startswith(("state/", "system/.ai/"))
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if BEHIND_THE_STORE.search(line)
        if not any(
            name.startswith(beside) and re.search(allowed, line)
            for beside, allowed in BESIDE_THE_STORE.items()
        )
    ]
    assert not found, "\n".join(found)
