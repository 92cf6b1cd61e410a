"""Tool calls written as text, for models that have no native ones. Pure.

A call is a fenced block that holds JSON, or an `<invoke>` element outside of fences. A malformed
call is reported to the model; nothing is run by guess.

Source: docs/design/threads.md#turn-loop.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ryecore.frozen import frozen
from ryecore.llm.parts import MediaPart, Message, TextPart, ToolCallPart, ToolResultPart
from ryecore.llm.request import ToolSpec
from ryecore.strict_json import read_json

__all__ = [
    "WRITTEN",
    "TextCalls",
    "as_text",
    "extract_tool_calls",
    "render_call",
    "render_results",
    "render_tools",
]

WRITTEN: Final = "textcall_"
"""The prefix of the ids of calls that were written as text."""

# No pattern here backtracks, so that the time grows only linearly with an answer's length.
_START: Final = re.compile(
    r"^ {0,3}+(?P<fence>`{3,}+|~{3,}+)(?P<info>[^\n`]*+)$|(?P<code>`++)|(?P<invoke><invoke\s)",
    re.MULTILINE,
)
_OPEN: Final = re.compile(r"""<invoke\s+name=(?:"([^"<>\n]+)"|'([^'<>\n]+)')\s*>""")
_PARAMETER: Final = re.compile(r"""<parameter\s+name=(?:"([^"<>\n]+)"|'([^'<>\n]+)')\s*>""")
_PARAMETER_END: Final = "</parameter>"
_INVOKE_END: Final = "</invoke>"
_SPACE: Final = re.compile(r"\s*")
_WRAPPER: Final = re.compile(r"[ \t]*</?function_calls>[ \t]*\n?")
_FORM: Final = (
    'Write a call as a block of its own:\n```tool_call\n{"name": "TOOL", "arguments": {}}\n```'
)


@frozen
class TextCalls:
    """The calls found in an answer, and its text without them.

    Where a call is malformed, nothing of the answer is run, and `problem` tells the model why.
    """

    text: str
    calls: tuple[ToolCallPart, ...] = ()
    problem: str = ""


class _Malformed(Exception):
    """The error of a call that can't be read."""


def extract_tool_calls(text: str, *, start: int = 1, tools: Iterable[ToolSpec] = ()) -> TextCalls:
    """Find the calls in an answer, or the problem of a malformed one.

    `start` numbers the ids, `textcall_N`, so that they differ across turns. The schemas of the
    tools say which parameters of an `<invoke>` are text.
    """
    schemas = {tool.name: tool.parameters for tool in tools}
    kept: list[str] = []
    found: list[tuple[str, Mapping[str, object]]] = []
    place = 0
    while (begun := _START.search(text, place)) is not None:
        kept.append(text[place : begun.start()])
        try:
            if begun["fence"]:
                call, end = _fenced(text, begun)
            elif begun["code"]:
                call, end = None, _code_end(text, begun)
            else:
                call, end = _invoked(text, begun.start(), schemas)
        except _Malformed as problem:
            said = f"Your answer was not understood, and none of its calls was run: {problem}."
            return TextCalls(text, problem=f"{said} {_FORM}")
        if call is None:
            kept.append(text[begun.start() : end])
        else:
            found.append(call)
        place = end
    if not found:
        return TextCalls(text)
    rest = "".join([*kept, text[place:]])
    calls = tuple(
        ToolCallPart(f"{WRITTEN}{start + number}", name, _written(arguments))
        for number, (name, arguments) in enumerate(found)
    )
    return TextCalls(_WRAPPER.sub("", rest).strip(), calls)


def render_tools(tools: Iterable[ToolSpec]) -> str:
    """Render the tools and how to call one, for a model without native calls."""
    listed = "\n\n".join(
        f"### {tool.name}\n{tool.description}\nArguments (JSON Schema): "
        f"{json.dumps(tool.parameters, ensure_ascii=False)}"
        for tool in tools
    )
    if not listed:
        return ""
    return (
        f"## Tools\n\n{listed}\n\n## How to call a tool\n\n{_FORM}\n"
        "The arguments are one JSON object that fits the tool's schema. Several calls are several "
        "blocks. Stop after the last one: the results come in the next message."
    )


def render_call(name: str, arguments_json: str) -> str:
    """Render a call as a model without native calls writes it."""
    try:
        arguments: object = json.loads(arguments_json or "{}")
    except (ValueError, RecursionError):
        arguments = arguments_json
    return f"```tool_call\n{_written({'name': name, 'arguments': arguments})}\n```"


