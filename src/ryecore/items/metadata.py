"""Metadata of items, read from their source without running it.

Python is read by its syntax tree, shell by its leading comment, JavaScript and TypeScript by the
literal constants at the head of the file, and YAML, TOML and JSON as documents. Whatever the form,
the result has the same keys.
"""

import ast
import json
import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final, cast

from ryecore.errors import MetadataError
from ryecore.items.documents import DOCUMENT_EXTENSIONS, parse_document

__all__ = ["JsSyntaxError", "parse_metadata", "read_constants"]

_COMMENT: Final = r"//[^\n]*|/\*.*?\*/"
_STRING: Final = r"""\"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'"""
# Comments and strings come first, so that a declaration inside one doesn't count. An unclosed one
# reaches to the end of its line or file: a new search at each quote would take quadratic time.
_DECLARATION: Final = re.compile(
    r"//[^\n]*|/\*.*?(?:\*/|\Z)"
    r"""|\"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?|`(?:[^`\\]|\\.)*`?"""
    r"|^(?:export[ \t]+)?(?:const|let|var)[ \t]+(?P<name>[A-Za-z_$][\w$]*)[ \t]*(?::[^=\n]+)?=",
    re.MULTILINE | re.DOTALL,
)
_TOKEN: Final = re.compile(
    rf"""(?P<space>(?:\s|{_COMMENT})+)
      | (?P<string>{_STRING}|`(?:[^`\\$]|\\.|\$(?!\{{))*`)
      | (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<word>[A-Za-z_$][\w$]*)
      | (?P<mark>[\[\]{{}},:])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(u\{[0-9a-fA-F]+\}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPED: Final = {
    "n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": "",
}  # fmt: skip
# What may follow a literal on its line, and what on the next line would make it an expression.
_SAME_LINE: Final = re.compile(r"[;,}]|(?:as|satisfies)\b")
_NEXT_LINE: Final = re.compile(r"[-+*/%.?(\[&|^<>=!`]|(?:in|instanceof)\b")
_WORDS: Final = {"true": True, "false": False, "null": None, "undefined": None}
_MAX_DEPTH: Final = 64


class JsSyntaxError(ValueError):
    """A known constant is not a literal."""

    def __init__(self, problem: str, line: int) -> None:
        super().__init__(problem)
        self.line = line


def read_constants(text: str, names: Collection[str]) -> dict[str, object]:
    """Read the top-level constants of these names."""
    found: dict[str, object] = {}
    for declaration in _DECLARATION.finditer(text):
        name = declaration["name"]
        if name in names:
            found[name] = _Reader(text, declaration.end(), name).whole_value()
    return found


class _Reader:
    def __init__(self, text: str, position: int, name: str) -> None:
        self._text, self._position, self._name = text, position, name

    def _fail(self) -> JsSyntaxError:
        line = self._text.count("\n", 0, self._position) + 1
        return JsSyntaxError(f"{self._name} must be a literal: it is read, never run", line)

    def _next(self) -> tuple[str, str]:
        while found := _TOKEN.match(self._text, self._position):
            self._position = found.end()
            if found.lastgroup != "space":
                return str(found.lastgroup), found[0]
        raise self._fail()

    def _peek(self) -> str:
        before = self._position
        _, token = self._next()
        self._position = before
        return token

    def whole_value(self) -> object:
        """Read the literal of a declaration, and refuse an expression behind it."""
        value = self.value()
        gap = _TOKEN.match(self._text, self._position)
        skipped = gap[0] if gap is not None and gap.lastgroup == "space" else ""
        position = self._position + len(skipped)
        continues = (
            _NEXT_LINE.match(self._text, position)
            if "\n" in skipped
            else position < len(self._text) and not _SAME_LINE.match(self._text, position)
        )
        if continues:
            raise self._fail()
        return value

    def value(self, depth: int = 0) -> object:
        """Read the literal that begins at the position."""
        kind, token = self._next()
        if depth > _MAX_DEPTH:
            raise self._fail()
        if kind == "string":
            return self._text_of(token)
        if kind == "number":
            return self._number_of(token)
        if kind == "word" and token in _WORDS:
            return _WORDS[token]
        if token == "[":
            return self._array(depth)
        if token == "{":
            return self._object(depth)
        raise self._fail()

    def _array(self, depth: int) -> list[object]:
        items: list[object] = []
        while self._peek() != "]":
            items.append(self.value(depth + 1))
            if self._peek() != ",":
                break
            self._next()
        self._expect("]")
        return items

    def _object(self, depth: int) -> dict[str, object]:
        items: dict[str, object] = {}
        while self._peek() != "}":
            kind, token = self._next()
            if kind not in ("string", "word", "number"):
                raise self._fail()
            self._expect(":")
            items[self._text_of(token) if kind == "string" else token] = self.value(depth + 1)
            if self._peek() != ",":
                break
            self._next()
        self._expect("}")
        return items

    def _expect(self, mark: str) -> None:
        if self._next()[1] != mark:
            raise self._fail()

    def _text_of(self, token: str) -> str:
        try:
            return _unquote(token)
        except (ValueError, OverflowError):  # a code point that doesn't exist
            raise self._fail() from None

    def _number_of(self, token: str) -> object:
        try:
            return cast("object", json.loads(_json_number(token)))
        except ValueError:  # more digits than Python takes
            raise self._fail() from None


def _json_number(token: str) -> str:
    sign = "-" if token.startswith("-") else ""
    digits = token.lstrip("+-")
    if digits.startswith("."):
        digits = "0" + digits
    whole, point, rest = digits.partition(".")
    if point and not rest[:1].isdigit():
        rest = "0" + rest
    return sign + (whole.lstrip("0") or "0") + point + rest


def _unquote(token: str) -> str:
    def replace(found: re.Match[str]) -> str:
        code = found[1]
        if code[0] in "ux" and len(code) > 1:
            return chr(int(code.strip("ux{}"), 16))
        return _ESCAPED.get(code, code)

    text = _ESCAPE.sub(replace, token[1:-1])
    # Two escaped halves of a surrogate pair are one character; half a pair alone is none.
    return text.encode("utf-16", "surrogatepass").decode("utf-16")


_PLAIN_KEYS: Final = frozenset({
    "version", "tool_type", "executor_id", "category", "description", "config_schema",
    "env_config", "config", "config_resolve", "anchor", "verify_deps", "inputs", "outputs",
    "child_constraints", "execution_params", "execution_owner", "native_async", "native_resume",
    "file_types", "transport", "permissions", "warm",
})  # fmt: skip
# Names that are documented without underscores. Others, such as VERSION, are the author's own.
_CONSTANTS: Final = frozenset(
    {"config_schema", "env_config", "config", "config_resolve", "anchor", "verify_deps"}
)
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
        try:
            constants = read_constants(text, _NAMES.keys())
        except JsSyntaxError as problem:
            raise _broken(path, str(problem), problem.line) from None
        return {_NAMES[name]: value for name, value in constants.items()}
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


def _assignment(statement: ast.stmt) -> tuple[str, ast.expr | None]:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return name, value
        case ast.AnnAssign(target=ast.Name(id=name), value=value):
            return name, value
        case _:
            return "", None


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
