"""The public names: written once, imported when first used, seen by type checkers."""

import ast
import importlib
import py_compile
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ryecore
from ryecore._lazy import read_homes

LAZY = [
    "ryecore",
    "ryecore.agent",
    "ryecore.display",
    "ryecore.errors",
    "ryecore.lillux",
    "ryecore.llm",
    "ryecore.mcp_server",
    "ryecore.node",
    "ryecore.results",
    "ryecore.testing",
    "ryecore.tools",
]


def _source(module: str) -> str:
    return Path(importlib.import_module(module).__file__ or "").read_text()


def _imports_for_type_checkers(source: str) -> dict[str, str]:
    """Return each name that the block `if TYPE_CHECKING` imports, and the module it is from."""
    return {
        alias.asname or alias.name: statement.module or ""
        for block in ast.parse(source).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }


def test_these_are_the_modules_with_lazy_names() -> None:
    root = Path(ryecore.__file__).parent
    users = {
        ".".join(("ryecore", *path.relative_to(root).with_suffix("").parts))
        for path in root.rglob("*.py")
        if re.search(r"= lazy_names(_of_extra)?\(__name__", path.read_text())
        and path.name not in ("_lazy.py", "_extras.py")
    }
    assert {name.removesuffix(".__init__") for name in users} == set(LAZY)


@pytest.mark.parametrize("module", LAZY)
def test_what_type_checkers_see_is_what_there_is(module: str) -> None:
    source = _source(module)
    seen = _imports_for_type_checkers(source)
    package = importlib.import_module(module)

    assert read_homes(source) == seen
    assert set(package.__all__) == set(seen) <= set(dir(package))
    for name, home in seen.items():
        defined = importlib.import_module(home)
        assert getattr(package, name) is getattr(defined, name)
        assert name in defined.__all__


@pytest.mark.parametrize("module", LAZY)
def test_a_star_import_brings_the_public_names(module: str) -> None:
    namespace: dict[str, object] = {}

    exec(f"from {module} import *", namespace)

    assert set(namespace) - {"__builtins__"} == set(read_homes(_source(module)))


def test_dir_lists_the_names_before_any_is_used() -> None:
    code = "import ryecore; print('SyncRye' in dir(ryecore), 'SyncRye' in vars(ryecore))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["True", "False"]


def test_a_name_is_imported_alone() -> None:
    code = (
        "import sys, ryecore.results; ryecore.results.Cost;"
        "print(*(name in sys.modules for name in ('ryecore.state.model', 'ryecore.graph.run')))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["True", "False"]


def test_an_import_of_another_kind_is_no_public_name() -> None:
    source = (
        '"""Docs: from ryecore import Rye."""\n'
        "from ryecore._lazy import lazy_names\n"
        "    from a.b import C as C\n"
        "    from a.b import D as _D\n"
        "import e as e\n"
    )

    assert read_homes(source) == {"C": "a.b"}


def test_compiled_files_alone_are_refused_with_the_reason(tmp_path: Path) -> None:
    source = tmp_path / "names.py"
    source.write_text(
        "from ryecore._lazy import lazy_names\n__getattr__, __dir__ = lazy_names(__name__)\n"
    )
    py_compile.compile(str(source), cfile=str(tmp_path / "names.pyc"))
    source.unlink()

    done = subprocess.run(
        [sys.executable, "-c", "from names import Name"],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(tmp_path)},
    )

    assert done.stderr.splitlines()[-1].startswith("ImportError: The public names of names")
    assert done.stderr.endswith("Install ryecore with its .py files.\n")
