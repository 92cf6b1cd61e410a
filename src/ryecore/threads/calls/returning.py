"""The tool `rye_directive_return`, with which a thread's model returns its outputs. Pure.

Source: docs/design/threads.md#turn-loop; decision 44.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

from ryecore.directives.inputs import Declared, input_schema, resolve_inputs
from ryecore.errors import InvalidInputs, ToolExecutionError
from ryecore.frozen import frozen
from ryecore.strict_json import read_json
from ryecore.tools.context import ToolContext
from ryecore.tools.definition import ToolDef

__all__ = [
    "RETURN_NAMES",
    "RETURN_TOOL",
    "Rejected",
    "Returned",
    "check_outputs",
    "return_tool",
]

RETURN_TOOL: Final = "rye_directive_return"
"""The tool that a model calls to return its outputs."""

RETURN_NAMES: Final = frozenset({RETURN_TOOL, "directive_return"})
"""The names under which a model may call it."""

_STATUS: Final = "status"
_DETAIL: Final = "error_detail"
_NO_DETAIL: Final = "The model gave up, and didn't say why."
_MAX_LISTED: Final = 20
_MAX_TEXT: Final = 4_000
_DESCRIPTION: Final = (
    "Hand back your outputs, once, when you are done: this ends your work. If you can't do what is "
    'asked, pass status "error" and say why in error_detail.'
)


@frozen
class Returned:
    """The return of a model: outputs of their declared types, and `error` where it gave up."""

    outputs: Mapping[str, object]
    status: Literal["success", "error"] = "success"
    error_detail: str = ""


@frozen
class Rejected:
    """The rejection of a model's outputs, with a text for the model."""

    text: str


OnReturn: TypeAlias = Returned | Rejected


def return_tool(outputs: Iterable[Declared]) -> ToolDef | None:
    """Make the tool for a directive's outputs, whose calls the thread answers; None without any."""
    declared = tuple(outputs)
    if not declared:
        return None
    schema: dict[str, Any] = input_schema(declared)
    for name, part in _blocked(declared).items():
        schema["properties"] = {**schema["properties"], name: part}
    # A blocked model can't return them, so `check_outputs` requires them, and not the schema.
    required = schema.pop("required")
    if required:
        listed = ", ".join(required)
        description = f"{_DESCRIPTION} Required outputs: {listed}."
    else:
        description = _DESCRIPTION
    return ToolDef(
        name=RETURN_TOOL, description=description, parameters=schema, run=_run, untrusted=False
    )


async def _run(arguments: Mapping[str, Any], ctx: ToolContext) -> object:
    raise ToolExecutionError(f"{RETURN_TOOL} is the thread's own to answer.", tool_name=RETURN_TOOL)


def _blocked(declared: Iterable[Declared]) -> dict[str, dict[str, object]]:
    """Return the properties for giving up, without those whose names are outputs."""
    if {one.name for one in declared} & {_STATUS, _DETAIL}:
        return {}
    return {
        _STATUS: {
            "type": "string",
            "enum": ["success", "error"],
            "description": 'Leave it out, or "error" where you can\'t go on.',
        },
        _DETAIL: {"type": "string", "description": "With status error: why."},
    }


def check_outputs(outputs: Iterable[Declared], arguments_json: str) -> OnReturn:
    """Check the outputs that a model returns.

    Outputs are coerced and checked like inputs. A required one must be present; 0, false and empty
    text count as present.

    Source: docs/design/threads.md#turn-loop; decisions 34 and 44.
    """
    declared = tuple(outputs)
    if not declared:
        return Rejected(
            f"This directive declares no outputs, so there is no {RETURN_TOOL}. "
            "Answer with your result as text."
        )
    given = _read(arguments_json)
    if isinstance(given, Rejected):
        return given
    if _blocked(declared):
        status = given.pop(_STATUS, None)
        detail = given.pop(_DETAIL, None)
        if status not in (None, "success", "error"):
            return _rejected(declared, ['status: it is "success" or "error"'])
        if detail is not None and not isinstance(detail, str):
            return _rejected(declared, ["error_detail: it is text"])
        if status == "error":
            text = (detail or "").strip() or _NO_DETAIL
            return Returned(_those_that_fit(declared, given), "error", text[:_MAX_TEXT])
    try:
        return Returned(resolve_inputs(declared, given))
    except InvalidInputs as problem:
        return _rejected(declared, list(problem.failures))


def _those_that_fit(
    declared: Iterable[Declared], given: Mapping[str, object]
) -> Mapping[str, object]:
    kept: dict[str, object] = {}
    for one in declared:
        if one.name in given:
            try:
                kept |= resolve_inputs((one,), {one.name: given[one.name]})
            except InvalidInputs:
                continue
    return kept


def _read(arguments_json: str) -> dict[str, object] | Rejected:
    try:
        given = read_json(arguments_json or "{}")
    except ValueError as problem:
        return Rejected(
            f"The arguments of {RETURN_TOOL} aren't JSON ({str(problem)[:200]}). "
            "Call it again with one JSON object that holds the outputs."
        )
    if isinstance(given, dict):
        return given
    return Rejected(
        f"The arguments of {RETURN_TOOL} aren't a JSON object. "
        "Call it again with one that holds the outputs."
    )


def _rejected(declared: Iterable[Declared], failures: list[str]) -> Rejected:
    listed = "; ".join(one[:300] for one in failures[:_MAX_LISTED])
    if len(failures) > _MAX_LISTED:
        listed += f"; and {len(failures) - _MAX_LISTED} more"
    valid = ", ".join(
        f"{one.name} ({one.form}{', required' if one.required else ''})" for one in declared
    )
    return Rejected(
        f"The outputs don't fit: {listed}. Call {RETURN_TOOL} again with all outputs. "
        f"Valid outputs: {valid}."
    )
