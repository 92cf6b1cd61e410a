"""Which words of a command line an interpreter reads as a program. Pure.

A word that stands for a value which isn't known yet holds NUL characters in its place.

Source: decision 79; ADR 020.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from attrs import define, field

from ryecore.frozen import frozen
from ryecore.policy.dialects import COMMAND, DIALECTS, PYTHON, SHELLS, Dialect

__all__ = ["CommandLine", "ProgramText", "program_name", "read_command_line"]


@frozen
class ProgramText:
    """A word that is, or holds, a program.

    Attributes:
        interpreter: The name of its interpreter, such as `bash`.
        keeps_variables: Whether `${NAME}` is the language's own, so that it can stay as it is.
        is_attached: Whether the word is an option with the program behind it, such as `--eval=x`.
    """

    interpreter: str
    keeps_variables: bool
    is_attached: bool = False


@frozen
class CommandLine:
    """The use that a command line's interpreters make of its words, by index.

    Attributes:
        programs: The words that are read as a program.
        files: The words that name the file of a program.
        operands: The words that would be read as options if they began with `-` or `+`.
        stdin: The interpreter that reads a program on standard input; None for none.
    """

    programs: Mapping[int, ProgramText]
    files: frozenset[int]
    operands: frozenset[int]
    stdin: ProgramText | None


_WRAPPERS: Final = frozenset(
    {"env", "busybox", "timeout", "nice", "nohup", "setsid", "stdbuf", "sudo", "doas", "xargs"}
)
_SHELL_VALUES: Final = ("--rcfile", "--init-file")
_SHELL_PROGRAMS: Final = ("--command", "--init-command")
_VERSION: Final = re.compile(r"-?[0-9]+(\.[0-9]+)*(?:t|d|-dbg|-debug)?(\.exe)?\Z|\.exe\Z")
_STDIN: Final = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})


def program_name(word: str) -> str:
    """Return the name of a program without its folder and version: `python` for a python3.12."""
    name = word.rpartition("/")[2].lower()
    return _VERSION.sub("", name) or name


def read_command_line(words: Sequence[str]) -> CommandLine:
    """Find the programs in a command line, in which NUL stands for a part that isn't known yet.

    An interpreter counts wherever its name stands, since `timeout 5 sh -c x` runs a shell too.
    """
    reader = _Reader(words)
    at = 0
    while at < len(words):
        name = program_name(words[at])
        reader.is_start = reader.is_start and (at == 0 or _is_started(words[:at]))
        if name in SHELLS:
            at = reader.shell(name, at + 1)
        elif name in DIALECTS:
            begin, at = at + 1, reader.dialect(name, DIALECTS[name], at + 1)
            reader.nested(begin, at)
        else:
            at += 1
    return CommandLine(
        reader.programs, frozenset(reader.files), frozenset(reader.operands), reader.stdin
    )


def _is_started(before: Sequence[str]) -> bool:
    """Return whether words are those of a program that starts the next word's."""
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
        else:
            self._file(at, text)
        self.is_start = False
        return at + 1

    def nested(self, begin: int, end: int) -> None:
        """Find the interpreters among the operands of a program that may start them.

        `git bisect run sh -c x` and `npm exec -- sh -c x` run a shell. Which of its operands a
        program starts isn't known, so that only what follows `-c` and its like counts.
        """
        inner = _Reader(self.words, is_start=False)
        for at in range(begin, min(end, len(self.words))):
            name = program_name(self.words[at])
            if name in SHELLS:
                inner.shell(name, at + 1)
            elif name in DIALECTS and DIALECTS[name].operands == "file":
                inner.dialect(name, DIALECTS[name], at + 1)
        self.programs = inner.programs | self.programs

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

    def dialect(self, name: str, dialect: Dialect, at: int) -> int:
        """Read an interpreter's arguments; the index behind what decides its program."""
        text = ProgramText(name, dialect.keeps_variables)
        has_program, takes_options, count = False, True, 0
        is_behind_verb = False
        while at < len(self.words):
            word = self.words[at]
            if takes_options and word == "--":
                takes_options = dialect is COMMAND  # what follows is the shell's, and its -c too
                at += 1
                continue
            if takes_options and word.startswith("-") and len(word) > 1:
                was, (at, found) = (
                    at,
                    self._option(dialect, text, at, has_operand=count > 0 or is_behind_verb),
                )
                has_program = has_program or found
                is_module = dialect is PYTHON and _names_module(self.words[was])
                if is_module and self.words[at - 1].endswith("timeit"):
                    self.programs |= dict.fromkeys(range(at, len(self.words)), text)
                if (found or is_module) and dialect.stops:
                    self.is_start = False
                    return at
                continue
            if dialect.operands == "wrapped":
                return at
            if takes_options and dialect.operands not in ("none", "verbs"):
                self.operands.add(at)
            if dialect.marked is not None and re.match(dialect.marked, word):
                self.programs[at] = _attached(text)
            if word.lower() in dialect.verbs and not is_behind_verb:
                is_behind_verb, takes_options, at = True, dialect.permutes, at + 1
                continue
            if dialect.operands == "verbs":
                if is_behind_verb:
                    self.programs[at] = text
                    is_behind_verb = not dialect.stops
                at, count = at + 1, count + 1
                continue
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
        self, dialect: Dialect, text: ProgramText, at: int, has_program: bool
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

    def _option(
        self, dialect: Dialect, text: ProgramText, at: int, *, has_operand: bool
    ) -> tuple[int, bool]:
        """Read an option; the index behind it and its values, and whether it brings a program."""
        word = self.words[at]
        name, equals, _ = word.partition("=")
        folded = name.lower() if dialect.operands == "all" else name
        for setting in dialect.settings:
            if word.startswith(setting) and not has_operand:
                return self._setting(dialect, text, at, setting), False
        if folded in dialect.long_programs:
            self.programs[at if equals else at + 1] = _attached(text) if equals else text
            return (at + 1 if equals else at + 2), True
        if name in dialect.long_values and not word.startswith("--"):
            return at + 1 + (0 if equals else dialect.long_values[name]), False
        if word.startswith("--"):
            following = 0 if equals else dialect.long_values.get(name, 0)
            if name in ("--file", "--from-file") and dialect.files and following:
                self._file(at + 1, text)
            if name in ("--import", "--require", "--loader") and not equals:
                self._data_url(at + 1, text)
            elif equals and word.partition("=")[2].startswith("data:"):
                self.programs[at] = _attached(text)
            return at + 1 + following, name in ("--file", "--from-file") and bool(dialect.files)
        for index, letter in enumerate(word[1:], start=1):
            is_last = index == len(word) - 1
            if letter in dialect.programs and word[index + 1 :].strip(dialect.programs) == "":
                self.programs[at + 1] = text
                return at + 2, True
            if letter in dialect.programs:
                self.programs[at] = _attached(text)
                return at + 1, letter not in "Mm"  # Perl's module, and no program yet
            if letter in dialect.files and is_last:
                self._file(at + 1, text)
            elif letter in dialect.files and word[index + 1 :] in _STDIN:
                self._reads_stdin(text)
            if letter in dialect.files or letter in dialect.values:
                return (at + 2 if is_last else at + 1), letter in dialect.files
            if letter in dialect.rests:
                break
            if dialect is PYTHON and letter == "m":
                return (at + 2 if is_last else at + 1), False
        return at + 1, False

    def _setting(self, dialect: Dialect, text: ProgramText, at: int, option: str) -> int:
        """Read an option with a setting, such as `-c KEY=VALUE`; the index behind it."""
        is_attached = len(self.words[at]) > len(option)
        place = at if is_attached else at + 1
        setting = self.words[place][len(option) if is_attached else 0 :] if self._has(place) else ""
        pattern = dialect.program_settings
        key = re.split(r"[= ]", setting.lstrip("="), maxsplit=1)[0]
        if pattern is not None and ("\0" in key or re.match(pattern, key)):
            self.programs[place] = _attached(text)
        return place + 1

    def _data_url(self, at: int, text: ProgramText) -> None:
        if self._has(at) and self.words[at].startswith("data:"):
            self.programs[at] = _attached(text)

    def _has(self, at: int) -> bool:
        return at < len(self.words)

    def _file(self, at: int, text: ProgramText) -> None:
        if not self._has(at):
            return
        if self.words[at] in _STDIN:
            self._reads_stdin(text)
        else:
            self.files.add(at)

    def _reads_stdin(self, text: ProgramText | None) -> None:
        if self.is_start and self.stdin is None:
            self.stdin = text


def _attached(text: ProgramText) -> ProgramText:
    return ProgramText(text.interpreter, text.keeps_variables, is_attached=True)


def _is_program(dialect: Dialect, index: int, has_program: bool) -> bool:
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
    """Return whether an option of Python is -m, behind which all is the module's."""
    return not word.startswith("--") and "m" in re.split("[cWX]", word[1:], maxsplit=1)[0]
