"""The check for parameters that are programs, so that no other value is put into them. Pure.

Source: decision 79; ADR 020.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from ryecore.errors import PlaceholderInScript
from ryecore.frozen import frozen
from ryecore.policy.command_lines import read_command_line
from ryecore.policy.dialects import SCRIPT_KEYWORD

__all__ = [
    "SplicedScript",
    "check_scripts",
    "has_placeholders",
    "spliced_scripts",
]

_NAMES: Final = re.compile(
    r"(?:.*[_-])?(?:command|cmd|script|shell|sql|bash)|(?:.*[_-])?(?:command|cmd)_?line"
    r"|code|(?:source|python|js|javascript|shell|bash)[_-]?code|eval|snippet|statement",
    re.IGNORECASE,
)
"""What tools call a program, where their schema doesn't say."""

_LISTS: Final = re.compile(r"(?:.*[_-])?(?:commands|cmds|scripts|statements)", re.IGNORECASE)
"""What they call a list of programs."""

_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

_MAX_DEPTH: Final = 64
_MAX_SHOWN: Final = 80


@frozen
class SplicedScript:
    """A program of a call with an expression in it, at a place in the parameters."""

    place: tuple[str | int, ...]
    text: str

    @property
    def message(self) -> str:
        """What is wrong with it."""
        where = ".".join(map(str, self.place))
        brief = " ".join(self.text.split())
        brief = brief if len(brief) <= _MAX_SHOWN else brief[: _MAX_SHOWN - 1] + "…"
        return f"{where} is a program, and a value must not be part of a program: {brief!r}"

    @property
    def next_step(self) -> str:
        """The safe form."""
        return (
            "Pass the value beside the program, where the tool takes it: rye/bash takes args, "
            'which its command reads as "$1", and env. A tool whose parameter is not a program '
            f"says so in its schema: {SCRIPT_KEYWORD}: false."
        )


def spliced_scripts(
    parameters: Mapping[str, object],
    schema: Mapping[str, object] | None,
    pattern: re.Pattern[str] | Callable[[str], str],
) -> list[SplicedScript]:
    """Return the programs of a call in which expressions stand, beside other text.

    A text that is just one expression is passed whole, and allowed: the call's author declares
    this value to be the program. `pattern` matches expressions, or replaces each of them with a
    NUL.
    """
    blank = (lambda text: pattern.sub("\0", text)) if isinstance(pattern, re.Pattern) else pattern
    found: list[SplicedScript] = []
    _walk(parameters, schema, (), blank, found)
    return found


def check_scripts(
    what: str,
    parameters: Mapping[str, object],
    schema: Mapping[str, object] | None,
    pattern: re.Pattern[str] | Callable[[str], str],
) -> None:
    """Raise PlaceholderInScript where an expression stands within a program of a call.

    `what` names the parameters in the error's text; for the others, see `spliced_scripts`.
    """
    for one in spliced_scripts(parameters, schema, pattern):
        raise PlaceholderInScript(
            f"{what}: {one.message}.", next_step=one.next_step, placeholder=str(one.place[0])
        )


def has_placeholders(value: object, pattern: re.Pattern[str]) -> bool:
    """Return whether an expression stands in any text of a value."""
    if isinstance(value, Mapping):
        return any(has_placeholders(one, pattern) for one in value.values())
    if isinstance(value, list | tuple):
        return any(has_placeholders(one, pattern) for one in value)
    return isinstance(value, str) and pattern.search(value) is not None


def _walk(
    value: object,
    schema: object,
    place: tuple[str | int, ...],
    blank: Callable[[str], str],
    found: list[SplicedScript],
) -> None:
    if len(place) > _MAX_DEPTH:
        return
    if isinstance(value, str):
        if _is_script(schema, place) and _is_spliced(blank(value)):
            found.append(SplicedScript(place, value))
    elif isinstance(value, Mapping):
        for key, one in value.items():
            _walk(one, _part(schema, "properties", key), (*place, str(key)), blank, found)
    elif isinstance(value, list | tuple):
        words = [blank(one) if isinstance(one, str) else "" for one in value]
        programs = read_command_line(words).programs
        for index, one in enumerate(value):
            is_part = index in programs and (programs[index].is_attached and "\0" in words[index])
            if index in programs and (is_part or _is_spliced(words[index])):
                found.append(SplicedScript((*place, index), str(one)))
            else:
                _walk(one, _part(schema, "items", None), (*place, index), blank, found)


def _part(schema: object, keyword: str, key: object) -> object:
    """Return the schema of a property, or of a list's members."""
    if not isinstance(schema, Mapping):
        return None
    parts = schema.get(keyword)
    if key is None:
        # A list of programs says so of itself.
        marked = {SCRIPT_KEYWORD: schema[SCRIPT_KEYWORD]} if SCRIPT_KEYWORD in schema else {}
        return {**marked, **parts} if isinstance(parts, Mapping) else marked
    return parts.get(key) if isinstance(parts, Mapping) else None


def _is_script(schema: object, place: tuple[str | int, ...]) -> bool:
    marked = schema.get(SCRIPT_KEYWORD) if isinstance(schema, Mapping) else None
    if marked is not None:
        return marked is not False
    if not place:
        return False
    if isinstance(place[-1], str):
        return _NAMES.fullmatch(_CAMEL.sub("_", place[-1])) is not None
    above = place[-2] if len(place) > 1 else ""
    return isinstance(above, str) and _LISTS.fullmatch(_CAMEL.sub("_", above)) is not None


def _is_spliced(text: str) -> bool:
    return "\0" in text and text.strip() != "\0"
