"""JSON Schema: the failures of an instance, by path and in plain words.

Source: ADR 006.
"""

import json
from contextlib import suppress
from typing import Final

import anyio.to_thread
from attrs import frozen

from ryecore import _native
from ryecore.lillux.schema_size import MAX_SCHEMA_CHARS, check_schema_size

__all__ = ["MAX_STEPS", "UNDECIDED", "SchemaFailure", "SchemaValidator"]

MAX_STEPS: Final = 5_000_000
"""How many steps a validation may take; each reads one value, or 64 characters of a text."""

_MAX_MS: Final = 5_000
_INLINE_STEPS: Final = 20_000
_INLINE_MS: Final = 2
_INLINE_CHARS: Final = 64 * 1024


@frozen
class SchemaFailure:
    """One way in which an instance differs from its schema.

    Attributes:
        path: As in `items[2].name`; empty for the root.
        message: At most 300 characters, with long values shortened.
    """

    path: str
    message: str


UNDECIDED: Final = SchemaFailure(
    "",
    f"checking it against its schema takes more than {MAX_STEPS:,} steps or {_MAX_MS // 1000} s: "
    "make it smaller, or the schema simpler",
)
"""The failure of an instance whose validation was given up: it counts as invalid."""


class SchemaValidator:
    """A schema, ready to be used many times and in several threads.

    Draft 2020-12, unless `$schema` names another. Nothing is ever fetched: a `$ref` that leads out
    of the schema is refused. `format` only annotates.

    Args:
        schema_json: The schema as JSON.

    Raises:
        ValueError: The schema is invalid; the message says where. Or it is longer than
            `MAX_SCHEMA_CHARS`, or its references or patterns multiply it beyond what can be
            checked in time; see `check_schema_size`.
    """

    __slots__ = ("_native",)

    def __init__(self, schema_json: str) -> None:
        if len(schema_json) > MAX_SCHEMA_CHARS:
            raise ValueError(f"The schema has more than {MAX_SCHEMA_CHARS:,} characters.")
        if "$" in schema_json or "\\u" in schema_json:  # only references can multiply it
            with suppress(json.JSONDecodeError):  # the validator reports the problem
                check_schema_size(json.loads(schema_json))
        self._native = _native.SchemaValidator(schema_json)

    def failures(self, instance_json: str) -> tuple[SchemaFailure, ...]:
        """The failures of an instance, the first hundred at most; none when it is valid.

        Args:
            instance_json: The instance as JSON.

        Returns:
            The failures. `UNDECIDED` alone where finding them takes more than `MAX_STEPS`.

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
            The failures. `UNDECIDED` alone where finding them takes more than `MAX_STEPS`.

        Raises:
            ValueError: It is not JSON.
        """
        if len(instance_json) <= _INLINE_CHARS:
            found = self._native.failures(instance_json, _INLINE_STEPS, _INLINE_MS)
            if found is not None:
                return _read(found) if found else ()
        return await anyio.to_thread.run_sync(self.failures, instance_json, abandon_on_cancel=True)


def _read(found: list[tuple[str, str]] | None) -> tuple[SchemaFailure, ...]:
    if found is None:
        return (UNDECIDED,)
    return tuple(SchemaFailure(path, message) for path, message in found)
