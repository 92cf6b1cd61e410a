"""Configuration: what people write in YAML. Every problem has its file, its line and its keys.

@frozen
class RetryPolicy:
    attempts: Annotated[int, between(1, 100)] = 3
    cap_s: Annotated[float, between(0, 3600)] = 30.0

Configuration.of("agent/x.yaml", {"attempt": 3}).read(RetryPolicy)
# ConfigError: agent/x.yaml: attempt is unknown. Did you mean 'attempts'?

A value is taken only as the type that it has, as `strict` says; a key that no field has is refused.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, get_args, get_origin

from ryecore.convert.lines import Place, bounded, key_path, line_numbers, nearest, quoted
from ryecore.convert.strict import (
    ConversionError,
    Format,
    Problem,
    is_literal,
    is_mapping,
    make_converter,
    read_choice,
    shown,
)
from ryecore.errors import ConfigError
from ryecore.frozen import frozen

if TYPE_CHECKING:
    from cattrs import Converter

__all__ = [
    "CONFIG",
    "Check",
    "ConfigFile",
    "ConfigProblem",
    "Configuration",
    "Reader",
    "between",
    "describe_problem",
    "did_you_mean",
    "known_names",
]

T = TypeVar("T")

_MAX_LISTED: Final = 12
_MAX_COMPARED: Final = 2000
_MAX_SHOWN: Final = 20


@frozen(eq=False)  # so that a type with it is looked up by identity, in a fifth of the time
class Check:
    """What a value has to be besides its type, in `Annotated[type, Check(...)]`.

    `expected` says it in words, as in "from 1 to 100"; anything false that `accepts` returns is no.
    """

    expected: str
    accepts: Callable[[Any], object]


@frozen(eq=False)
class Reader:
    """How a value is read, in `Annotated[type, Reader(...)]`. A ValueError says what is wrong."""

    read: Callable[[Any], Any]


def between(low: float, high: float) -> Check:
    """Return the check that a number lies between two others, both included."""
    return Check(f"from {low:g} to {high:g}", lambda value: low <= value <= high)


@frozen
class ConfigProblem:
    """One problem of a configuration file.

    Attributes:
        file: The file, or what stands for it.
        line: The line, counted from 1; None where it is not known.
        place: The keys and indexes that lead to it.
        message: What is wrong, what was expected, and a guess for a misspelt key.
    """

    file: str
    line: int | None
    place: Place
    message: str

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}, line {self.line}"
        return f"{where}: {self._sentence()}"

    def in_file(self) -> str:
        """Return the problem without its file, for an error that names the file once."""
        return self._sentence() if self.line is None else f"line {self.line}: {self._sentence()}"

    def _sentence(self) -> str:
        return f"{key_path(self.place) or 'it'} {self.message}"


@frozen
class ConfigFile:
    """One file of a configuration: its name in errors, and its YAML text, to look lines up in."""

    name: str
    values: Mapping[str, object]
    text: str | bytes | None = None

    def lines(self) -> Mapping[Place, int]:
        """Return the line of each key; nothing where it has no text."""
        if self.text is None:
            return {}
        text = self.text
        return line_numbers(text if isinstance(text, str) else text.decode("utf-8", "replace"))


@frozen
class Configuration:
    """A configuration, merged of files, the nearest last, and what to do about a problem."""

    values: Mapping[str, object]
    files: tuple[ConfigFile, ...]
    next_step: str = "Correct the file and sign it again."

    @classmethod
    def of(
        cls, name: str, values: Mapping[str, object], text: str | None = None
    ) -> "Configuration":
        """Return the configuration of one file."""
        return cls(values, (ConfigFile(name, values, text),))

    def read(self, kind: type[T]) -> T:
        """Return the configuration as an attrs class. A ConfigError has all that is wrong."""
        try:
            return CONFIG.read(self.values, kind)
        except ConversionError as error:
            raise self.error((one.path, describe_problem(one)) for one in error.problems) from None

    def locate(self, found: Iterable[tuple[Place, str]]) -> tuple[ConfigProblem, ...]:
        """Return problems with their file and line."""
        lines = [cache(file.lines) for file in self.files]
        problems: list[ConfigProblem] = []
        for place, message in found:
            # The nearest of the files that hold most of the place.
            at = max((_depth(file.values, place), at) for at, file in enumerate(self.files))[1]
            numbers = lines[at]()
            line = numbers.get(nearest(place, numbers))
            problems.append(ConfigProblem(self.files[at].name, line, place, message))
        return tuple(problems)

    def error(self, found: Iterable[tuple[Place, str]]) -> ConfigError:
        """Return the error for problems of this configuration."""
        problems = self.locate(found)
        told = " ".join(
            f"{one}{'' if one.message[-1] in '.?' else '.'}" for one in problems[:_MAX_SHOWN]
        )
        more = len(problems) - _MAX_SHOWN
        return ConfigError(
            f"{told} There are {more} more problems." if more > 0 else told,
            next_step=self.next_step,
            problems=problems,
        )


def _depth(values: object, place: Place) -> int:
    """Return how many steps of a place lead somewhere in a document."""
    for depth, part in enumerate(place):
        if isinstance(values, Mapping):
            if part not in values:
                return depth
            values = values[part]
        elif isinstance(values, list) and isinstance(part, int) and part < len(values):
            values = values[part]
        else:
            return depth
    return len(place)


def did_you_mean(name: str, known: Iterable[str], *, at_least: float = 0.6) -> str:
    """Return a question that names the nearest known name; empty where none is near."""
    near = get_close_matches(name, list(known)[:_MAX_COMPARED], n=1, cutoff=at_least)
    return f" Did you mean {quoted(near[0])}?" if near else ""


def known_names(names: Iterable[str]) -> str:
    """Return the sentence of an error that lists known names; the first of many."""
    names = list(names)
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    listed = ", ".join(map(bounded, names[:_MAX_LISTED]))
    return f" Known: {listed or 'none'}{more}."


def describe_problem(problem: Problem) -> str:
    """Return what is wrong in the words of YAML; an unknown key with a guess."""
    if not problem.unknown_key:
        return problem.message.replace("an object", "a mapping")  # as YAML calls it
    guess = did_you_mean(str(problem.path[-1]), problem.known_keys)
    return f"is unknown.{guess or known_names(problem.known_keys)}"


# The converter


def _make(finds_every_problem: bool) -> "Converter":
    converter = make_converter(forbid_unknown_keys=True, finds_every_problem=finds_every_problem)
    converter.register_structure_hook_func(is_literal, _choice)
    converter.register_structure_hook_factory(is_mapping, lambda kind: _mapping(kind, converter))
    converter.register_structure_hook_factory(
        _is_annotated, lambda kind: _annotated(kind, converter)
    )
    return converter


def _choice(value: Any, kind: Any) -> Any:
    try:
        return read_choice(value, kind)
    except ValueError as problem:
        guess = did_you_mean(value, map(str, get_args(kind))) if isinstance(value, str) else ""
        raise ValueError(f"{problem}.{guess}") from None


def _mapping(kind: Any, converter: "Converter") -> Callable[[Any, Any], Any]:
    from cattrs.cols import mapping_structure_factory  # noqa: PLC0415

    key, value = get_args(kind)
    inner = mapping_structure_factory(dict[key, value], converter)  # type: ignore[valid-type]

    def read(values: Any, wanted: Any) -> Any:
        if not isinstance(values, Mapping):
            raise ValueError(f"must be a mapping, not {shown(values)}")
        return inner(values, wanted)

    return read


def _is_annotated(kind: Any) -> bool:
    return get_origin(kind) is Annotated


def _annotated(kind: Any, converter: "Converter") -> Callable[[Any, Any], Any]:
    base, *notes = get_args(kind)
    readers: Sequence[Reader] = [one for one in notes if isinstance(one, Reader)]
    checks: Sequence[Check] = [one for one in notes if isinstance(one, Check)]
    hook = None if readers else converter.get_structure_hook(base)

    def read(value: Any, _: object) -> Any:
        made = readers[0].read(value) if hook is None else hook(value, base)
        for check in checks:
            if not check.accepts(made):
                raise ValueError(f"must be {check.expected}, not {shown(value)}")
        return made

    return read


CONFIG: Final = Format(_make)
"""The converter of configuration, for values without a file of their own."""
