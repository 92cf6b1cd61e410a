"""YAML, TOML and JSON files, read into plain mappings; errors name the line."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, cast

from ryecore.errors import MetadataError
from ryecore.items.bundled import find_document

__all__ = ["DOCUMENT_EXTENSIONS", "parse_content", "parse_document"]


def _load_yaml(text: str) -> object:
    # The parser is a large import, which a host may not need at once.
    from ryecore.items.yaml_loader import load_yaml  # noqa: PLC0415

    return load_yaml(text, MAX_DEPTH)


class _BrokenToml(ValueError):
    def __init__(self, problem: str, line: int) -> None:
        super().__init__(problem)
        self.line = line


def _load_toml(text: str) -> object:
    import tomllib  # noqa: PLC0415 - the bundle's own key is found without it

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        named = re.search(r"\(at line (\d+), ", str(problem))
        line = int(named[1]) if named else text.count("\n") + 1  # else: at end of document
        raise _BrokenToml(str(problem), line) from None


_LOADERS: Final[Mapping[str, Callable[[str], object]]] = {
    ".yaml": _load_yaml,
    ".yml": _load_yaml,
    ".toml": _load_toml,
    ".json": json.loads,
}
DOCUMENT_EXTENSIONS: Final = frozenset(_LOADERS)
_FORMS: Final = {".yaml": "YAML", ".yml": "YAML", ".toml": "TOML", ".json": "JSON"}
MAX_DEPTH: Final = 64


def parse_document(content: bytes, path: Path) -> dict[str, object]:
    """Read a document whose root is a mapping. An empty file has an empty one."""
    known = find_document(content, path.suffix)
    return parse_content(content, path) if known is None else known


def parse_content(content: bytes, path: Path) -> dict[str, object]:
    """Read a document as `parse_document` does, though it be one of the built-in bundle."""
    try:
        document = _LOADERS[path.suffix](content.decode("utf-8"))
    except json.JSONDecodeError as problem:
        raise _broken(path, "JSON", problem.msg, problem.lineno) from None
    except UnicodeDecodeError as problem:
        line = content.count(b"\n", 0, problem.start) + 1
        raise _broken(path, "text", "it is not UTF-8", line) from None
    except RecursionError:
        raise _broken(path, "document", "it is nested too deeply", None) from None
    except ValueError as problem:
        # Broken YAML or TOML, or a number with more digits than Python takes.
        form = _FORMS[path.suffix]
        raise _broken(path, form, str(problem), getattr(problem, "line", None)) from None
    if document is None:
        return {}
    # The loader of YAML has checked its bounds before.
    if _FORMS[path.suffix] != "YAML" and _is_deeper_than(document, MAX_DEPTH):
        raise _broken(path, "document", "it is nested too deeply", None)
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise _broken(path, "document", "its root is not a mapping with text keys", 1)
    return cast("dict[str, object]", document)


def _is_deeper_than(document: object, limit: int) -> bool:
    """Return whether a document has more levels than a limit, without recursion."""
    level = [document]
    for _ in range(limit + 1):
        level = [
            child
            for node in level
            for child in (
                node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
            )
        ]
        if not level:
            return False
    return True


def _broken(path: Path, form: str, problem: str, line: int | None) -> MetadataError:
    place = f"{path}, line {line}" if line else str(path)
    quotes = (
        " Within braces, YAML wants quotes around a text that holds a colon."
        if form == "YAML" and "unexpected ':'" in problem
        else ""
    )
    return MetadataError(
        f"{place}: broken {form}: {problem}.{quotes}",
        next_step="Mend the file and sign it again.",
        path=path,
        line=line,
    )
