"""The answers of agents that are more than text: their schema, their type, and the host's check.

Source: docs/design/agent-node.md#output; decisions 53 and 54.
"""

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from inspect import isawaitable
from typing import Any, Final, TypeAlias

from ryecore.agent.outcome import OutputT_co
from ryecore.agent.verdicts import ACCEPT, Accept, Fail, Nudge, OnText
from ryecore.errors import Retry
from ryecore.frozen import frozen
from ryecore.lillux.schema import SchemaValidator
from ryecore.llm.result import LlmResult
from ryecore.strict_json import read_json
from ryecore.tools.annotations import Form, form_of, read_docstring
from ryecore.tools.failures import shown

__all__ = ["AnswerReader", "OutputCheck", "TypedAnswer", "typed_answer"]

OutputCheck: TypeAlias = Callable[[OutputT_co], OutputT_co | Awaitable[OutputT_co | None] | None]
"""A host's check of an output. It may raise `Retry`, and return another output in its place."""

_FENCED: Final = re.compile(r"\s*```(?:json)?[ \t]*\n(.*)\n[ \t]*```\s*", re.DOTALL | re.IGNORECASE)
_MAX_FAILURES: Final = 20
_MAX_PATH_CHARS: Final = 200
_RESULT: Final = "result"


@frozen
class TypedAnswer:
    """The JSON form of the answers of an `output_type`.

    The schema is that of an object, as vendors need one: any other value is its `result`.
    """

    schema: Mapping[str, Any]
    convert: Callable[[Any], Any]


def typed_answer(output_type: Any) -> TypedAnswer | None:
    """Return the form of a type's answers; None for text. A TypeError says what has no form."""
    if output_type is str:
        return None
    if isinstance(output_type, type):
        return _answer_of_class(output_type)
    return _answer_of(output_type)


@lru_cache(maxsize=256)
def _answer_of_class(kind: type) -> TypedAnswer:
    return _answer_of(kind)


def _answer_of(output_type: Any) -> TypedAnswer:
    form = form_of(output_type, "Agent.output_type")
    make = form.convert or _same
    if form.schema.get("type") == "object":
        return TypedAnswer(_described(form.schema, output_type), make)
    return TypedAnswer(_wrapped(form), lambda found: make(found[_RESULT]))


def _described(schema: Mapping[str, Any], kind: Any) -> Mapping[str, Any]:
    """Return the schema with what the docstring of its class says, not the one of dataclasses."""
    text = vars(kind).get("__doc__") if isinstance(kind, type) else None
    if not text or "description" in schema or text.startswith(f"{kind.__name__}("):
        return schema
    said = read_docstring(text).description
    return {**schema, "description": said} if said else schema


def _wrapped(form: Form) -> Mapping[str, Any]:
    return {
        "type": "object",
        "properties": {_RESULT: form.schema},
        "required": [_RESULT],
        "additionalProperties": False,
    }


def _same(value: Any) -> Any:
    return value


@lru_cache(maxsize=256)
def _validator(schema_json: str) -> SchemaValidator:
    return SchemaValidator(schema_json)


@frozen
class _Misfit:
    """The mismatch of an answer and its form, in words for the model."""

    text: str


class AnswerReader:
    """Reads the answers of an agent: by a JSON Schema, as values of a type, and by a check.

    Args:
        schema: The JSON Schema; None for text.
        convert: Makes the output of a value that fits the schema.
        check: The host's check of the output.

    Raises:
        ValueError: The schema isn't valid; the message says why.
    """

    def __init__(
        self,
        schema: Mapping[str, Any] | None,
        convert: Callable[[Any], Any] | None = None,
        check: OutputCheck[Any] | None = None,
    ) -> None:
        self.schema = schema
        self._convert = convert
        self._check = check
        self._validator: SchemaValidator | None = None
        if schema is not None:
            try:
                text = json.dumps(schema)
            except (TypeError, RecursionError) as problem:
                raise ValueError(f"it is not JSON: {problem}") from None
            self._validator = _validator(text)

    async def read(self, result: LlmResult) -> OnText:
        """Read an answer: accept its output, or tell the model what is wrong with it."""
        output: object = result.text
        if self._validator is not None:
            if result.stop_reason == "length":
                return Fail(
                    "validation", "The answer was cut at its longest, so it fits no schema."
                )
            output = await self._read_json(result.text, self._validator)
            if isinstance(output, _Misfit):
                return Nudge(output.text)
        if self._check is not None:
            try:
                output = await self._checked(output, self._check)
            except Retry as why:
                return Nudge(f"Your answer isn't accepted: {why}")
        return ACCEPT if output is result.text else Accept(output)

    async def _checked(self, output: object, check: OutputCheck[Any]) -> object:
        said = check(output)
        if isawaitable(said):
            said = await said
        return output if said is None else said

    async def _read_json(self, answer: str, validator: SchemaValidator) -> object:
        """Read an answer, JSON alone or in the only fence, by the schema and the type."""
        fenced = _FENCED.fullmatch(answer)
        text = fenced[1] if fenced else answer
        try:
            value = read_json(text)
            failures = await validator.failures_async(text)
        except (ValueError, RecursionError) as problem:
            return _Misfit(
                f"Your answer isn't JSON ({problem}). Answer with the JSON value alone, "
                "nothing before or after it."
            )
        if failures:
            listed = "; ".join(
                f"{one.path[:_MAX_PATH_CHARS] or 'the value'}: {one.message}"
                for one in failures[:_MAX_FAILURES]
            )
            return _Misfit(
                f"Your answer doesn't fit the schema: {listed}. "
                "Answer again with the whole JSON value."
            )
        if self._convert is None:
            return value
        try:
            return self._convert(value)
        except Exception as error:  # a type's own check may raise anything
            why = shown(str(error)) or type(error).__name__
            return _Misfit(
                f"Your answer isn't accepted: {why}. Answer again with the whole JSON value."
            )
