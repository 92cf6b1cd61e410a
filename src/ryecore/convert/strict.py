"""Converters that take each value only as the type that it has: "1" is not 1, and True is not 1.

What they raise names every problem and where it is, from the document's root.

| Type | In JSON |
| --- | --- |
| str, int, bool, None | as such; an int can't be 1.0 |
| float | a finite number, also a whole one |
| Literal | one of its values |
| Mapping[str, Any] | an object, taken as it is |
| list, tuple | an array |
| set, frozenset | an array, sorted |
| Path | text |
| an attrs class | an object; `fields` says how its fields are written |
| an attrs class with a text `type: ClassVar` | an object that has this text at "type" |
| a union of such classes | the one whose text stands at "type" |
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, Union, get_args, get_origin

import attrs

from ryecore.convert.fields import form_of
from ryecore.convert.lines import key_path, quoted
from ryecore.frozen import frozen

if TYPE_CHECKING:
    from cattrs import Converter

__all__ = [
    "RECORDS",
    "WIRE",
    "ConversionError",
    "Format",
    "Problem",
    "is_literal",
    "is_mapping",
    "make_converter",
    "read_choice",
    "shown",
    "written_key",
]

T = TypeVar("T")

_LARGE: Final = 10**40
_JSON: Final = (str, int, float, bool, type(None))
_TAG: Final = "type"


@frozen
class Problem:
    """What is wrong at one place of a document.

    Attributes:
        path: The keys and indices that lead there from the root.
        message: What is wrong, such as "must be text, not 1".
        unknown_key: Whether the last key of the path is unknown there.
        known_keys: The keys that are known there, where it is.
    """

    path: tuple[str | int, ...]
    message: str
    unknown_key: bool = False
    known_keys: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{key_path(self.path) or 'it'} {self.message}"


class ConversionError(ValueError):
    """All problems of a document that can't be read as its type, in the order of its fields."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = tuple(problems)


class Format:
    """One format: a converter that is made when it is first needed.

    Documents are read by a converter that stops at the first problem: its functions are generated
    in half the time. A document that it refuses is read again, by one that finds every problem.

    Args:
        make: Makes the converter that finds every problem, or the one that stops at the first.
        finds_every_problem: Whether errors name all problems and their places.
    """

    def __init__(
        self, make: "Callable[[bool], Converter]", *, finds_every_problem: bool = True
    ) -> None:
        self._make = make
        self._finds_every_problem = finds_every_problem
        self._converter: Converter | None = None
        self._thorough: Converter | None = None
        self._writers: dict[type, Callable[[Any], Any]] = {}
        self._readers: dict[Any, Callable[[Any, Any], Any]] = {}

    def write(self, value: object) -> Any:
        """Return a value as JSON types."""
        kind = type(value)  # looked up here, a writer is found in half the time
        write = self._writers.get(kind)
        if write is None:
            converter = self._converter or self._load()
            write = self._writers[kind] = converter.get_unstructure_hook(kind)
        return write(value)

    def read(
        self, document: object, kind: type[T], *, finds_every_problem: bool | None = None
    ) -> T:
        """Return a document, of JSON types, as a value of a type, or raise ConversionError.

        Args:
            finds_every_problem: As of the format; None for its own.
        """
        if finds_every_problem is None:
            finds_every_problem = self._finds_every_problem
        read = self._readers.get(kind)
        if read is None:
            converter = self._converter or self._load()
            read = self._readers[kind] = converter.get_structure_hook(kind)
        try:
            made: T = read(document, kind)
            return made
        except Exception as problem:
            if not finds_every_problem:
                raise _refusal(problem) from None
        if self._thorough is None:
            self._thorough = self._make(True)
        try:
            made = self._thorough.structure(document, kind)
        except Exception as problem:
            raise _refusal(problem) from None
        return made

    def _load(self) -> "Converter":
        self._converter = self._make(False)
        return self._converter


def _refusal(problem: Exception) -> Exception:
    from cattrs.errors import CattrsError  # noqa: PLC0415 - only where there is a problem

    if isinstance(problem, CattrsError | ValueError | TypeError | KeyError):
        return ConversionError(list(_problems(problem, ())))
    return problem


