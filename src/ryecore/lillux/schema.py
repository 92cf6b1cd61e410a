"""JSON Schema: validation of instances, and bounds on the size of schemas.

A schema of a few hundred bytes whose parts refer to each other several times, level by level, takes
billions of steps for the smallest instance, and a validation can't be interrupted. So the size of a
schema is bounded with its references followed.

Source: ADR 006; decision 82.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

from ryecore import _native
from ryecore.convert.lines import bounded
from ryecore.frozen import frozen
from ryecore.lillux.event_loop import run_in_thread

__all__ = ["MAX_SCHEMA_CHARS", "MAX_STEPS", "UNDECIDED", "SchemaFailure", "SchemaValidator"]

MAX_SCHEMA_CHARS: Final = 1_048_576
"""The most characters of a schema's JSON."""

MAX_SUBSCHEMAS: Final = 1_000_000
"""The most subschemas, each counted at every place that refers to it."""

MAX_SUBSCHEMAS_A_VALUE: Final = 20_000
"""The most subschemas that are applied to one value."""

_MAX_DEPTH: Final = 256
"""The deepest nesting of subschemas, references followed."""

_ONE: Final = ("not", "if", "then", "else")
_LISTS: Final = ("allOf", "anyOf", "oneOf")
_MAPS: Final = ("dependentSchemas", "dependencies")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_REFERRING: Final = (*(f'"{key}"' for key in _REFERENCES), "\\u")
"""What stands in the JSON of a schema that has a reference, whose key may be written in escapes."""

