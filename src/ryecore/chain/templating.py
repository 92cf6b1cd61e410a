"""Templating of signed configuration strings. Pure, and one pass from left to right.

`${VAR}` and `${VAR:-default}` stand for environment variables, `{name}` for values. What a
placeholder becomes is never looked at again, unless it is itself a signed configuration string;
so nothing that a caller, an environment or a file name holds is ever expanded.

Source: docs/design/chain.md#the-plan; decision 23.
"""

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from attrs import field

from ryecore.frozen import frozen

__all__ = [
    "ConfigTemplate",
    "as_text",
    "count_of",
    "name_alone",
    "placeholders",
    "with_unknown_parts",
]

_VARIABLE: Final = r"\$\{(?P<var>[A-Z_][A-Z0-9_]*)(?::-(?P<default>[^}]*))?\}"
# `${name}` in lower case is left alone: in a script it is the shell's own variable.
_PLACEHOLDER: Final = r"(?<!\$)\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}"
_EITHER: Final = re.compile(f"{_VARIABLE}|{_PLACEHOLDER}")
_ONE_PLACEHOLDER: Final = re.compile(rf"\s*{_PLACEHOLDER}\s*\Z")
_MAX_ROUNDS: Final = 3
_MAX_REMEMBERED: Final = 1024


@frozen
class ConfigTemplate:
    """The values that signed configuration strings are rendered with.

    `values` are opaque; strings of the signed `config` may hold placeholders themselves. `unknown`
    collects each name without a value; its placeholder stays as it is.
    """

    environ: Mapping[str, str]
    values: Mapping[str, object]
    config: Mapping[str, object] = {}
    unknown: set[str] = field(factory=set)

    def render(self, text: str) -> object:
        """Render a string, or, where the whole text is one placeholder, its value with its type."""
        return self._render(text, 0)

    def text(self, text: str) -> str:
        """Render a string, and write the result as text."""
        return as_text(self.render(text))

    def _render(self, text: str, rounds: int) -> object:
        matches = placeholders(text)
        if not matches:
            return text
        alone = name_alone(text)
        if alone is not None:
            found, value = self._value(alone, rounds)
            return value if found else text
        parts: list[str] = []
        end = 0
        for match in matches:
            parts += (text[end : match.start()], self._replace(match, rounds))
            end = match.end()
        parts.append(text[end:])
        return "".join(parts)

    def _replace(self, match: re.Match[str], rounds: int) -> str:
        """Return the value of one placeholder of a longer text."""
        if match["var"] is not None:
            return self.environ.get(match["var"], match["default"] or "")
        found, value = self._value(match["name"], rounds)
        return as_text(value) if found else match[0]

    def _value(self, name: str, rounds: int) -> tuple[bool, object]:
        if name in self.values:
            return True, self.values[name]
        if name not in self.config or rounds >= _MAX_ROUNDS:
            self.unknown.add(name)
            return False, None
        value = self.config[name]
        return True, self._render(value, rounds + 1) if isinstance(value, str) else value


@lru_cache(maxsize=_MAX_REMEMBERED)
def placeholders(text: str) -> tuple[re.Match[str], ...]:
    """Find the placeholders of a signed string; the groups are `var` and `default`, or `name`.

    The result is cached: signed strings are rendered at each call, and scripts are long.
    """
    return tuple(_EITHER.finditer(text))


def name_alone(text: str) -> str | None:
    """Return the name in a string that is just one `{name}`; None for any other."""
    match = _ONE_PLACEHOLDER.match(text)
    return None if match is None else match["name"]


def count_of(name: str, text: str) -> int:
    """Return how often a placeholder stands in a signed string."""
    return sum(match["name"] == name for match in placeholders(text))


def with_unknown_parts(text: str) -> str:
    """Return a string with a NUL in the place of each `{name}`."""
    return _EITHER.sub(lambda match: match[0] if match["name"] is None else "\0", text)


def as_text(value: object) -> str:
    """Write a value as an argument: text as it is, null as nothing, the rest as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)
