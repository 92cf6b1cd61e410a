"""Prompt templates with `{{ path | filter }}`: values are inserted once, and never expanded.

Source: docs/design/agent-node.md#messages; decision 60.
"""

import json
import os
import re
import stat
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Self, TypeAlias

import anyio.to_thread
from attrs import field

from ryecore.agent.deps import AgentRunnerDeps
from ryecore.errors import ConfigError
from ryecore.frozen import frozen
from ryecore.policy.expressions import (
    BrokenExpression,
    ParsedExpression,
    Syntax,
    parse_expression,
)
from ryecore.policy.paths import ABSENT, Place, ValuePath, parse_path
from ryecore.tools.policy import resolve_path

__all__ = [
    "PromptTemplate",
    "ReadFile",
    "ReadFileMissing",
    "TemplateMiss",
    "file_reader",
    "mentions_secrets",
]

ReadFile: TypeAlias = Callable[[str], Awaitable[str]]

ROOTS: Final = ("inputs", "ctx", "run")
_OPEN, _CLOSE = "{{", "}}"
_SECRETS: Final = re.compile(r"\bsecrets\b")
_SHOWN_CHARS: Final = 80


class TemplateMiss(Exception):
    """A template can't be filled in: a path leads nowhere, or a value doesn't fit its filter."""


class ReadFileMissing(Exception):
    """A template reads a file, and the host doesn't allow it."""


def mentions_secrets(text: str) -> bool:
    """Return whether a text has a `{{ … secrets … }}`."""
    return any(
        _SECRETS.search(piece, begin) is not None
        for piece in text.split("}")
        if (begin := piece.find(_OPEN)) >= 0
    )


@frozen
class PromptTemplate:
    """A text with places for values.

    Attributes:
        source: The original text.
    """

    source: str
    _pieces: tuple[str | ParsedExpression, ...] = field(repr=False, eq=False)

    @classmethod
    def parse(cls, source: str) -> Self:
        """Parse a template.

        Args:
            source: Text with `{{ inputs.x }}`, `{{ ctx.x }}`, `{{ run.outputs.node.x }}` and
                filters after bars: `json`, `trim`, `upper`, `lower`, `length`, `first`, `last`,
                `join(", ")`, `default("…")`, `read_file`. `{{ "{{" }}` stands for two braces.

        Raises:
            ConfigError: It can't be parsed; the message says where.
        """
        return cls(source, tuple(_parse(source)))

    @property
    def paths(self) -> tuple[tuple[Place, bool], ...]:
        """The paths that it reads, and whether each is optional."""
        return tuple(
            (
                choice.parts,
                len(one.choices) > 1 or any(name == "default" for name, _ in one.filters),
            )
            for one in self._pieces
            if not isinstance(one, str)
            for choice in one.choices
            if isinstance(choice, ValuePath)
        )

    async def render(self, scope: Mapping[str, object], read_file: ReadFile | None) -> str:
        """Fill in the values, and return the text.

        Args:
            scope: The roots of paths: `inputs`, `ctx` and `run`.
            read_file: Reads a file for a prompt; None if the host doesn't allow it.

        Raises:
            TemplateMiss: A path leads nowhere, or a value doesn't fit its filter.
            ReadFileMissing: It reads a file, and the host doesn't allow it.
        """
        texts: list[str] = []
        for piece in self._pieces:
            if isinstance(piece, str):
                texts.append(piece)
            else:
                texts.append(_as_text(await _value(piece, scope, read_file)))
        return "".join(texts)


def _parse(source: str) -> list[str | ParsedExpression]:
    pieces: list[str | ParsedExpression] = []
    at = 0
    while True:
        begin = source.find(_OPEN, at)
        if begin < 0:
            pieces.append(source[at:])
            return [piece for piece in pieces if piece != ""]
        pieces.append(source[at:begin])
        try:
            parsed = parse_expression(source, begin + len(_OPEN), _SYNTAX)
        except BrokenExpression as problem:
            why = problem.why.partition("; write")[0]  # the rest is the error's next step
            raise _broken(source, begin, f"doesn't begin an expression: {why}") from None
        for choice in parsed.choices:
            if isinstance(choice, ValuePath) and choice.parts[0] not in ROOTS:
                why = f"begins with none of {', '.join(ROOTS)}: {_short(str(choice))}"
                raise _broken(source, begin, why)
        pieces.append(parsed)
        at = parsed.end


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…")


