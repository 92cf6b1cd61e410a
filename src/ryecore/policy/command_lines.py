"""Which words of a command line an interpreter reads as a program. Pure.

A word that stands for a value which isn't known yet holds NUL characters in its place.

Source: decision 79; docs/adr/020-text-never-becomes-code.md.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from attrs import define, field, frozen

__all__ = ["CommandLine", "ProgramText", "program_name", "read_command_line"]


@frozen
class ProgramText:
    """A word that is, or holds, a program.

    Attributes:
        interpreter: The name of what reads it, such as `bash`.
        keeps_variables: Whether `${NAME}` is the language's own, so that it can stay as it is.
        is_attached: Whether the word is an option with the program behind it, such as `--eval=x`.
    """

    interpreter: str
    keeps_variables: bool
    is_attached: bool = False


@frozen
class CommandLine:
    """What a command line's interpreters do with its words, by index.

    Attributes:
        programs: The words that are read as a program.
        files: The words that name the file of a program.
        operands: The words that would be read as options if they began with `-` or `+`.
        stdin: What reads a program on standard input; None where nothing does.
    """

    programs: Mapping[int, ProgramText]
    files: frozenset[int]
    operands: frozenset[int]
    stdin: ProgramText | None


_Operands = Literal["file", "program", "second", "after_first", "all", "eval", "wrapped", "none"]


@frozen
class _Dialect:
    """How an interpreter reads its arguments.

    Attributes:
        programs: Short options whose value is a program.
        values: Short options with another value, attached or in the next word.
        rests: Short options whose value is attached, if there is one.
        long_programs: Long options whose value is a program.
        long_values: Long options with other values, and how many words those are.
        files: Options that name the program's file.
        operands: What the operands are: first the program's file, the program itself, ...
        stops: Whether all behind a program is an argument of it.
        permutes: Whether options may stand behind operands.
        keeps_variables: Whether `${NAME}` is the language's own.
        reads_stdin: Whether it reads a program on standard input where none is named.
    """

    programs: str = ""
    values: str = ""
    rests: str = ""
    long_programs: tuple[str, ...] = ()
    long_values: Mapping[str, int] = {}
    files: str = ""
    operands: _Operands = "file"
    stops: bool = False
    permutes: bool = False
    keeps_variables: bool = False
    reads_stdin: bool = True


_NODE: Final = _Dialect(
    programs="ep",
    values="rC",
    long_programs=("--eval", "--print"),
    long_values={"--require": 1, "--import": 1, "--loader": 1, "--conditions": 1, "--env-file": 1,
                 "--title": 1, "--input-type": 1, "--experimental-loader": 1},
    keeps_variables=True,
)  # fmt: skip
_AWK: Final = _Dialect(
    programs="e", values="vF", files="f", long_programs=("--source",), long_values={"--file": 1,
    "--assign": 1, "--field-separator": 1}, operands="program", reads_stdin=False,
)  # fmt: skip
_SED: Final = _Dialect(
    programs="e", files="f", rests="iEl", long_programs=("--expression",),
    long_values={"--file": 1}, operands="program", permutes=True, reads_stdin=False,
)  # fmt: skip
_JQ: Final = _Dialect(
    values="L", files="f", long_values={"--arg": 2, "--argjson": 2, "--slurpfile": 2,
    "--rawfile": 2, "--indent": 1, "--from-file": 1}, operands="program", permutes=True,
    reads_stdin=False,
)  # fmt: skip
_PYTHON: Final = _Dialect(
    programs="c", values="WX", long_values={"--check-hash-based-pycs": 1}, stops=True
)
_EVAL: Final = _Dialect(
    programs="eE", long_programs=("--eval", "--execute", "-eval", "--print"), values="l"
)
_COMMAND: Final = _Dialect(
    programs="c", values="sgGTE", long_programs=("--command", "--session-command"),
    operands="none", permutes=True, keeps_variables=True,
)  # fmt: skip
_SHELLS: Final = frozenset(
    {"sh", "bash", "rbash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "yash", "csh", "tcsh"}
)
_DIALECTS: Final[Mapping[str, _Dialect]] = {
    **dict.fromkeys(("python", "pypy", "ipython"), _PYTHON),
    **dict.fromkeys(("node", "nodejs", "bun", "tsx", "ts-node"), _NODE),
    "deno": _Dialect(programs="ep", operands="eval", keeps_variables=True),
    "perl": _Dialect(programs="eEMm", values="I", rests="DdFiVx", keeps_variables=True),
    "ruby": _Dialect(programs="e", values="ICEr", rests="0FKTWix"),
    "php": _Dialect(programs="rBRE", values="cdfFSt", long_programs=("--run",),
                    keeps_variables=True),
    **dict.fromkeys(("lua", "luajit"), _Dialect(programs="e", values="l")),
    **dict.fromkeys(("r", "rscript"), _Dialect(programs="e", long_values={"--file": 1})),
    **dict.fromkeys(
        ("julia", "elixir", "erl", "groovy", "scala", "osascript", "racket", "sbcl", "emacs"), _EVAL
    ),
    "guile": _Dialect(programs="c", values="lL"),
    **dict.fromkeys(("pwsh", "powershell"), _Dialect(
        long_programs=("-c", "-command", "-encodedcommand"), operands="all", keeps_variables=True,
    )),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _AWK),
    **dict.fromkeys(("sed", "gsed"), _SED),
    **dict.fromkeys(("jq", "gojq", "jaq"), _JQ),
    "psql": _Dialect(programs="c", values="hpUdvFRPo", files="f", long_programs=("--command",),
                     operands="none", permutes=True),
    **dict.fromkeys(("mysql", "mariadb"), _Dialect(
        programs="e", values="hPuD", rests="p", long_programs=("--execute",), operands="none",
        permutes=True)),
    "sqlite": _Dialect(long_programs=("-cmd",), operands="second", permutes=True),
    **dict.fromkeys(("su", "runuser", "script", "flock"), _COMMAND),
    "watch": _Dialect(values="n", operands="all", reads_stdin=False, keeps_variables=True),
    "ssh": _Dialect(values="BbcDEeFIiJLlmOopQRSWw", operands="after_first", reads_stdin=False),
    "env": _Dialect(programs="S", values="uC", long_programs=("--split-string",),
                    operands="wrapped", reads_stdin=False),
    "busybox": _Dialect(operands="wrapped", reads_stdin=False),
}  # fmt: skip
_WRAPPERS: Final = frozenset(
    {"env", "busybox", "timeout", "nice", "nohup", "setsid", "stdbuf", "sudo", "doas", "xargs"}
)
_SHELL_VALUES: Final = ("--rcfile", "--init-file")
_SHELL_PROGRAMS: Final = ("--command", "--init-command")
_VERSION: Final = re.compile(r"-?[0-9]+(\.[0-9]+)*(\.exe)?\Z|\.exe\Z")


def program_name(word: str) -> str:
    """Return the name of a program without its folder and version: `python` for a python3.12."""
    name = word.rpartition("/")[2].lower()
    return _VERSION.sub("", name) or name


def read_command_line(words: Sequence[str]) -> CommandLine:
    """Find the programs in a command line.

    Args:
        words: The program and its arguments. NUL stands for a part that isn't known yet.

    Returns:
        What interpreters do with the words. An interpreter counts wherever its name stands, since
        `timeout 5 sh -c x` runs a shell too.
    """
    reader = _Reader(words)
    at = 0
    while at < len(words):
        name = program_name(words[at])
        reader.is_start = reader.is_start and (at == 0 or _is_started(words[:at]))
        if name in _SHELLS:
            at = reader.shell(name, at + 1)
        elif name in _DIALECTS:
            at = reader.dialect(name, _DIALECTS[name], at + 1)
        else:
            at += 1
    return CommandLine(
        reader.programs, frozenset(reader.files), frozenset(reader.operands), reader.stdin
    )


def _is_started(before: Sequence[str]) -> bool:
    """Whether words are those of a program that starts the next word's."""
    return program_name(before[0]) in _WRAPPERS