def make_converter(*, forbid_unknown_keys: bool, finds_every_problem: bool) -> "Converter":
    """Make a strict converter. A key that is not a field is an error, or else ignored."""
    from cattrs import Converter  # noqa: PLC0415 - 12 ms that not every process needs

    converter = Converter(
        forbid_extra_keys=forbid_unknown_keys, detailed_validation=finds_every_problem
    )
    for kind, name in ((str, "text"), (int, "a whole number"), (bool, "true or false")):
        converter.register_structure_hook(kind, _only(kind, name))
    converter.register_structure_hook(float, _number)
    converter.register_structure_hook(Path, lambda value, _: Path(_only(str, "text")(value, str)))
    converter.register_unstructure_hook(Path, str)
    converter.register_structure_hook_func(_is_any, lambda value, _: value)
    converter.register_structure_hook_func(is_literal, read_choice)
    converter.register_structure_hook_factory(_is_json, _json)
    converter.register_structure_hook_factory(_is_array, lambda kind: _array(kind, converter))
    converter.register_unstructure_hook_func(_is_open_mapping, dict)
    converter.register_unstructure_hook_func(_is_json_union, _plain)
    converter.register_unstructure_hook_factory(_is_set, lambda kind: _sorted(kind, converter))
    converter.register_structure_hook_factory(attrs.has, lambda kind: _reader(kind, converter))
    converter.register_unstructure_hook_factory(attrs.has, lambda kind: _writer(kind, converter))
    converter.register_structure_hook_factory(_is_tagged, lambda kind: _tagged(kind, converter))
    converter.register_unstructure_hook_factory(
        _is_tagged, lambda kind: _tagged_writer(kind, converter)
    )
    return converter


# Rules: which types they are for


def _is_any(kind: Any) -> bool:
    return kind is Any or kind is object


def is_literal(kind: Any) -> bool:
    """Return whether a type is a choice between values."""
    return get_origin(kind) is Literal


def _is_open_mapping(kind: Any) -> bool:
    return is_mapping(kind) and get_args(kind)[1:] in ((Any,), (object,))


def is_mapping(kind: Any) -> bool:
    """Return whether a type is a mapping with types of its keys and values."""
    origin = get_origin(kind)
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _is_set(kind: Any) -> bool:
    origin = get_origin(kind) or kind
    return isinstance(origin, type) and issubclass(origin, Set)


def _is_array(kind: Any) -> bool:
    origin = get_origin(kind) or kind
    return (
        isinstance(origin, type)
        and issubclass(origin, Sequence | Set)
        and not issubclass(origin, str | bytes)
    )


