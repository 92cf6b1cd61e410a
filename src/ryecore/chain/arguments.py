"""Fill the values into a signed command line. No value becomes part of a program. Pure.

A program that an interpreter reads stays as it was signed. A value is a whole argument.

Source: decisions 23 and 79; ADR 020.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from attrs import evolve, field

from ryecore.chain.templating import (
    ConfigTemplate,
    as_text,
    count_of,
    name_alone,
    placeholders,
    with_unknown_parts,
)
from ryecore.errors import (
    ConfigError,
    InputError,
    PlaceholderInScript,
    RyeError,
    UnresolvedPlaceholder,
)
from ryecore.frozen import frozen
from ryecore.policy.command_lines import ProgramText, program_name, read_command_line

__all__ = ["FORK_POINT", "SignedLine", "Values", "read_line", "read_stdin"]

FORK_POINT: Final = "fork_point"
"""The placeholder of the fork point of a template; no parameter may have its name."""

_PATHS: Final = frozenset({
    "anchor_path", "call_json", "nowhere", "params_json", "project_path", "project_trusted",
    "runtime_lib", "server_variables", "space_path", "system_space", "tool_dir",
    "tool_parent", "tool_path", "tool_root", "tool_source", "user_space",
})  # fmt: skip
"""Names that ryecore itself gives a value."""

_WHOLE_VARIABLE: Final = re.compile(r"\s*\$\{[A-Z_][A-Z0-9_]*(?::-[^}]*)?\}\s*\Z")
_MAX_ROUNDS: Final = 3
_NO_VALUE: Final[Mapping[str, str]] = {
    "anchor_path": "The tool has no anchor: put a file that the runtime's anchor.markers_any names "
    "beside it, or let the runtime's anchor say mode: always.",
    "runtime_lib": "There is no library folder beside the runtime: make the one that its "
    "anchor.lib names.",
    "server_config_path": "Let the runtime declare item_paths: {server_config_path: server}, and "
    "the tool's config name its server.",
}


@frozen
class Values:
    """The values of placeholders, by their source.

    Attributes:
        bound: Placeholders that the tool's signed config sets.
        config: Other keys of the signed config; strings may hold placeholders themselves.
        declared: The names that a runtime's config_schema declares.
        of_tool: The names that the tool's own config_schema declares.
        own: The caller's parameters that the tool declares, for its own `script_args`.
    """

    environ: Mapping[str, str]
    context: Mapping[str, object]
    bound: Mapping[str, object]
    config: Mapping[str, object]
    parameters: Mapping[str, object]
    declared: frozenset[str]
    of_tool: frozenset[str]
    own: Mapping[str, object] = {}
    payload: Mapping[str, object] = {}

    def template(self, unknown: set[str]) -> ConfigTemplate:
        """Return the template for signed strings."""
        values = {**self.parameters, **self.bound, **self.context, **self.payload}
        return ConfigTemplate(self.environ, values, self._placeholder_config(), unknown)

    def own_template(self, unknown: set[str]) -> ConfigTemplate:
        """Return the template for a tool's `script_args`."""
        return ConfigTemplate(
            self.environ, {**self.own, **self.context, **self.payload}, {}, unknown
        )

    def signed_template(self) -> ConfigTemplate:
        """Return the template without the values of a caller."""
        return ConfigTemplate(
            self.environ, {**self.bound, **self.context}, self._placeholder_config(), set()
        )

    def _placeholder_config(self) -> dict[str, object]:
        """Return the config without declared names, which only the caller or the tool sets."""
        return {key: one for key, one in self.config.items() if key not in self.declared}


@frozen
class _Word:
    """One signed argument.

    Attributes:
        program: The interpreter that reads it as a program; None for plain data.
        parameter: The parameter that is the whole program; None for another program.
        is_own: Whether its placeholders are the tool's own parameters.
        is_operand: Whether a value that begins with `-` would be read as an option.
    """

    text: str
    program: ProgramText | None = None
    parameter: str | None = None
    is_literal: bool = False
    is_own: bool = False
    is_operand: bool = False
    is_file: bool = False