@define
class _Reader:
    """Reads a command line, an interpreter at a time."""

    words: Sequence[str]
    programs: dict[int, ProgramText] = field(factory=dict)
    files: set[int] = field(factory=set)
    operands: set[int] = field(factory=set)
    stdin: ProgramText | None = None
    is_start: bool = True

    def shell(self, name: str, at: int) -> int:
        """Read a shell's arguments; the index behind its program."""
        text = ProgramText(name, keeps_variables=True)
        has_program = reads_stdin = False
        takes_options = True
        while at < len(self.words):
            word = self.words[at]
            if word[:1] not in ("-", "+") or len(word) == 1:
                break
            at += 1
            if word == "--":
                takes_options = False
                break
            if word.startswith("--"):
                at += self._shell_option(word, text, at)
                continue
            has_program = has_program or "c" in word
            reads_stdin = reads_stdin or "s" in word
            at += word.count("o") + word.count("O")
        if at >= len(self.words) or (reads_stdin and not has_program):
            self._reads_stdin(text)
            return at
        if takes_options:
            self.operands.add(at)
        if has_program:
            self.programs[at] = text
        elif self.words[at] == "-":
            self._reads_stdin(text)
        else:
            self._file(at, text)
        self.is_start = False
        return at + 1

    def _shell_option(self, word: str, text: ProgramText, following: int) -> int:
        """Read a long option; the number of words that follow it as its value."""
        name, equals, _ = word.partition("=")
        if name in _SHELL_PROGRAMS:
            if equals:
                self.programs[following - 1] = _attached(text)
                return 0
            self.programs[following] = text
            return 1
        return 1 if name in _SHELL_VALUES and not equals else 0

    def dialect(self, name: str, dialect: _Dialect, at: int) -> int:
        """Read an interpreter's arguments; the index behind what decides its program."""
        text = ProgramText(name, dialect.keeps_variables)
        has_program, takes_options, count = False, True, 0
        while at < len(self.words):
            word = self.words[at]
            if takes_options and word == "--":
                takes_options = False
                at += 1
                continue
            if takes_options and word.startswith("-") and len(word) > 1:
                was, (at, found) = at, self._option(dialect, text, at)
                has_program = has_program or found
                is_module = dialect is _PYTHON and _names_module(self.words[was])
                if (found or is_module) and dialect.stops:
                    self.is_start = False
                    return at
                continue
            if dialect.operands == "wrapped":
                return at
            if takes_options:
                self.operands.add(at)
            if dialect.operands in ("file", "eval"):
                return self._first_operand(dialect, text, at, has_program)
            if _is_program(dialect, count, has_program):
                self.programs[at] = text
                has_program = has_program or dialect.operands == "program"
            count += 1
            at += 1
            takes_options = takes_options and dialect.permutes
        if not has_program and dialect.operands != "wrapped" and count < 2:
            self._reads_stdin(text if dialect.reads_stdin else None)
        return at

    def _first_operand(
        self, dialect: _Dialect, text: ProgramText, at: int, has_program: bool
    ) -> int:
        if dialect.operands == "eval" and self.words[at] == "eval":
            while at + 1 < len(self.words) and self.words[at + 1].startswith("-"):
                at += 1
            self.programs[at + 1] = text
            return at + 2
        if not has_program:
            self._file(at, text)
        self.is_start = False
        return at + 1

    def _option(self, dialect: _Dialect, text: ProgramText, at: int) -> tuple[int, bool]:
        """Read an option; the index behind it and its values, and whether it brings a program."""
        word = self.words[at]
        name, equals, _ = word.partition("=")
        folded = name.lower() if dialect.operands == "all" else name
        if folded in dialect.long_programs:
            self.programs[at if equals else at + 1] = _attached(text) if equals else text
            return (at + 1 if equals else at + 2), True
        if word.startswith("--"):
            following = 0 if equals else dialect.long_values.get(name, 0)
            return at + 1 + following, name in ("--file", "--from-file") and bool(dialect.files)
        for index, letter in enumerate(word[1:], start=1):
            is_last = index == len(word) - 1
            if letter in dialect.programs and word[index + 1 :].strip(dialect.programs) == "":
                self.programs[at + 1] = text
                return at + 2, True
            if letter in dialect.programs:
                self.programs[at] = _attached(text)
                return at + 1, letter not in "Mm"  # Perl's module, and no program yet
            if letter in dialect.files or letter in dialect.values:
                return (at + 2 if is_last else at + 1), letter in dialect.files
            if letter in dialect.rests:
                break
            if dialect is _PYTHON and letter == "m":
                return (at + 2 if is_last else at + 1), False
        return at + 1, False

    def _file(self, at: int, text: ProgramText) -> None:
        if self.words[at] in ("-", "/dev/stdin", "/proc/self/fd/0"):
            self._reads_stdin(text)
        else:
            self.files.add(at)

    def _reads_stdin(self, text: ProgramText | None) -> None:
        if self.is_start and self.stdin is None:
            self.stdin = text


def _attached(text: ProgramText) -> ProgramText:
    return ProgramText(text.interpreter, text.keeps_variables, is_attached=True)


def _is_program(dialect: _Dialect, index: int, has_program: bool) -> bool:
    match dialect.operands:
        case "program":
            return index == 0 and not has_program
        case "second":
            return index == 1
        case "after_first":
            return index >= 1
        case "all":
            return True
        case _:
            return False


def _names_module(word: str) -> bool:
    """Whether an option of Python is -m, behind which all is the module's."""
    return not word.startswith("--") and "m" in re.split("[cWX]", word[1:], maxsplit=1)[0]
