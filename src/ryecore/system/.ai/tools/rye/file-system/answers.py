# rye:signed:2026-11-28T17:20:55Z:778cc8bb0670deaa1387ad683ee3ba2a406f72e72de3f59330a35ad0b4bf07f6:Pfi0wrDGhq954ncvtq7ZBoskeH6zLYnCM9WA8kbXDne5Z3i9-kbpybSVgwGeyWEBh-59SX6VfM0Ei6GyMZa7Cg:a50d0ff255b90b74
"""What the file tools share in reading their parameters and giving their answers."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Tool = Callable[[dict[str, object], str], dict[str, object]]


class Refused(Exception):
    """The call can't be done; the text says why and what to do next."""


def reported(tool: Tool) -> Tool:
    """Make a tool answer `success: false` with an `error` for what it refuses, instead of raising."""

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
    """Return a string parameter; without a default, it is required."""
    value = params.get(name, default)
    if not isinstance(value, str):
        raise Refused(f"Give {name} as a string.")
    return value


def encoded(params: dict[str, object], name: str) -> bytes:
    """Return a required string parameter as UTF-8."""
    try:
        return text(params, name).encode()
    except UnicodeEncodeError as failure:
        raise Refused(
            f"{name} holds half of a surrogate pair at character {failure.start}; "
            "give text that UTF-8 can hold."
        ) from None


def number(params: dict[str, object], name: str, default: int) -> int:
    """Return a parameter that is a whole number, not below zero."""
    value = params.get(name, default)
    if isinstance(value, float) and value.is_integer():  # 5.0 is an integer in JSON Schema
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Refused(f"Give {name} as a whole number that is not negative.")
    return value


def flag(params: dict[str, object], name: str, default: bool) -> bool:
    """Return a parameter that is true or false."""
    value = params.get(name, default)
    if not isinstance(value, bool):
        raise Refused(f"Give {name} as true or false.")
    return value
