"""Templating of signed configuration strings. Pure, and one pass from left to right.

`${VAR}` and `${VAR:-default}` stand for environment variables, `{name}` for values. What a
placeholder becomes is never looked at again, unless it is itself a signed configuration string;
so nothing that a caller, an environment or a file name holds is ever expanded.

Source: seed 000, "Execution Config Building"; decisions 23 and 24.
"""

import json
import re
import shlex
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from attrs import field, frozen

from ryecore.errors import ConfigError

__all__ = ["Template", "as_text", "count_of"]

_VARIABLE: Final = r"\$\{(?P<var>[A-Z_][A-Z0-9_]*)(?::-(?P<default>[^}]*))?\}"
# `${name}` in lower case is left alone: in a script it is the shell's own variable.
_PLACEHOLDER: Final = r"(?<!\$)\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}"
_EITHER: Final = re.compile(f"{_VARIABLE}|{_PLACEHOLDER}")
_ONE_PLACEHOLDER: Final = re.compile(rf"\s*{_PLACEHOLDER}\s*\Z")
_MAX_ROUNDS: Final = 3
_MAX_REMEMBERED: Final = 1024


@frozen
class Template:
    """The values that signed configuration strings are rendered with.

    Attributes:
        environ: The resolved environment.
        values: Opaque values by name: context, and parameters that a runtime names.
        config: Signed configuration, whose strings may hold placeholders themselves.
        unknown: Told each name that nothing stands for; it stays as it is.
    """

    environ: Mapping[str, str]
    values: Mapping[str, object]
    config: Mapping[str, object] = {}
    unknown: set[str] = field(factory=set)

    def render(self, text: str, *, quote: bool = False) -> object:
        """Render a string.

        Args:
            text: The signed string.
            quote: Whether values are spliced into a shell's script, and so are shell-quoted.

        Returns:
            A string; or, where the whole text is one placeholder, its value with its type.

        Raises:
            ConfigError: A placeholder stands in quotes of a script, which its value could end.
        """
        return self._render(text, quote, 0)

    def text(self, text: str, *, quote: bool = False) -> str:
        """Render a string, and write the result as text."""
        return as_text(self.render(text, quote=quote))

    def _render(self, text: str, quote: bool, rounds: int) -> object:
        matches = _placeholders(text)
        if not matches:
            return text
        alone = _ONE_PLACEHOLDER.match(text)
        if alone is not None:
            found, value = self._value(alone["name"], rounds)
            return value if found else text
        parts: list[str] = []
        end = 0
        for match in matches:
            parts += (text[end : match.start()], self._replace(match, text, quote, rounds))
            end = match.end()
        parts.append(text[end:])
        return "".join(parts)

    def _replace(self, match: re.Match[str], text: str, quote: bool, rounds: int) -> str:
        """What stands for one placeholder of a longer text."""
        write: Callable[[str], str] = shlex.quote if quote else str
        is_in_quotes = quote and _ends_in_quotes(text[: match.start()])
        if match["var"] is not None:
            if is_in_quotes:
                return match[0]  # the shell expands it itself, and never more than once
            return write(self.environ.get(match["var"], match["default"] or ""))
        found, value = self._value(match["name"], rounds)
        if found and is_in_quotes:
            raise ConfigError(
                f"The script {text!r} has {match[0]} in quotes, where a value could end them.",
                next_step="Write it without quotes around it: its value is quoted as one word.",
            )
        return write(as_text(value)) if found else match[0]

    def _value(self, name: str, rounds: int) -> tuple[bool, object]:
        if name in self.values:
            return True, self.values[name]
        if name not in self.config or rounds >= _MAX_ROUNDS:
            self.unknown.add(name)
            return False, None
        value = self.config[name]
        return True, self._render(value, False, rounds + 1) if isinstance(value, str) else value


@lru_cache(maxsize=_MAX_REMEMBERED)
def _placeholders(text: str) -> tuple[re.Match[str], ...]:
    """Signed strings are rendered at each call, and the scripts among them are long."""
    return tuple(_EITHER.finditer(text))


def count_of(name: str, text: str) -> int:
    """How often a placeholder stands in a signed string."""
    return sum(match["name"] == name for match in _placeholders(text))


def _ends_in_quotes(script: str) -> bool:
    """Whether a quote is still open where this beginning of a shell's script ends."""
    opened, is_escaped = "", False
    for character in script:
        if is_escaped:
            is_escaped = False
        elif character == "\\" and opened != "'":
            is_escaped = True
        elif opened:
            opened = "" if character == opened else opened
        elif character in "'\"":
            opened = character
    return bool(opened)


def as_text(value: object) -> str:
    """A value as it stands in an argument: text as it is, null as nothing, the rest as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)
