"""The keys of one mapping of a graph's file, each read as what it has to be."""

import math
import re
from collections.abc import Mapping
from typing import Final

from attrs import frozen

from ryecore.convert.config import did_you_mean, listed
from ryecore.convert.lines import Place
from ryecore.graph.validation.problems import Problems
from ryecore.policy.expressions import BrokenExpression, Template, read_template

__all__ = ["Fields", "brief", "kind_of"]

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_MAX_SHOWN: Final = 60
_MAX_WHOLE: Final = 2**31 - 1


def brief(value: object) -> str:
    """Return a value, for an error's text."""
    shown = repr(value)
    return shown if len(shown) <= _MAX_SHOWN else shown[: _MAX_SHOWN - 1] + "…"


def kind_of(value: object) -> str:
    """Return what a value of a document is called."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case Mapping():
            return "a mapping"
        case list():
            return "a list"
    return f"a {type(value).__name__}"


@frozen
class Fields:
    """A mapping of the file. A wrong value is reported, and read as if it were absent.

    Attributes:
        declared: The mapping.
        place: Where it stands.
        problems: Collects the problems.
    """

    declared: Mapping[str, object]
    place: Place
    problems: Problems

    @classmethod
    def of(cls, declared: object, place: Place, problems: Problems, what: str) -> "Fields | None":
        """Return the fields of what has to be a mapping; None where it is something else."""
        if isinstance(declared, Mapping):
            return cls(declared, place, problems)
        problems.error(place, f"{what} is a mapping, and this is {kind_of(declared)}.")
        return None

    def at(self, name: str) -> Place:
        """Return where a key stands."""
        return (*self.place, name)

    def error(self, name: str, message: str) -> None:
        """Report a problem of a key."""
        self.problems.error(self.at(name), message)

    def check(self, owner: str, known: tuple[str, ...], why: Mapping[str, str] = {}) -> None:
        """Report unknown keys.

        Args:
            owner: What the mapping is, as `an action`.
            known: The keys that there are.
            why: What to say of certain others.
        """
        for name in self.declared:
            if name in known or not isinstance(name, str):  # which is reported for the whole file
                continue
            if name in why:
                self.problems.error(self.at(name), why[name])
                continue
            guess = did_you_mean(name, known)
            self.problems.error(
                self.at(name),
                f"{name!r} is not a key of {owner}.{guess or f' There are {listed(known)}.'}",
            )

    def has(self, name: str) -> bool:
        """Return whether a key is there, and not null."""
        return self.declared.get(name) is not None

    def text(self, name: str, *, default: str | None = None, required: bool = False) -> str | None:
        """Return a text, not empty."""
        value = self.declared.get(name)
        if value is None:
            if required:
                self.problems.error(self.place, f"{name} is missing.")
            return default
        if not isinstance(value, str) or not value.strip():
            self.error(name, f"{name} is {self._shown(value)}; it has to be text.")
            return default
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a flag."""
        value = self.declared.get(name, default)
        if not isinstance(value, bool):
            self.error(name, f"{name} is {self._shown(value)}; it has to be true or false.")
            return default
        return value

    def choice(self, name: str, valid: tuple[str, ...], default: str) -> str:
        """Return one of some names."""
        value = self.declared.get(name, default)
        if value in valid and isinstance(value, str):
            return value
        guess = did_you_mean(value, valid) if isinstance(value, str) else ""
        self.error(name, f"{name} is {self._shown(value)}; it is one of {listed(valid)}.{guess}")
        return default

    def whole(self, name: str, default: int | None, lowest: int = 1) -> int | None:
        """Return a whole number."""
        value = self.declared.get(name)
        if value is None:
            return default
        if type(value) is not int or not lowest <= value <= _MAX_WHOLE:
            self.error(
                name, f"{name} is {self._shown(value)}; it has to be a whole number from {lowest}."
            )
            return default
        return value

    def seconds(self, name: str, default: float | None, *, zero: bool = False) -> float | None:
        """Return a number of seconds."""
        value = self.declared.get(name)
        if value is None:
            return default
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
            or value < 0
            or (value == 0 and not zero)
        ):
            least = "0 or more" if zero else "more than 0"
            self.error(name, f"{name} is {self._shown(value)}; it has to be {least}, in seconds.")
            return default
        return float(value)

    def names(self, name: str) -> tuple[str, ...]:
        """Return a list of texts."""
        value = self.declared.get(name)
        if value is None:
            return ()
        if not isinstance(value, list):
            self.error(name, f"{name} is {kind_of(value)}; it has to be a list of names.")
            return ()
        for index, one in enumerate(value):
            if not isinstance(one, str) or not one:
                self.problems.error(
                    (*self.at(name), index), f"In {name}, {brief(one)} is not a name."
                )
        return tuple(dict.fromkeys(one for one in value if isinstance(one, str) and one))

    def variables(self, name: str) -> tuple[str, ...]:
        """Return a list of names of environment variables."""
        names = self.names(name)
        declared = self.declared.get(name)
        for one in names:
            if _VARIABLE.match(one) is None and isinstance(declared, list):
                self.problems.error(
                    (*self.at(name), declared.index(one)),
                    f"{one!r} is not a name of an environment variable.",
                )
        return names

    def mapping(self, name: str) -> Mapping[str, object]:
        """Return a mapping, without keys that are no text; empty where there is none."""
        value = self.declared.get(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.error(name, f"{name} is {kind_of(value)}; it has to be a mapping.")
            return {}
        return {key: one for key, one in value.items() if isinstance(key, str)}

    def template(self, name: str) -> Template:
        """Return a value with expressions in it."""
        return self.template_of(self.declared.get(name), self.at(name))

    def template_of(self, value: object, place: Place) -> Template:
        """Return a value with expressions in it, that stands somewhere else."""
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

    def _shown(self, value: object) -> str:
        return brief(value) if isinstance(value, str | int | float) else kind_of(value)