def _members(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else ()


def _is_json(kind: Any) -> bool:
    return _is_open_mapping(kind) or _is_json_union(kind)


def _is_json_union(kind: Any) -> bool:
    """Return whether a type is a union of JSON types, not counting None as a member."""
    members = [one for one in _members(kind) if one is not type(None)]
    return len(members) > 1 and all(one in _JSON or _is_open_mapping(one) for one in members)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _tag(kind: Any) -> str | None:
    tag = getattr(kind, _TAG, None) if isinstance(kind, type) else None
    return tag if isinstance(tag, str) else None


def _is_tagged(kind: Any) -> bool:
    members = [one for one in _members(kind) if one is not type(None)]
    return len(members) > 1 and all(_tag(one) is not None for one in members)


# Rules: what they do


def _only(kind: type, name: str) -> Callable[[Any, Any], Any]:
    def check(value: Any, _: object) -> Any:
        if type(value) is not kind:
            raise ValueError(f"must be {name}, not {shown(value)}")
        return value

    return check


def _number(value: Any, _: object) -> float:
    if type(value) not in (int, float):
        raise ValueError(f"must be a number, not {shown(value)}")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError("is too large a number") from None
    if not math.isfinite(number):
        raise ValueError(f"must be a finite number, not {number}")
    return number


def read_choice(value: Any, kind: Any) -> Any:
    """Return a value that is one of a choice."""
    for one in get_args(kind):
        if one == value and type(one) is type(value):
            return one
    listed = ", ".join(map(str, get_args(kind)))
    raise ValueError(f"must be one of {listed}, not {shown(value)}")


def _json(kind: Any) -> Callable[[Any, Any], Any]:
    members = _members(kind) or (kind,)
    plain = tuple(one for one in members if one in _JSON)
    objects = len(plain) < len(members)

    def check(value: Any, _: object) -> Any:
        if type(value) in plain or (objects and isinstance(value, Mapping)):
            return value
        names = "an object" if not plain else "of another type"
        raise ValueError(f"must be {names}, not {shown(value)}")

    return check


def _array(kind: Any, converter: "Converter") -> Callable[[Any, Any], Any]:
    inner = _plain_array(kind, converter)

    def read(value: Any, kind: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise ValueError(f"must be a list, not {shown(value)}")
        return inner(value, kind)

    return read


def _plain_array(kind: Any, converter: "Converter") -> Callable[[Any, Any], Any]:
    from cattrs.cols import (  # noqa: PLC0415
        homogenous_tuple_structure_factory,
        list_structure_factory,
    )

    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if issubclass(origin, tuple) and arguments[1:] == (...,):
        return homogenous_tuple_structure_factory(kind, converter)
    if issubclass(origin, Set):
        items = list_structure_factory(list[arguments[0]], converter)  # type: ignore[valid-type]
        make = set if issubclass(origin, set) else frozenset
        return lambda value, _: make(items(value, list))
    return list_structure_factory(kind, converter)


def _sorted(kind: Any, converter: "Converter") -> Callable[[Any], Any]:
    return lambda values: sorted(map(converter.unstructure, values))


def _overrides(kind: Any) -> dict[str, Any]:
    from cattrs.gen import override  # noqa: PLC0415

    made = {}
    for field in attrs.fields(kind):
        form = form_of(field)
        read = form.read
        made[field.name] = override(
            rename=form.key,
            omit_if_default=form.omitted_at_default or None,
            unstruct_hook=form.write,
            struct_hook=None if read is None else _then(read),
        )
    return made


def _then(read: Callable[[float], Any]) -> Callable[[Any, Any], Any]:
    return lambda value, kind: read(_number(value, kind))


def _reader(kind: Any, converter: "Converter") -> Callable[[Any, Any], Any]:
    from cattrs.gen import make_dict_structure_fn  # noqa: PLC0415

    read: Callable[[Any, Any], Any] = make_dict_structure_fn(kind, converter, **_overrides(kind))
    tag = _tag(kind)
    hides_tag = tag is not None and converter.forbid_extra_keys

    def read_object(value: Any, wanted: Any) -> Any:
        if not isinstance(value, Mapping):
            raise ValueError(f"must be an object, not {shown(value)}")
        if tag is not None and value.get(_TAG) != tag:
            raise ValueError(f"must have the type {tag}, not {shown(value.get(_TAG))}")
        if hides_tag:
            value = {name: one for name, one in value.items() if name != _TAG}
        return read(value, wanted)

    return read_object


def _writer(kind: Any, converter: "Converter") -> Callable[[Any], Any]:
    from cattrs.gen import make_dict_unstructure_fn  # noqa: PLC0415

    write: Callable[[Any], Any] = make_dict_unstructure_fn(kind, converter, **_overrides(kind))
    tag = _tag(kind)
    return write if tag is None else lambda value: {_TAG: tag, **write(value)}


def _tagged_writer(kind: Any, converter: "Converter") -> Callable[[Any], Any]:
    members = [one for one in _members(kind) if one is not type(None)]
    writers = {one: converter.get_unstructure_hook(one) for one in members}
    return lambda value: None if value is None else writers[type(value)](value)


def _tagged(kind: Any, converter: "Converter") -> Callable[[Any, Any], Any]:
    members = [one for one in _members(kind) if one is not type(None)]
    none = len(members) < len(_members(kind))
    readers = {_tag(one): (converter.get_structure_hook(one), one) for one in members}

    def read(value: Any, _: object) -> Any:
        if value is None and none:
            return None
        if not isinstance(value, Mapping):
            raise ValueError(f"must be an object, not {shown(value)}")
        tag = value.get(_TAG)
        if not isinstance(tag, str) or tag not in readers:
            listed = ", ".join(map(str, readers))
            raise ValueError(f"must have one of the types {listed}, not {shown(tag)}")
        reader, one = readers[tag]
        return reader(value, one)

    return read


# Errors


def shown(value: object) -> str:
    """Return a value of JSON for an error's text."""
    match value:
        case Mapping():
            return "an object"
        case list() | tuple() | set():
            return "a list"
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return quoted(value)
        case int() if abs(value) >= _LARGE:  # its text may be longer than Python writes
            return "a larger number"
        case _:
            return str(value)


def _problems(problem: BaseException, path: tuple[str | int, ...]) -> Iterable[Problem]:
    from cattrs.errors import (  # noqa: PLC0415
        ClassValidationError,
        ForbiddenExtraKeysError,
        IterableValidationError,
    )

    match problem:
        case ClassValidationError():
            keys = {one.name: form_of(one).key or one.name for one in attrs.fields(problem.cl)}
            for one in problem.exceptions:
                if isinstance(one, ForbiddenExtraKeysError):
                    for unknown in sorted(map(written_key, one.extra_fields)):
                        yield Problem((*path, unknown), "is unknown", True, tuple(keys.values()))
                    continue
                name = next((note.name for note in _notes(one) if hasattr(note, "name")), None)
                yield from _problems(one, path if name is None else (*path, keys[name]))
        case IterableValidationError():
            for one in problem.exceptions:
                note = next((note for note in _notes(one) if hasattr(note, "index")), None)
                yield from _problems(one, path if note is None else (*path, _step(note.index)))
        case KeyError():
            yield Problem(path, "is missing")
        case _:
            yield Problem(path, str(problem))


def written_key(key: object) -> str:
    """Return the key of a mapping, which need not be text in YAML, as it is written there."""
    return key if isinstance(key, str) else shown(key)


def _step(part: object) -> str | int:
    return part if type(part) is int else written_key(part)


def _notes(problem: BaseException) -> Sequence[Any]:
    # The innermost note is cattrs' first; an exception that passes several levels is wrapped anew.
    return getattr(problem, "__notes__", ())


WIRE: Final = Format(
    lambda every: make_converter(forbid_unknown_keys=True, finds_every_problem=every)
)
"""The format of events, outcomes, costs and reports: an unknown key is an error."""

RECORDS: Final = Format(
    lambda every: make_converter(forbid_unknown_keys=False, finds_every_problem=every),
    finds_every_problem=False,
)
"""The format of transcripts and journals: a key that another version wrote is ignored.

Nobody corrects a record by hand, so an error names only its first problem.
"""
