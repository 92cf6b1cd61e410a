"""No file needs one that needs it, not even by an import inside a function.

Import-linter keeps the rooms apart; this holds within a room.
"""

import ast
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import ryecore

ROOT = Path(ryecore.__file__).parent


def test_no_files_need_each_other():
    modules = {_name(path): path for path in ROOT.rglob("*.py") if ".ai" not in path.parts}
    needs = {name: _needs(path) & modules.keys() for name, path in modules.items()}
    assert any(needs.values())
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as circle:
        raise AssertionError(" needs ".join(reversed(circle.args[1]))) from None


def _name(path: Path) -> str:
    inside = path.relative_to(ROOT.parent).with_suffix("")
    return ".".join(inside.parts).removesuffix(".__init__")


def _needs(path: Path) -> set[str]:
    """What a file imports when it runs: type checkers alone read the rest."""
    return {
        name
        for node in _imports(ast.parse(path.read_bytes()).body)
        if node.module is not None
        for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        if name not in ("ryecore", _name(path))
    }


def _imports(statements: Iterable[ast.AST]) -> Iterator[ast.ImportFrom]:
    for node in statements:
        if isinstance(node, ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            yield from _imports(node.orelse)
        else:  # a statement is in a statement, a handler or a case, never in an expression
            for field in ("body", "orelse", "finalbody", "handlers", "cases"):
                inner = getattr(node, field, ())
                yield from _imports(inner if isinstance(inner, list) else ())