def render_results(results: Iterable[ToolResultPart]) -> str:
    """Render the results of a turn's calls as one text, for a model without native calls.

    A result can't close its block: the fence is longer than any in it.
    """
    blocks: list[str] = []
    for one in results:
        longest = max(map(len, re.findall(r"`+", one.text)), default=0)
        marks = "`" * max(3, longest + 1)
        kind = "error" if one.is_error else "result"
        blocks.append(f"Tool {kind} of {one.name} ({one.call_id}):\n{marks}\n{one.text}\n{marks}")
    return "\n\n".join(blocks)


def _code_end(text: str, opened: re.Match[str]) -> int:
    """Return the end of a code span; the end of its opening where this line doesn't close it."""
    closing = text.find(opened["code"], opened.end())
    if closing < 0 or text.find("\n", opened.end(), closing) >= 0:
        return opened.end()
    return closing + len(opened["code"])


def _fenced(
    text: str, opened: re.Match[str]
) -> tuple[tuple[str, Mapping[str, object]] | None, int]:
    marks, info = opened["fence"], opened["info"].strip().lower()
    closing = re.compile(rf"^ {{0,3}}+{marks[0]}{{{len(marks)},}}+[ \t\r]*+$", re.MULTILINE)
    closed = closing.search(text, opened.end())
    end = len(text) if closed is None else closed.end()
    if info not in ("json", "tool_call"):
        return None, end
    if closed is None:
        if info == "json":
            return None, end
        raise _Malformed("a tool_call block is not closed")
    content = text[opened.end() : closed.start()]
    call = _json_call(content)
    if call is None and info == "tool_call":
        raise _Malformed(
            'a tool_call block is not one JSON object with "name" and an object "arguments"'
        )
    return call, end


def _json_call(content: str) -> tuple[str, Mapping[str, object]] | None:
    try:
        found = read_json(content)
    except ValueError:
        return None
    if not isinstance(found, dict) or found.keys() != {"name", "arguments"}:
        return None
    name, arguments = found["name"], found["arguments"]
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        return None
    return name, arguments


def _invoked(
    text: str, at: int, schemas: Mapping[str, Mapping[str, Any]]
) -> tuple[tuple[str, Mapping[str, object]], int]:
    opened = _OPEN.match(text, at)
    if opened is None:
        raise _Malformed('an <invoke> is not of the form <invoke name="TOOL">')
    name = opened[1] or opened[2]
    properties = schemas.get(name, {}).get("properties", {})
    arguments: dict[str, object] = {}
    place = _past_space(text, opened.end())
    while not text.startswith(_INVOKE_END, place):
        parameter = _PARAMETER.match(text, place)
        if parameter is None:
            raise _Malformed(
                f"the <invoke> of {name[:64]} holds something besides its parameters, "
                "or is not closed"
            )
        called = parameter[1] or parameter[2]
        end = text.find(_PARAMETER_END, parameter.end())
        if end < 0:
            raise _Malformed(f"the parameter {called[:64]} of {name[:64]} is not closed")
        if called in arguments:
            raise _Malformed(f"the parameter {called[:64]} of {name[:64]} is there twice")
        schema = properties.get(called) if isinstance(properties, Mapping) else None
        arguments[called] = _value(text[parameter.end() : end], schema)
        place = _past_space(text, end + len(_PARAMETER_END))
    return (name, arguments), place + len(_INVOKE_END)


def _value(written: str, schema: object) -> object:
    """Return a parameter's value: as text where its schema takes text, else parsed as JSON."""
    plain = written.removeprefix("\n").removesuffix("\n")
    if isinstance(schema, Mapping):
        kinds = schema.get("type")
        choices = schema.get("enum")
        if kinds == "string" or (isinstance(kinds, list) and "string" in kinds):
            return plain
        if isinstance(choices, list) and plain in choices:
            return plain
    try:
        value = read_json(written)
    except ValueError:
        return plain
    return plain if isinstance(value, str) else value


def _past_space(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return place if found is None else found.end()


def _written(value: object) -> str:
    """Write JSON that can be sent, with lone surrogates escaped."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text


def as_text(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Convert a conversation for a model without tools, with calls and results as text."""
    shown: list[Message] = []
    for message in messages:
        if message.role == "tool":
            results = [one for one in message.parts if isinstance(one, ToolResultPart)]
            media = (part for one in results for part in one.content if isinstance(part, MediaPart))
            shown.append(Message.user(render_results(results), *media))
        elif message.tool_calls:
            said = (one for one in message.parts if not isinstance(one, ToolCallPart))
            # A native call isn't in the text yet.
            calls = (
                TextPart(f"\n{render_call(one.name, one.arguments_json)}\n")
                for one in message.tool_calls
                if not one.call_id.startswith(WRITTEN)
            )
            shown.append(Message(message.role, (*said, *calls)))
        else:
            shown.append(message)
    return tuple(shown)
