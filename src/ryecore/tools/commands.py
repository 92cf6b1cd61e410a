"""Which command a text or a list of words is, and whether it is listed. Pure."""

import shlex
from collections.abc import Iterable

__all__ = ["is_listed", "words_of"]

_ENDS_OR_JOINS = frozenset(";&|<>()`$\n\r#")


def words_of(command: object) -> tuple[str, ...]:
    """The words of exactly one command.

    Args:
        command: A text as for a shell, or a list of words.

    Raises:
        ValueError: It is none, or a shell would make more than one command of it; why is said.
    """
    if isinstance(command, list | tuple):
        if not command or not all(isinstance(word, str) for word in command):
            raise ValueError("it is no list of words")
        return tuple(command)
    if not isinstance(command, str):
        raise ValueError("it is no text")
    _refuse_shell_syntax(command)
    try:
        words = shlex.split(command)
    except ValueError:
        raise ValueError("its quotes don't match") from None
    if not words:
        raise ValueError("it is empty")
    return tuple(words)


def is_listed(words: tuple[str, ...], listed: Iterable[str]) -> bool:
    """Whether a command begins with the words of a listed one."""
    return any(
        words[: len(one)] == one for one in (tuple(entry.split()) for entry in listed) if one
    )


def _refuse_shell_syntax(command: str) -> None:
    """Refuse what a shell reads as more than the words of one command."""
    if "\0" in command:
        raise ValueError("it holds a NUL character")
    quote, is_escaped = "", False
    for character in command:
        if is_escaped:
            is_escaped = False
            if character in "\n\r":
                raise ValueError("it is continued on another line")
        elif character == "\\" and quote != "'":
            is_escaped = True
        elif quote:
            if character == quote:
                quote = ""
            elif quote == '"' and character in "$`":
                raise ValueError(f"it holds {character!r}, which a shell would expand")
        elif character in "'\"":
            quote = character
        elif character in _ENDS_OR_JOINS:
            raise ValueError(f"it holds {character!r}, which a shell would not take as text")
