"""Read an answer that should fit a schema.

Source: docs/design/agent-node.md#output; decision 54.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from ryecore.lillux.schema import SchemaValidator
from ryecore.strict_json import read_json

__all__ = ["Misfit", "OutputSchema"]

_FENCED: Final = re.compile(r"\s*```(?:json)?[ \t]*\n(.*)\n[ \t]*```\s*", re.DOTALL)
_MAX_FAILURES: Final = 20
_MAX_PATH_CHARS: Final = 200


@frozen
class Misfit:
    """How an answer misses its schema, in words that the model is told."""

    text: str


class OutputSchema:
    """The schema of an answer, ready to check many.

    Args:
        schema: The JSON Schema.

    Raises:
        ValueError: It is no valid schema; the message says where.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        try:
            text = json.dumps(schema)
        except (TypeError, RecursionError) as problem:
            raise ValueError(f"it is not JSON: {problem}") from None
        self.schema = schema
        self._validator = SchemaValidator(text)

    async def read(self, answer: str) -> object:
        """The value of an answer, or how it misses the schema.

        Args:
            answer: JSON, alone or as the one fenced block.

        Returns:
            The value, or a `Misfit`.
        """
        fenced = _FENCED.fullmatch(answer)
        text = fenced[1] if fenced else answer
        try:
            value = read_json(text)
            failures = await self._validator.failures_async(text)
        except (ValueError, RecursionError) as problem:
            return Misfit(
                f"Your answer is no JSON ({problem}). Answer with the JSON value alone, "
                "nothing before or after it."
            )
        if not failures:
            return value
        listed = "; ".join(
            f"{one.path[:_MAX_PATH_CHARS] or 'the value'}: {one.message}"
            for one in failures[:_MAX_FAILURES]
        )
        return Misfit(
            f"Your answer doesn't fit the schema: {listed}. Answer again with the whole JSON value."
        )
