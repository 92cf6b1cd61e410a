"""Limits of a thread: their names, their values, and how layers become one. Pure.

Source: seed 003, "Step 7: Build limits".
"""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Final

from attrs import asdict, evolve, frozen

__all__ = ["DEFAULT_LIMITS", "LIMIT_NAMES", "Limits", "read_limits"]

_MAX: Final = 2**53
"""No limit is larger, so that every one is exact in JSON and in SQLite."""


@frozen
class Limits:
    """What a thread may use; None where a layer says nothing.

    Attributes:
        turns: Calls to the model.
        tokens: Tokens, in and out.
        spend_usd: US dollars.
        spawns: Child threads.
        depth: Generations of child threads.
        duration_s: Seconds.
    """

    turns: int | None = None
    tokens: int | None = None
    spend_usd: Decimal | None = None
    spawns: int | None = None
    depth: int | None = None
    duration_s: Decimal | None = None

    def under(self, above: "Limits") -> "Limits":
        """These limits where the layer above says nothing."""
        said = {name: value for name, value in asdict(above).items() if value is not None}
        return evolve(self, **said)

    def to_dict(self) -> dict[str, object]:
        """The limits by the names that files use; numbers, and what is not set left out."""
        shown: dict[str, object] = {
            name: _number(getattr(self, attribute))
            for name, attribute in _NAMES.items()
            if getattr(self, attribute) is not None
        }
        return shown | {"spend_currency": CURRENCY} if "spend" in shown else shown


CURRENCY: Final = "USD"
_NAMES: Final[Mapping[str, str]] = {
    "turns": "turns",
    "tokens": "tokens",
    "spend": "spend_usd",
    "spawns": "spawns",
    "depth": "depth",
    "duration_seconds": "duration_s",
}
LIMIT_NAMES: Final = (*_NAMES, "spend_currency")
"""The names of limits in files; each number may be written with `max_` in front."""

DEFAULT_LIMITS: Final = Limits(
    turns=25,
    tokens=1_000_000,
    spend_usd=Decimal(5),
    spawns=50,
    depth=10,
    duration_s=Decimal(1800),
)
"""What holds where neither configuration nor a directive says anything."""


def read_limits(given: Mapping[str, object]) -> Limits:
    """Read limits by the names that files and callers use.

    Args:
        given: Whole numbers for turns, tokens, spawns and depth; any number, or its text, for
            spend (US dollars) and duration_seconds. None is negative.

    Returns:
        The limits.

    Raises:
        ValueError: A name is unknown, a value doesn't fit, or two spellings of one limit say
            different things; every one is listed.
    """
    problems: list[str] = []
    found: dict[str, int | Decimal] = {}
    for name, value in given.items():
        short = name.removeprefix("max_")
        if name == "spend_currency":
            if not isinstance(value, str) or value.upper() != CURRENCY:
                problems.append(f"spend_currency is {value!r}: spend is counted in {CURRENCY}")
            continue
        attribute = _NAMES.get(short)
        if attribute is None:
            problems.append(f"there is no limit {name!r}: the limits are {', '.join(LIMIT_NAMES)}")
            continue
        number = _read(value, whole=attribute not in ("spend_usd", "duration_s"))
        if number is None:
            kind = "number" if attribute in ("spend_usd", "duration_s") else "whole number"
            problems.append(f"{name} is {_brief(value)}, not a {kind} from 0 to 2^53")
        elif found.setdefault(attribute, number) != number:
            problems.append(f"{short} and max_{short} say different things")
    if problems:
        raise ValueError("; ".join(problems))
    return Limits(**found)  # type: ignore[arg-type]


def _read(value: object, *, whole: bool) -> int | Decimal | None:
    """The number, exactly; None where it is none, or out of range."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    if isinstance(value, str) and (len(value) > 40 or "_" in value):
        return None
    try:
        number = value if isinstance(value, Decimal) else Decimal(str(value))
    except (InvalidOperation, ValueError):  # a ValueError: more digits than Python writes
        return None
    if not number.is_finite() or not 0 <= number <= _MAX:
        return None
    if not whole:
        return abs(number)  # there is a negative zero
    return int(number) if number == number.to_integral_value() else None


def _number(value: int | Decimal) -> int | float:
    if isinstance(value, int):
        return value
    return int(value) if value == value.to_integral_value() else float(value)


def _brief(value: object) -> str:
    try:
        shown = repr(value)
    except ValueError:  # more digits than Python writes
        return "a number too long to show"
    return shown if len(shown) <= 60 else shown[:57] + "..."
