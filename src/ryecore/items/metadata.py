"""Metadata of items, read from their source without running it.

Python is read by its syntax tree, shell by its leading comment, JavaScript and TypeScript by the
literal constants at the head of the file, and YAML, TOML and JSON as documents. Whatever the form,
the result has the same keys.
"""

import ast
import json
import warnings
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final, cast

from ryecore.errors import MetadataError
from ryecore.items.bundled import find_document
from ryecore.items.documents import DOCUMENT_EXTENSIONS, parse_document

__all__ = ["parse_metadata", "parse_python", "python_docstring"]

_PLAIN_KEYS: Final = frozenset({
    "version", "tool_type", "executor_id", "category", "description", "config_schema",
    "env_config", "config", "config_resolve", "anchor", "verify_deps", "inputs", "outputs",
    "child_constraints", "execution_params", "execution_owner", "native_async", "native_resume",
    "file_types", "transport", "permissions", "warm",
    "parallel_safe", "title", "output_schema", "hints", "reports", "may_ask",
    "must_ask", "task_support",
})  # fmt: skip
# Names that are documented without underscores. Others, such as VERSION, are the author's own.
_CONSTANTS: Final = frozenset({
    "config_schema", "env_config", "config", "config_resolve", "anchor", "verify_deps",
    "output_schema",
})  # fmt: skip
_NAMES: Final[Mapping[str, str]] = {
    **{f"__{key}__": key for key in sorted(_PLAIN_KEYS)},
    **{key.upper(): key for key in sorted(_CONSTANTS)},
    "__tool_description__": "description",
    "anchor": "anchor",
    "verify_deps": "verify_deps",
}
"""The names of constants in source files, and the key that each stands for."""

_JS: Final = frozenset({".js", ".ts", ".mjs", ".cjs"})
_COMMENTS: Final = ("#", "//", "--", ";")
"""What begins a line of the leading comment, in shell and in the languages that runtimes add."""

# A literal is parsed again with each of its lines, and the files of others are read too.
_MAX_CONTINUED_LINES: Final = 1000
_MAX_LITERAL_CHARACTERS: Final = 64 * 1024


def parse_metadata(content: bytes, path: Path) -> Mapping[str, object]:
    """Read the keys that an item declares. One that it doesn't declare is absent, unlike null."""
    return _parse(content, path)


@lru_cache(maxsize=1024)
def _parse(content: bytes, path: Path) -> Mapping[str, object]:
    if path.suffix in DOCUMENT_EXTENSIONS:
        document = parse_document(content, path)
        return {_NAMES.get(key, key): value for key, value in document.items()}
    if path.suffix == ".py":
        return _from_python(content, path)
    text = content.decode("utf-8", errors="replace")
    if path.suffix in _JS:
        return _from_javascript(text, path)
    return dict(_from_comment(text, path))


def _parse_python(content: bytes, path: Path) -> ast.Module:
    """Parse Python, also in a host that turns warnings into errors."""
    try:
        return ast.parse(content, filename=str(path))
    except SyntaxError:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(content, filename=str(path))


def _from_python(content: bytes, path: Path) -> dict[str, object]:
    known = find_document(content, path.suffix)
    return parse_python(content, path) if known is None else known


def parse_python(content: bytes, path: Path) -> dict[str, object]:
    """Read the metadata of a Python tool, though it be one of the built-in bundle."""
    try:
        module = _parse_python(content, path)
    except SyntaxError as problem:
        raise _broken(path, f"invalid Python: {problem.msg}", problem.lineno) from None
    except (ValueError, RecursionError, MemoryError) as problem:
        why = str(problem) or "it is nested too deeply"
        raise _broken(path, f"invalid Python: {why}", None) from None
    found: dict[str, object] = {}
    for statement in module.body:
        name, value = _assignment(statement)
        if name not in _NAMES or value is None:
            continue
        try:
            found[_NAMES[name]] = ast.literal_eval(value)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            raise _broken(
                path, f"{name} must be a literal: it is read, never run", value.lineno
            ) from None
    return found


def python_docstring(content: bytes, path: Path) -> str:
    """Return the docstring of a Python tool's module; empty where it has none, or can't be read."""
    try:
        return ast.get_docstring(_parse_python(content, path)) or ""
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""


def _assignment(statement: ast.stmt) -> tuple[str, ast.expr | None]:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return name, value
        case ast.AnnAssign(target=ast.Name(id=name), value=value):
            return name, value
        case _:
            return "", None


def _from_javascript(text: str, path: Path) -> dict[str, object]:
    from ryecore.items.javascript import (  # noqa: PLC0415 - its patterns take long to compile
        JsSyntaxError,
        read_constants,
    )

    try:
        constants = read_constants(text, _NAMES.keys())
    except JsSyntaxError as problem:
        raise _broken(path, str(problem), problem.line) from None
    return {_NAMES[name]: value for name, value in constants.items()}


def _from_comment(text: str, path: Path) -> Iterator[tuple[str, object]]:
    """`# NAME = literal` lines of the leading comment; a literal may have several lines."""
    # Only a line feed ends a line, as in a shell; `splitlines` splits at other characters too.
    lines = iter(enumerate(text.replace("\r\n", "\n").split("\n"), start=1))
    continued = 0
    for number, line in lines:
        if number <= 2 and (line.startswith("#!") or "rye:signed:" in line):
            continue
        token = next(filter(line.startswith, _COMMENTS), None)
        if token is None:
            return
        name, equals, literal = line.lstrip(f"{token} ").partition("=")
        name = name.strip()
        if not equals or name not in _NAMES:
            continue
        value = _literal(literal)
        while value is _UNFINISHED:
            _, more = next(lines, (0, ""))
            if not more.startswith(token):
                raise _broken(path, f"{name} must be a literal", number)
            literal += "\n" + more.removeprefix(token)
            continued += 1
            if continued > _MAX_CONTINUED_LINES or len(literal) > _MAX_LITERAL_CHARACTERS:
                raise _broken(path, f"{name} is too long for a comment", number)
            value = _literal(literal)
        yield _NAMES[name], value


_UNFINISHED: Final = object()


def _literal(text: str) -> object:
    text = text.strip()
    for read in (json.loads, ast.literal_eval):
        try:
            return cast("object", read(text))
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
    return _UNFINISHED


def _broken(path: Path, problem: str, line: int | None) -> MetadataError:
    place = f"{path}, line {line}" if line else str(path)
    return MetadataError(
        f"{place}: {problem}.",
        next_step="Mend the file and sign it again.",
        path=path,
        line=line,
    )
