"""JSON Schema: the failures of an instance, by path and in plain words."""

import json
from contextlib import suppress

from attrs import frozen

from ryecore import _native
from ryecore.lillux.schema_size import check_schema_size

__all__ = ["SchemaFailure", "SchemaValidator"]


@frozen
class SchemaFailure:
    """One way in which an instance differs from its schema.

    Attributes:
        path: As in `items[2].name`; empty for the root.
        message: At most 300 characters, with long values shortened.
    """

    path: str
    message: str


class SchemaValidator:
    """A schema, ready to be used many times and in several threads.

    Draft 2020-12, unless `$schema` names another. Nothing is ever fetched: a `$ref` that leads out
    of the schema is refused. `format` only annotates.

    Args:
        schema_json: The schema as JSON.

    Raises:
        ValueError: It is no valid schema; the message says where. Or its references multiply it
            beyond what can be checked in time; see `check_schema_size`.
    """

    __slots__ = ("_native",)

    def __init__(self, schema_json: str) -> None:
        if "$" in schema_json or "\\u" in schema_json:  # without references it is as it looks
            with suppress(json.JSONDecodeError):  # the validator says what is wrong with it
                check_schema_size(json.loads(schema_json))
        self._native = _native.SchemaValidator(schema_json)

    def failures(self, instance_json: str) -> tuple[SchemaFailure, ...]:
        """The failures of an instance, the first hundred at most; none when it is valid.

        Args:
            instance_json: The instance as JSON.

        Raises:
            ValueError: It is not JSON.
        """
        found = self._native.failures(instance_json)
        if not found:
            return ()
        return tuple(SchemaFailure(path, message) for path, message in found)
