"""The forms of tools that ask a person while they run, filled in at the terminal."""

import json
import math
import termios
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ryecore.cli.output import tell
from ryecore.cli.questions import is_at_terminal, read_line
from ryecore.display.sanitize import to_one_line
from ryecore.display.text import StyledText, cut, status_mark
from ryecore.errors import InputError
from ryecore.lillux.schema import SchemaValidator
from ryecore.policy.reports import ToolQuestion

__all__ = ["choices_of", "fill_in", "read_field"]

_MAX_FIELDS: Final = 50
_MAX_ATTEMPTS: Final = 3
_MAX_SHOWN_CHARS: Final = 2000
_WORDS: Final[Mapping[str, bool]] = {
    "y": True, "yes": True, "true": True, "n": False, "no": False, "false": False,
}  # fmt: skip


async def fill_in(question: ToolQuestion, /) -> Mapping[str, object]:
    """Have the person at the terminal fill in a tool's form.

    Raises:
        InputError: Nobody is at a terminal, the tool asks something else, or its form has more than
            simple fields.
    """
    if question.kind != "elicit":
        raise InputError(f"The rye command can't answer {question.kind}: it asks a person alone.")
    if not is_at_terminal():
        raise InputError("Nobody is at a terminal to answer.")
    schema = question.params.get("requestedSchema")
    fields = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(fields, Mapping) or len(fields) > _MAX_FIELDS:
        raise InputError(f"requestedSchema must have properties, {_MAX_FIELDS} at most.")
    try:
        validator = SchemaValidator(json.dumps(schema))
    except ValueError as problem:
        raise InputError(f"requestedSchema isn't a JSON Schema: {problem}.") from None
    _introduce(question)
    for _ in range(_MAX_ATTEMPTS):
        content = await _ask_fields(fields)
        if content is None:
            return {"action": "decline"}
        failures = validator.failures(json.dumps(content))
        if not failures:
            return {"action": "accept", "content": content}
        text = StyledText()
        for failure in failures[:5]:
            text.line((f"  {failure.path or 'it'}: {failure.message}", "warn"))
        tell(text)
    return {"action": "cancel"}


def _introduce(question: ToolQuestion) -> None:
    text = StyledText()
    text.line(status_mark("waiting"), (to_one_line(question.item_id), "strong"), (" asks:", "dim"))
    message = cut(str(question.params.get("message", "")), _MAX_SHOWN_CHARS)
    for line in message.splitlines():
        text.line(f"  {to_one_line(line)}")
    text.line(("  Enter takes what stands in brackets; Ctrl-D declines.", "dim"))
    tell(text)
    termios.tcflush(0, termios.TCIFLUSH)  # what was typed before answers nothing


async def _ask_fields(fields: Mapping[str, Any]) -> dict[str, object] | None:
    """Ask for each field; None where the person declines."""
    content: dict[str, object] = {}
    for name, field in fields.items():
        if not isinstance(field, Mapping):
            raise InputError(f"The field {name!r} of requestedSchema isn't a schema.")
        prompt = f"  {_prompt(name, field)}: "
        while True:
            typed = await read_line(prompt)
            if typed is None:
                return None
            if not typed:
                if "default" in field:
                    content[name] = field["default"]
                break
            try:
                content[name] = read_field(field, typed)
            except ValueError as problem:
                text = StyledText()
                text.line((f"  {problem}", "warn"))
                tell(text)
            else:
                break
    return content


def _prompt(name: str, field: Mapping[str, Any]) -> str:
    said = to_one_line(str(field.get("description") or field.get("title") or name))
    choices = "/".join(to_one_line(one) for one in choices_of(field))
    if field.get("type") == "boolean":
        choices = "y/n"
    shown = f" ({choices})" if choices else ""
    if "default" in field:
        default = field["default"]
        text = default if isinstance(default, str) else json.dumps(default)
        shown += f" [{to_one_line(text)}]"
    return cut(said, 200) + cut(shown, 400)


def choices_of(field: Mapping[str, Any]) -> list[str]:
    """Return the values that a field, or each item of a list, may have; empty for any."""
    items = field.get("items")
    if field.get("type") == "array" and isinstance(items, Mapping):
        return choices_of({**items, "type": "string"})
    return [*_choices(field)]


def _choices(field: Mapping[str, Any]) -> Iterator[str]:
    for one in field.get("enum") or ():
        yield str(one)
    for key in ("oneOf", "anyOf"):
        for one in field.get(key) or ():
            if isinstance(one, Mapping) and "const" in one:
                yield str(one["const"])


def read_field(field: Mapping[str, Any], typed: str) -> object:
    """Return what was typed into a field as a value of its type.

    Raises:
        ValueError: It isn't one; the text says what is wanted.
    """
    kind = field.get("type")
    if kind == "boolean":
        if typed.lower() not in _WORDS:
            raise ValueError("Type y or n.")
        return _WORDS[typed.lower()]
    if kind in ("integer", "number"):
        try:
            number = int(typed) if kind == "integer" else float(typed)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise ValueError("Type a whole number." if kind == "integer" else "Type a number.")
        return number
    found = [one.strip() for one in typed.split(",")] if kind == "array" else [typed]
    choices = choices_of(field)
    if choices and not set(found) <= set(choices):
        raise ValueError(f"Type one of: {cut(', '.join(map(to_one_line, choices)), 400)}.")
    return found if kind == "array" else typed