@frozen
class SignedLine:
    """A command line whose programs hold no placeholder, and the interpreter that reads stdin."""

    command: str
    words: tuple[_Word, ...]
    stdin: ProgramText | None = field(default=None)

    def names_file(self, placeholder: str) -> ProgramText | None:
        """Return the interpreter that would run a placeholder's file; None for plain data."""
        return next(
            (
                word.program
                for word in self.words
                if word.is_file and name_alone(word.text) == placeholder
            ),
            None,
        )

    def forks(self) -> list[int]:
        """Return which arguments hold the fork point, once each."""
        return [i for i, word in enumerate(self.words) if count_of(FORK_POINT, word.text) == 1]

    def fill(self, values: Values) -> tuple[str, tuple[tuple[str, ...], ...]]:
        """Return the program, and the words of each argument: one, or several for a list."""
        unknown: set[str] = set()
        template, own = values.template(unknown), values.own_template(unknown)
        command = template.text(self.command)
        filled = tuple(_fill(word, values, own if word.is_own else template) for word in self.words)
        if unknown:
            raise _unresolved(unknown, values)
        return command, filled


def read_line(
    command: str, args: Sequence[object], script_args: Sequence[object], values: Values
) -> SignedLine:
    """Find the programs in a signed command line; the caller's values may be missing."""
    if name_alone(command) is None:
        of_callers = [
            match["name"]
            for match in placeholders(command)
            if match["name"] in values.declared and match["name"] not in values.bound
        ]
        if of_callers:
            raise PlaceholderInScript(
                f"The command {command!r} has {{{of_callers[0]}}} within it, and a parameter "
                "doesn't choose what runs.",
                next_step="Name the program in full, and pass the parameter as an argument.",
                placeholder=of_callers[0],
            )
    static = values.signed_template()
    pieces = [piece for arg in args for piece in _pieces(as_text(arg), static)]
    pieces += [
        (_Word(as_text(arg), is_own=True), with_unknown_parts(as_text(arg))) for arg in script_args
    ]
    read = read_command_line(
        [with_unknown_parts(static.text(command)), *(word for _, word in pieces)]
    )
    words: list[_Word] = []
    for index, (piece, _) in enumerate(pieces, start=1):
        word = evolve(piece, is_operand=index in read.operands)
        program = read.programs.get(index)
        if program is not None:
            is_tools = piece.is_literal or piece.is_own
            word = _program_word(word, program, values, of_tool=is_tools)
        elif index in read.files:
            interpreter = program_name(static.text(command))
            word = evolve(word, is_file=True, program=ProgramText(interpreter, False))
        words.append(word)
    return SignedLine(command, tuple(words), read.stdin)


def read_stdin(text: str, line: SignedLine, values: Values) -> None:
    """Check the signed standard input of a command that reads it as a program."""
    if line.stdin is not None:
        _program_word(_Word(text), line.stdin, values, of_tool=False)


def _pieces(text: str, static: ConfigTemplate) -> list[tuple[_Word, str]]:
    """Return a signed argument as the words that it is known to become."""
    value = static.render(text)
    if isinstance(value, list):
        words = [as_text(one) for one in value]
        return [(_Word(word, is_literal=True), word) for word in words]
    return [(_Word(text), with_unknown_parts(as_text(value)))]


def _program_word(word: _Word, program: ProgramText, values: Values, *, of_tool: bool) -> _Word:
    """Return a word that is a program as it runs, or with the parameter that is all of it."""
    text = word.text
    for _ in range(_MAX_ROUNDS):
        is_whole = not (program.is_attached or word.is_literal or word.is_own)
        name = name_alone(text) if is_whole else None
        if name is None:
            break
        value = values.bound.get(name)
        if value is None and name not in values.declared:
            value = values.config.get(name)
        if name in values.context or name in _PATHS:
            raise _in_script(name, text, program)
        if isinstance(value, str):
            text, of_tool = value, True
            if name in values.bound:
                break
        elif value is not None:
            raise ConfigError(
                f"The config's {name} is a program for {program.interpreter}, so it must be a "
                "string.",
                next_step=f"Write {name} as one text.",
            )
        elif name in values.declared:
            return evolve(word, program=program, parameter=name)
        else:
            raise _unresolved({name}, values)
    if not program.is_attached and _WHOLE_VARIABLE.match(text):
        return evolve(word, text=text, program=program)
    names = {*_PATHS, *values.context, *values.config, *values.declared, "server_config_path"}
    names |= values.of_tool if of_tool else set()
    for match in placeholders(text):
        if match["var"] is not None and not program.keeps_variables:
            raise _in_script(match[0], text, program)
        if match["name"] in names - {FORK_POINT}:
            raise _in_script(match["name"], text, program)
    return evolve(word, text=text, program=program, is_literal=True)


