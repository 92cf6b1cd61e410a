"""Constants of JavaScript and TypeScript, read from their source without running it."""

import json
import re
from collections.abc import Collection
from typing import Final, cast

__all__ = ["JsSyntaxError", "read_constants"]

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
