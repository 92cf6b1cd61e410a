"""The keys of one mapping of a graph's file, each read by the converter of configuration."""

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeAlias, TypeVar

from ryecore.convert.config import CONFIG, Check, describe_problem, did_you_mean, known_names
from ryecore.convert.lines import Place, key_path, quoted
from ryecore.convert.strict import ConversionError, shown
from ryecore.frozen import frozen
from ryecore.graph.validation.problems import Problems
from ryecore.policy.expressions import BrokenExpression, Template, read_template

__all__ = ["Amount", "Count", "Fields", "Seconds", "Text", "Variable"]

T = TypeVar("T")

_MAX_WHOLE: Final = 2**31 - 1
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Text: TypeAlias = Annotated[str, Check("text that is not empty", str.strip)]
Count: TypeAlias = Annotated[int, Check("a whole number from 1", lambda n: 1 <= n <= _MAX_WHOLE)]
Amount: TypeAlias = Annotated[float, Check("0 or more", lambda n: 0 <= n <= 2**53)]
Seconds: TypeAlias = Annotated[
    float, Check("a number of seconds above 0", lambda n: 0 < n < math.inf)
]
Variable: TypeAlias = Annotated[
    str, Check("the name of an environment variable", _VARIABLE.fullmatch)
]


@frozen
class Fields:
    """A mapping in the file. A wrong value is reported, and read as if it were absent."""

    declared: Mapping[str, object]
    place: Place
    problems: Problems

    def at(self, *path: str | int) -> Place:
        """Return where a key stands."""
        return (*self.place, *path)

    def error(self, name: str, message: str) -> None:
        """Report a problem of a key."""
        self.problems.error(self.at(name), message)

    def check(self, owner: str, known: tuple[str, ...], why: Mapping[str, str] = {}) -> None:
        """Report keys that aren't known; `owner` says what the mapping is, such as `an action`."""
        for name in self.declared:
            if name in known or not isinstance(name, str):  # which is reported for the whole file
                continue
            if name in why:
                self.error(name, why[name])
                continue
            guess = did_you_mean(name, known)
            self.error(
                name, f"{quoted(name)} is not a key of {owner}.{guess or known_names(known)}"
            )

    def has(self, name: str) -> bool:
        """Return whether a key is there, and not null."""
        return self.declared.get(name) is not None

    def value(self, name: str, kind: Any, default: T) -> T:
        """Return the value of a key, or the default where it is absent, null, or wrong.

        `kind` is its type, as the converter of configuration knows it.
        """
        value = self.declared.get(name)
        return default if value is None else self.read(value, kind, default, name)

    def read(self, value: object, kind: Any, default: T, *path: str | int) -> T:
        """Return a value that stands at a path in the mapping; the default where it is wrong."""
        try:
            made: T = CONFIG.read(value, kind)
        except ConversionError as error:
            for one in error.problems:
                where = (*path, *one.path)
                message = describe_problem(one)
                end = "" if message[-1] in ".?" else "."
                self.problems.error(self.at(*where), f"{key_path(where)} {message}{end}")
            return default
        return made

    def flag(self, name: str) -> bool:
        """Return whether a flag is set; null is wrong."""
        return name in self.declared and self.read(self.declared[name], bool, False, name)

    def required(self, name: str) -> str | None:
        """Return a text that must be there; None where it is missing or wrong."""
        if not self.has(name):
            self.problems.error(self.place, f"{name} is missing.")
        return self.value(name, Text, None)

    def texts(self, name: str, kind: Any = Text) -> tuple[str, ...]:
        """Return a list of texts without duplicates; wrong ones are reported and left out."""
        declared: list[object] = self.value(name, list[object], [])
        read = [self.read(one, kind, "", name, index) for index, one in enumerate(declared)]
        return tuple(dict.fromkeys(filter(None, read)))

    def mapping(self, name: str) -> Mapping[str, object]:
        """Return a mapping, without keys that are not text; empty where there is none."""
        inner = self.inner(self.declared[name], name) if self.has(name) else None
        declared = {} if inner is None else inner.declared
        return {key: one for key, one in declared.items() if isinstance(key, str)}

    def inner(self, value: object, *path: str | int) -> "Fields | None":
        """Return the fields of a mapping in this one; None where it is something else."""
        if isinstance(value, Mapping):
            return Fields(value, self.at(*path), self.problems)
        self.problems.error(
            self.at(*path), f"{key_path(path)} must be a mapping, not {shown(value)}."
        )
        return None

    def template(self, name: str) -> Template:
        """Return a value with expressions in it."""
        return self.template_of(self.declared.get(name), self.at(name))

    def template_of(self, value: object, place: Place) -> Template:
        """Return a value with expressions in it, from another place."""
        try:
            return read_template(value)
        except BrokenExpression as problem:
            if isinstance(value, str):
                self.problems.error(place, f"{problem}.")
                return Template(None)
        for key, one in (
            value.items()
            if isinstance(value, Mapping)
            else enumerate(value)
            if isinstance(value, list)
            else ()
        ):
            self.template_of(one, (*place, key))  # so that each broken one is reported
        return Template(None)