def _fill(word: _Word, values: Values, template: ConfigTemplate) -> tuple[str, ...]:
    if word.parameter is not None:
        value = values.parameters.get(word.parameter)
        if value is None:
            template.unknown.add(word.parameter)
            return ()
        if not isinstance(value, str):
            raise InputError(
                f"The parameter '{word.parameter}' is a program, so it must be a string.",
                next_step="Pass it as one text.",
            )
        _check_operand(word, word.parameter, value)
        return (value,)
    if word.is_literal:
        fork_point = as_text(values.context.get(FORK_POINT))
        return (word.text.replace(f"{{{FORK_POINT}}}", fork_point),)
    filled = template.render(word.text)
    words = tuple(map(as_text, filled)) if isinstance(filled, list) else (as_text(filled),)
    first = next(iter(placeholders(word.text)), None)
    if first is not None and not word.text[: first.start()].strip():
        name = first["name"]
        is_callers = word.is_own or (name in values.parameters and name not in values.bound)
        for one in words if is_callers else ():
            _check_operand(word, name, one)
    return words


def _check_operand(word: _Word, name: str, value: str) -> None:
    if word.is_operand and value.startswith(("-", "+")):
        raise InputError(
            f"The parameter '{name}' begins with {value[0]!r}, and would be read as an option.",
            next_step=f'Let the runtime\'s args have "--" before "{{{name}}}", and sign it again.',
        )


def _unresolved(names: Collection[str], values: Values) -> RyeError:
    listed = sorted(names)
    steps = [_NO_VALUE[name] for name in listed if name in _NO_VALUE]
    others = [name for name in listed if name not in _NO_VALUE]
    optional = [name for name in others if name in values.of_tool]
    undeclared = [name for name in others if name in values.declared - values.of_tool]
    unknown = [name for name in others if name not in values.declared | values.of_tool]
    if optional:
        steps.append(f"Pass {', '.join(optional)}.")
    if undeclared:
        steps.append(
            f"Let the tool set {', '.join(undeclared)} in its config, or declare it in its "
            "config_schema and the caller pass it."
        )
    if unknown:
        steps.append(
            f"Declare {', '.join(unknown)} in the config_schema of runtime and tool, or set it in "
            "their config. Braces that are meant as text: { name }."
        )
    shown = ", ".join(f"{{{name}}}" for name in listed)
    return UnresolvedPlaceholder(
        f"The command line has {shown}, which has no value; nothing was run.",
        next_step=" ".join(steps),
        placeholders=tuple(listed),
    )


def _in_script(name: str, text: str, program: ProgramText) -> PlaceholderInScript:
    shown = name if name.startswith("$") else f"{{{name}}}"
    brief = " ".join(text.split())
    brief = brief if len(brief) <= 80 else brief[:79] + "…"
    return PlaceholderInScript(
        f"{shown} stands within a program that {program.interpreter} reads: {brief!r}. "
        "A value must not be part of a program.",
        next_step=_safe_form(shown, program),
        placeholder=name,
    )


def _safe_form(shown: str, program: ProgramText) -> str:
    match program.interpreter:
        case "python" | "pypy" | "ipython":
            how = f'Pass it behind the program, as "{shown}", and read sys.argv[1]'
        case "node" | "nodejs" | "bun" | "deno" | "tsx" | "ts-node":
            how = f'Pass it behind the program, as "{shown}", and read process.argv'
        case "perl" | "ruby":
            how = f'Pass it behind the program, as "{shown}", and read ARGV[0]'
        case "awk" | "gawk" | "mawk" | "nawk":
            how = f'Pass it as a file or in an argument of its own, "{shown}", and read ARGV'
        case "jq" | "gojq" | "jaq":
            how = f'Pass it as --arg, NAME, "{shown}", and write $NAME'
        case name if program.keeps_variables:
            how = (
                f'Pass it behind the program that {name} runs, as "{shown}" in args (a tool: in '
                'config.script_args), and write "$1", "$2" and on, in quotes'
            )
        case _:
            how = f'Pass "{shown}" as an argument of its own'
    return f"{how}; or read standard input. Braces that are meant as text: {{ name }}."