_INNER_ONE: Final = (
    "items", "additionalItems", "contains", "additionalProperties", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_INNER_LISTS: Final = ("prefixItems", "items")
_INNER_MAPS: Final = ("properties", "patternProperties")


def check_schema_size(schema: object) -> None:
    """Raise ValueError for a schema that is too large with its references followed."""
    try:
        here, all_in_all = _Sizes(schema).of(schema)
    except RecursionError:
        raise ValueError("the schema is nested too deeply") from None
    if all_in_all > MAX_SUBSCHEMAS or here > MAX_SUBSCHEMAS_A_VALUE:
        raise ValueError(
            "the schema refers to its own parts so often that it comes to more than "
            f"{MAX_SUBSCHEMAS} subschemas, or {MAX_SUBSCHEMAS_A_VALUE} of one value"
        )


class _Sizes:
    """The sizes of one document's subschemas, each counted once."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._known: dict[int, tuple[int, int]] = {}
        self._open: set[int] = set()
        self._bases: dict[int, str] = {}
        self._documents: dict[str, object] = {"": root}
        self._anchors: dict[tuple[str, str], object] = {}
        self._dynamic: dict[str, list[object]] = {}
        self._find_names(root)

    def of(self, schema: object) -> tuple[int, int]:
        """Return how many subschemas are applied to one value at most, and in all."""
        if not isinstance(schema, Mapping):
            return (1, 1)
        key = id(schema)
        if key in self._known:
            return self._known[key]
        if key in self._open:  # a recursive schema: the instance bounds it
            return (1, 1)
        if len(self._open) >= _MAX_DEPTH:
            raise RecursionError
        self._open.add(key)
        here, all_in_all = 1, 1
        widest = 0
        for one in self._beside(schema):
            its_own, with_inner = self.of(one)
            here += its_own
            all_in_all += with_inner
        for one in _inner(schema):
            its_own, with_inner = self.of(one)
            widest = max(widest, its_own)
            all_in_all += with_inner
        self._open.discard(key)
        # Capped at the bound: the counts of a schema bomb have many digits.
        size = (
            min(max(here, widest), MAX_SUBSCHEMAS_A_VALUE + 1),
            min(all_in_all, MAX_SUBSCHEMAS + 1),
        )
        self._known[key] = size
        return size

    def _beside(self, schema: Mapping[str, Any]) -> Iterator[object]:
        """Return the subschemas that are applied to the same value."""
        yield from (schema[name] for name in _ONE if name in schema)
        yield from _members(schema, _LISTS, _MAPS)
        for name in _REFERENCES:
            target = schema.get(name)
            if isinstance(target, str):
                yield from self._resolved(target, self._bases.get(id(schema), ""), name)

    def _resolved(self, reference: str, base: str, keyword: str) -> Iterator[object]:
        """Yield the targets of a reference within the document."""
        uri, fragment = urldefrag(_joined(base, reference))
        found: Any = self._documents.get(uri)
        if found is None:
            return
        if not fragment or fragment.startswith("/"):
            for step in unquote(fragment).split("/")[1:]:
                name = step.replace("~1", "/").replace("~0", "~")
                if isinstance(found, Mapping):
                    found = found.get(name)
                elif isinstance(found, list) and name.isdigit() and int(name) < len(found):
                    found = found[int(name)]
                else:
                    return
            yield found
        elif keyword == "$dynamicRef" and fragment in self._dynamic:
            yield from self._dynamic[fragment]
        elif (uri, fragment) in self._anchors:
            yield self._anchors[uri, fragment]

    def _find_names(self, root: object) -> None:
        """Note the base of each subschema, and what has an identifier or an anchor."""
        left: list[tuple[object, str]] = [(root, "")]
        while left:
            one, base = left.pop()
            if isinstance(one, list):
                left += [(item, base) for item in one]
            if not isinstance(one, Mapping):
                continue
            for name in ("$id", "id"):
                identifier = one.get(name)
                if isinstance(identifier, str):
                    base, anchor = urldefrag(_joined(base, identifier))
                    if anchor:  # as drafts 4 to 7 write an anchor
                        self._anchors.setdefault((base, anchor), one)
                    else:
                        self._documents.setdefault(base, one)
            for name in ("$anchor", "$dynamicAnchor"):
                found = one.get(name)
                if isinstance(found, str):
                    self._anchors[base, found] = one
                    if name == "$dynamicAnchor":
                        self._dynamic.setdefault(found, []).append(one)
            self._bases[id(one)] = base
            left += [(member, base) for member in one.values()]


def _joined(base: str, reference: str) -> str:
    try:
        return urljoin(base, reference)
    except ValueError:  # such as half an IPv6 address; the validator refuses it
        return reference.partition("#")[0]


def _inner(schema: Mapping[str, Any]) -> Iterator[object]:
    """Return the subschemas that are applied to values within the value."""
    yield from (schema[name] for name in _INNER_ONE if isinstance(schema.get(name), Mapping))
    yield from _members(schema, _INNER_LISTS, _INNER_MAPS)


def _members(
    schema: Mapping[str, Any], lists: Sequence[str], maps: Sequence[str]
) -> Iterator[object]:
    for name in lists:
        found = schema.get(name)
        if isinstance(found, list):
            yield from found
    for name in maps:
        found = schema.get(name)
        if isinstance(found, Mapping):
            yield from found.values()


MAX_STEPS: Final = 5_000_000
"""The most steps of a validation; each reads one value, or 64 characters of a text."""

_MAX_MS: Final = 5_000
_INLINE_STEPS: Final = 20_000
_INLINE_MS: Final = 2
_INLINE_CHARS: Final = 64 * 1024


_MAX_PATH_CHARS: Final = 300


@frozen
class SchemaFailure:
    """One way in which an instance differs from its schema.

    Attributes:
        path: The place, as `items[2].name`; empty for the root.
        message: At most 300 characters, with long values shortened.
    """

    path: str
    message: str

    def __str__(self) -> str:
        """Return place and message as one short text: a place's names may be what a model wrote."""
        place = bounded(self.path, _MAX_PATH_CHARS - 1)  # and the ellipsis
        return f"{place}: {self.message}" if place else self.message


UNDECIDED: Final = SchemaFailure(
    "",
    f"checking it against its schema takes more than {MAX_STEPS:,} steps or {_MAX_MS // 1000} s: "
    "make it smaller, or the schema simpler",
)
"""The failure of an instance whose validation was given up: it counts as invalid."""


class SchemaValidator:
    """A schema, ready to be used many times and in several threads.

    Draft 2020-12, unless `$schema` names another. Nothing is ever fetched: a `$ref` that leads out
    of the schema is refused. Each `format` that the draft names is checked, such as `date` and
    `uuid`; `regex`, the international ones and others only annotate.

    Args:
        schema_json: The schema as JSON.
        check_formats: Whether a `format` is checked; otherwise it only annotates.

    Raises:
        ValueError: The schema is invalid; the message says where. Or it is longer than
            `MAX_SCHEMA_CHARS`, or its references or patterns multiply it beyond what can be
            checked in time; see `check_schema_size`.
    """

    __slots__ = ("_native",)

    def __init__(self, schema_json: str, *, check_formats: bool = True) -> None:
        if len(schema_json) > MAX_SCHEMA_CHARS:
            raise ValueError(f"the schema has more than {MAX_SCHEMA_CHARS:,} characters")
        if any(key in schema_json for key in _REFERRING):  # only references can multiply it
            with suppress(json.JSONDecodeError):  # the validator reports the problem
                check_schema_size(json.loads(schema_json))
        self._native = _native.SchemaValidator(schema_json, check_formats)

    def failures(self, instance_json: str) -> tuple[SchemaFailure, ...]:
        """Return the failures of an instance, the first hundred at most; none when it is valid.

        Args:
            instance_json: The instance as JSON.

        Returns:
            The failures; only `UNDECIDED` where finding them takes more than `MAX_STEPS`.

        Raises:
            ValueError: It is not JSON.
        """
        return _read(self._native.failures(instance_json, MAX_STEPS, _MAX_MS))

    async def failures_async(self, instance_json: str) -> tuple[SchemaFailure, ...]:
        """Return the same as `failures`; a long validation runs in a worker thread.

        A cancelled call ends at once. Its thread ends with the bound on steps.

        Args:
            instance_json: The instance as JSON.

        Returns:
            The failures; only `UNDECIDED` where finding them takes more than `MAX_STEPS`.

        Raises:
            ValueError: It is not JSON.
        """
        if len(instance_json) <= _INLINE_CHARS:
            found = self._native.failures(instance_json, _INLINE_STEPS, _INLINE_MS)
            if found is not None:
                return _read(found) if found else ()
        return await run_in_thread(self.failures, instance_json, abandon_on_cancel=True)


def _read(found: list[tuple[str, str]] | None) -> tuple[SchemaFailure, ...]:
    if found is None:
        return (UNDECIDED,)
    return tuple(SchemaFailure(path, message) for path, message in found)