def _broken(source: str, at: int, why: str) -> ConfigError:
    line = source.count("\n", 0, at) + 1
    column = at - source.rfind("\n", 0, at)
    return ConfigError(
        f"The prompt template is broken: the '{{{{' at line {line}, column {column} {why}.",
        next_step='Correct it; two braces that are meant as text are written {{ "{{" }}.',
        line=line,
        column=column,
    )


async def _value(
    expression: ParsedExpression, scope: Mapping[str, object], read_file: ReadFile | None
) -> object:
    value, named = _first_choice(expression.choices, scope)
    for name, arguments in expression.filters:
        if name == "default":
            value = arguments[0] if value is ABSENT or value is None else value
            continue
        if value is ABSENT:
            break
        if name == "read_file":
            if read_file is None:
                raise ReadFileMissing
            if not isinstance(value, str):
                raise TemplateMiss(f"{named} isn't the path of a file.")
            value = await read_file(value)
            continue
        try:
            value = _FILTERS[name](value, *arguments)
        except (TypeError, IndexError, ValueError, AttributeError):
            raise TemplateMiss(
                f"{named} is {type(value).__name__}, which {name} can't be used on."
            ) from None
    if value is ABSENT:
        raise TemplateMiss(f"{named} leads nowhere.{_there_is(named, scope)}")
    return value


def _first_choice(choices: Sequence[object], scope: Mapping[str, object]) -> tuple[object, str]:
    """Return the first choice with a value, else the last one, with its source text."""
    value: object = ABSENT
    named = ""
    for choice in choices:
        is_path = isinstance(choice, ValuePath)
        value = choice.find(scope, ABSENT) if isinstance(choice, ValuePath) else choice
        named = str(choice) if is_path else _short(json.dumps(choice, ensure_ascii=False))
        if value is not ABSENT and value is not None:
            break
    return value, named


def _there_is(path: str, scope: Mapping[str, object]) -> str:
    root = str(parse_path(path).parts[0])
    found = scope.get(root)
    names = sorted(str(name)[:_SHOWN_CHARS] for name in found) if isinstance(found, Mapping) else []
    return f" {root} has: {', '.join(names[:20]) or 'nothing'}."


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else _as_json(value)


def _as_json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        raise TemplateMiss(f"A value of type {type(value).__name__} can't be written.") from None


def _items(value: object) -> Sequence[object]:
    if not isinstance(value, Sequence):
        raise TypeError
    return value


def _length(value: object) -> int:
    if not isinstance(value, str | Sequence | Mapping):
        raise TypeError
    return len(value)


_FILTERS: Final[dict[str, Callable[..., object]]] = {
    "default": lambda value, _: value,
    "first": lambda value: _items(value)[0],
    "join": lambda value, between: between.join(map(_as_text, _items(value))),
    "json": _as_json,
    "last": lambda value: _items(value)[-1],
    "length": _length,
    "lower": lambda value: _as_text(value).lower(),
    "trim": lambda value: _as_text(value).strip(),
    "upper": lambda value: _as_text(value).upper(),
}
_SYNTAX: Final = Syntax(
    _OPEN,
    _CLOSE,
    {name: 1 if name in ("default", "join") else 0 for name in (*_FILTERS, "read_file")},
    '{{ "{{" }}',
)


def file_reader(deps: AgentRunnerDeps) -> ReadFile | None:
    """Return the function for `read_file` in prompts; None if the host doesn't allow it."""
    allowed = deps.resolver_capabilities
    if allowed is None or not allowed.read_file:
        return None
    confined = deps.fs_scope != "unrestricted"
    root = allowed.root(deps.fs_scope)
    if confined and root is None:
        return None
    return partial(_read, root, allowed.max_file_bytes, confined=confined)


async def _read(root: Path | None, max_bytes: int, name: str, *, confined: bool) -> str:
    return await anyio.to_thread.run_sync(_read_now, root, max_bytes, name, confined)


def _read_now(root: Path | None, max_bytes: int, name: str, confined: bool) -> str:
    try:
        path = resolve_path(name, root, confined=confined, writing=False)
        if Path(path).name.startswith(".env"):
            raise ValueError("it holds secrets by its name")
        # Non-blocking, so that a pipe without a writer can't block the run.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ValueError("it isn't a regular file")
            content = file.read(max_bytes + 1)
        if len(content) > max_bytes:
            raise ValueError(f"it is larger than {max_bytes:,} bytes")
        return content.decode()
    except UnicodeDecodeError:
        why = "it isn't UTF-8 text"
    except OSError as problem:
        why = (problem.strerror or "it can't be read").lower()
    except ValueError as problem:
        why = str(problem)
    raise TemplateMiss(f"the file {name[:200]!r} can't be read: {why}.")
