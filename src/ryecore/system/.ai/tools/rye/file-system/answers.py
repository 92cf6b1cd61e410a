# rye:signed:2026-11-23T13:00:42Z:7c4928475f03b6dbc4c502219dc3a68f0c886db261a4109c417d289448692fe9:5QLqRehTU0iJf4Se0u3ovinhsQV2-FGNfRuDDQongCJ7bzxfOPow76bGNdGPWlINCIpKuHeP-DmJtxSt5nGmBw:d20402989ca22ac0
"""What the file tools share in reading their parameters and giving their answers."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Tool = Callable[[dict[str, object], str], dict[str, object]]


class Refused(Exception):
    """The call can't be done; the text says why and what to do next."""


def reported(tool: Tool) -> Tool:
    """Make a tool answer what it refuses, instead of raising it.

    Args:
        tool: The tool's function.

    Returns:
        The same function, which answers `success: false` with an `error`.
    """

    def execute(params: dict[str, object], project_path: str) -> dict[str, object]:
        try:
            return tool(params, project_path)
        except Refused as refused:
            reason = str(refused)
        except OSError as failure:
            reason = f"The system refused it: {failure.strerror}."
        return {"success": False, "error": visible(reason)}

    return execute


def visible(text: str) -> str:
    """Show what can't stand in UTF-8 (a file name of other bytes) as an escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def text(params: dict[str, object], name: str, default: str | None = None) -> str:
    """A parameter that is a string.

    Args:
        params: The call's parameters.
        name: The parameter's name.
        default: What holds where it is absent; None means that it is required.

    Raises:
        Refused: If it is absent or of another type.
    """
    value = params.get(name, default)
    if not isinstance(value, str):
        raise Refused(f"Give {name} as a string.")
    return value


def encoded(params: dict[str, object], name: str) -> bytes:
    """A parameter that is a string, as UTF-8.

    Args:
        params: The call's parameters.
        name: The parameter's name.

    Raises:
        Refused: If it is absent, of another type, or no text that UTF-8 can hold.
    """
    try:
        return text(params, name).encode()
    except UnicodeEncodeError as failure:
        raise Refused(
            f"{name} holds half of a surrogate pair at character {failure.start}; "
            "give text that UTF-8 can hold."
        ) from None


def number(params: dict[str, object], name: str, default: int) -> int:
    """A parameter that is a whole number, not below zero.

    Args:
        params: The call's parameters.
        name: The parameter's name.
        default: What holds where it is absent.

    Raises:
        Refused: If it is of another type, or negative.
    """
    value = params.get(name, default)
    if isinstance(value, float) and value.is_integer():  # 5.0 is an integer in JSON Schema
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Refused(f"Give {name} as a whole number that is not negative.")
    return value


def flag(params: dict[str, object], name: str, default: bool) -> bool:
    """A parameter that is true or false.

    Args:
        params: The call's parameters.
        name: The parameter's name.
        default: What holds where it is absent.

    Raises:
        Refused: If it is of another type.
    """
    value = params.get(name, default)
    if not isinstance(value, bool):
        raise Refused(f"Give {name} as true or false.")
    return value
