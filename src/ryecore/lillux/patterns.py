"""Regular expressions of signed files, searched in linear time.

A pattern is written as Python's `re` has it. Python backtracks, so that some patterns take
years for a text that a model chose. The native engine doesn't, and lacks what needs it:
look-around, backreferences, atomic groups, possessive quantifiers and conditionals.
"""

import re
import warnings
from functools import lru_cache
from typing import Final

from ryecore import _native
from ryecore.errors import TextTooLong

__all__ = ["MAX_PATTERN_CHARS", "TextPattern", "compile_pattern"]

MAX_PATTERN_CHARS: Final = 1000
"""How long a pattern may be."""

_MAX_STEPS: Final = 500_000
"""The most that a search may cost: 64 bytes of text for one part of the pattern are a step."""

_SPECIAL: Final = frozenset("\\.+*?()|[]{}^$#&-~")
_REPETITION: Final = re.compile(r"\{(?:(\d+)|(\d*),(\d*))\}")
_QUANTIFIER: Final = re.compile(r"[*+?]|\{(?:\d+|\d*,\d*)\}")
_FLAGS: Final = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-z]+))?([:)])")
_UNSUPPORTED: Final = {
    "(?=": "look-around",
    "(?!": "look-around",
    "(?<=": "look-around",
    "(?<!": "look-around",
    "(?P=": "a backreference",
    "(?>": "an atomic group",
    "(?(": "a conditional",
}
_SUPPORTED: Final = (
    "Supported is the syntax of Python's re without look-around, backreferences, atomic groups, "
    "possessive quantifiers, conditionals, octal and named characters, and the flags a and L"
)


class TextPattern:
    """A compiled regular expression, to be searched for in texts that strangers write.

    Raises:
        ValueError: It is longer than `MAX_PATTERN_CHARS`, isn't a regular expression, needs an
            engine that backtracks, or is too large once compiled.
    """

    __slots__ = ("_native", "pattern")

    def __init__(self, pattern: str, *, ignores_case: bool = False) -> None:
        if len(pattern) > MAX_PATTERN_CHARS:
            raise ValueError(f"a regular expression has at most {MAX_PATTERN_CHARS} characters")
        _check_syntax(pattern)
        try:
            text = _Translation(pattern).text
            self._native = _native.TextPattern(f"(?i:{text})" if ignores_case else text)
        except ValueError as problem:
            raise ValueError(
                f"the regular expression {pattern!r} can't be used: {problem}. {_SUPPORTED}"
            ) from None
        self.pattern: Final = pattern

    def is_match(self, text: str) -> bool:
        """Return whether the pattern is found anywhere in a text, as `re.search` finds it.

        Args:
            text: The text. Half a surrogate pair counts as a question mark.

        Raises:
            TextTooLong: The text is longer than a pattern of this size is searched in: about
                32 MB divided by the number of the pattern's parts, its repetitions written out.
        """
        try:
            found = self._native.is_match(text, _MAX_STEPS)
        except UnicodeEncodeError:
            found = self._native.is_match(text.encode(errors="replace").decode(), _MAX_STEPS)
        if found is None:
            raise TextTooLong(
                f"A text of {len(text):,} characters is too long to be searched for the regular "
                f"expression {self.pattern!r}.",
                next_step="Match a shorter text, or write the pattern with fewer repetitions.",
                pattern=self.pattern,
                characters=len(text),
            )
        return found


@lru_cache(maxsize=256)
def compile_pattern(pattern: str, *, ignores_case: bool = False) -> TextPattern:
    """Return the compiled form of a pattern, from a cache where it was compiled before."""
    return TextPattern(pattern, ignores_case=ignores_case)


def _check_syntax(pattern: str) -> None:
    """Let Python check the syntax, so that what follows meets well-formed patterns alone."""
    try:
        with warnings.catch_warnings():  # an odd pattern's warning is of no use to the host
            warnings.simplefilter("ignore")
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as problem:
        raise ValueError(f"{pattern!r} is not a regular expression: {problem}") from None


class _Translation:
    """A pattern of Python's, written for the native engine."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._flags = frozenset[str]()
        self._groups: list[frozenset[str]] = []
        parts: list[str] = []
        while self._at < len(pattern):
            parts.append(self._next())
        self.text: Final = "".join(parts)

    def _next(self) -> str:
        char = self._pattern[self._at]
        match char:
            case "\\":
                return self._escape(in_class=False)
            case "[":
                return self._character_class()
            case "(":
                return self._group()
            case "*" | "+" | "?" | "{":
                return self._quantifier()
            case ")":
                self._flags = self._groups.pop()
            case "$" if "m" not in self._flags:
                char = r"(?:\n?\z)"
            case "]" | "}":
                char = f"\\{char}"
            case "#" if "x" in self._flags:
                self._skip_to("\n")
                return ""
            case _ if "x" in self._flags and char in " \t\n\r\v\f":
                char = ""
            case _:
                pass
        self._at += 1
        return char

    def _skip_to(self, end: str) -> None:
        found = self._pattern.find(end, self._at)
        self._at = len(self._pattern) if found < 0 else found + 1

    def _escape(self, *, in_class: bool) -> str:
        char = self._pattern[self._at + 1]
        self._at += 2
        if not (char.isascii() and char.isalnum()):
            return _literal(char)
        if char == "b" and in_class:
            return "\x08"
        if char.isdigit():
            raise ValueError(f"it has a backreference or an octal character, \\{char}")
        return r"\z" if char == "Z" else f"\\{char}"

    def _character_class(self) -> str:
        parts = ["["]
        self._at += 1
        if self._pattern[self._at] == "^":
            parts.append("^")
            self._at += 1
        is_first = True
        while is_first or self._pattern[self._at] != "]":
            is_first = False
            parts.append(self._member())
            is_range = self._pattern[self._at] == "-" and self._pattern[self._at + 1] != "]"
            if is_range:
                self._at += 1
                parts += "-", self._member()
        self._at += 1
        return "".join(parts) + "]"

    def _member(self) -> str:
        """Translate one character of a class; Rust has nested classes and operators there."""
        char = self._pattern[self._at]
        if char != "\\":
            self._at += 1
            return _literal(char)
        if self._pattern[self._at + 1] not in "xuU":
            return self._escape(in_class=True)
        length = {"x": 4, "u": 6, "U": 10}[self._pattern[self._at + 1]]
        self._at += length
        return self._pattern[self._at - length : self._at]

    def _group(self) -> str:
        rest = self._pattern[self._at : self._at + 4]
        for start, name in _UNSUPPORTED.items():
            if rest.startswith(start):
                raise ValueError(f"it has {name}, {start}")
        if rest.startswith("(?#"):
            self._skip_to(")")
            return ""
        flags = _FLAGS.match(self._pattern, self._at)
        if flags is None:
            self._groups.append(self._flags)
            start = "(?P<" if rest == "(?P<" else "("
            self._at += len(start)
            return start
        return self._set_flags(flags)

    def _set_flags(self, found: re.Match[str]) -> str:
        """Translate flags; white space and comments, `x`, are left out by the translation."""
        self._at = found.end()
        added, removed = set(found[1]), set(found[2] or "")
        if unsupported := added & {"a", "L"}:
            raise ValueError(f"it has the flag {min(unsupported)}")
        if found[3] == ":":
            self._groups.append(self._flags)
        self._flags = (self._flags | added) - removed
        on = "".join(sorted(added - {"x", "u"}))
        off = "".join(sorted(removed - {"x"}))
        flags = f"{on}-{off}" if off else on
        if found[3] == ")":
            return f"(?{flags})" if flags else ""
        return f"(?{flags}:"

    def _quantifier(self) -> str:
        found = _QUANTIFIER.match(self._pattern, self._at)
        if found is None:  # Python takes a brace that starts no repetition as it is
            self._at += 1
            return r"\{"
        self._at = found.end()
        if self._pattern.startswith("+", self._at):
            raise ValueError(f"it has a possessive quantifier, {found[0]}+")
        repetition = _REPETITION.fullmatch(found[0])
        if repetition is None or repetition[1] is not None:
            return found[0]
        return f"{{{repetition[2] or 0},{repetition[3]}}}"


def _literal(char: str) -> str:
    return f"\\{char}" if char in _SPECIAL else char
