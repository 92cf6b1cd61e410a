"""Limits of a thread: their names and values, how layers become one, and a limit that was met.

Source: docs/design/threads.md#limits.
"""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, Protocol, Self, TypeAlias, TypeVar

from attrs import evolve, field, fields

from ryecore.convert.lines import quoted
from ryecore.convert.money import MICROCENTS_PER_USD, write_usd
from ryecore.frozen import frozen

if TYPE_CHECKING:
    from attrs import Attribute

__all__ = [
    "DEFAULT_LIMITS",
    "DEFAULT_TOOL_TURNS",
    "LIMIT_NAMES",
    "LIMIT_SPELLINGS",
    "Amount",
    "LayeredLimits",
    "LimitCode",
    "LimitHit",
    "Limits",
    "Used",
    "limit_of_code",
    "read_limits",
]

Amount: TypeAlias = float | int | str | Decimal
"""An amount of US dollars or seconds. A float counts as its shortest text: 0.1 is one tenth."""

_Number = TypeVar("_Number", int, Decimal)

_NAME: Final = "name"
"""The metadata of a limit with its name in files."""

_MAX: Final = 2**53
"""No limit is larger, so that every one is exact in JSON and in SQLite."""


def _read(value: object, *, whole: bool) -> int | Decimal | None:
    """Read a number, exactly; None where it is not one, or out of range."""
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
        return number.copy_abs()  # there is a negative zero
    return int(number) if number == number.to_integral_value() else None


def _spend(value: Amount | None) -> Decimal | None:
    return _amount("spend_usd", value)


def _duration(value: Amount | None) -> Decimal | None:
    return _amount("duration_s", value)


def _amount(name: str, value: object) -> Decimal | None:
    if value is None:
        return None
    read = _read(value, whole=False)
    if read is None:
        raise ValueError(f"{name} is {quoted(value)}, not a number from 0 to 2^53")
    return Decimal(read)


def _check_whole(_: object, limit: "Attribute[int | None]", value: object) -> None:
    lowest = -1 if limit.name == "depth" else 0
    if value is not None and not (type(value) is int and lowest <= value <= _MAX):
        name = limit.name
        raise ValueError(f"{name} is {quoted(value)}, not a whole number from {lowest} to 2^53")


class Used(Protocol):
    """What a run has used so far."""

    @property
    def turns(self) -> int:
        """Turns of its model."""
        ...

    @property
    def tokens(self) -> int:
        """Tokens, read and written."""
        ...

    @property
    def spend_microcents(self) -> int:
        """Money, in units of 1e-8 USD."""
        ...


@frozen
class Limits:
    """The limits of a run; None where a layer sets none.

    A new limit is a field here: its name in files is that of its metadata, else its own.

    Attributes:
        turns: Calls to the model.
        tokens: Tokens, in and out.
        spend_usd: US dollars; any number or its text, exact.
        spawns: Child threads.
        depth: Generations of child threads; -1 is one too many already.
        duration_s: Seconds; any number or its text.

    Raises:
        ValueError: A value is not such a number, negative, or more than 2^53.

    Source: docs/design/threads.md#limits; decision 39.
    """

    turns: int | None = field(default=None, validator=_check_whole)
    tokens: int | None = field(default=None, validator=_check_whole)
    spend_usd: Decimal | None = field(default=None, converter=_spend, metadata={_NAME: "spend"})
    spawns: int | None = field(default=None, validator=_check_whole)
    depth: int | None = field(default=None, validator=_check_whole)
    duration_s: Decimal | None = field(
        default=None, converter=_duration, metadata={_NAME: "duration_seconds"}
    )

    @cached_property
    def spend_microcents(self) -> int | None:
        """The spend as a ceiling: whole microcents (1e-8 USD), rounded down."""
        if self.spend_usd is None:
            return None
        # Not Decimal arithmetic, which rounds to the digits of the caller's context.
        above, below = self.spend_usd.as_integer_ratio()
        return above * MICROCENTS_PER_USD // below

    def capped_by(self, parent: "Limits") -> "Limits":
        """Cap these limits by the parent's: none is higher, and the depth is one less.

        Args:
            parent: The parent's limits; what it leaves open caps nothing.

        Returns:
            The limits of the child. Its depth is -1 where the parent's was used up.

        Source: docs/design/threads.md#limits.
        """
        depth = None if parent.depth is None else max(parent.depth - 1, -1)
        return self.within(evolve(parent, depth=depth))

    def within(self, bounds: "Limits") -> "Limits":
        """Return these limits, none higher than that of `bounds`, where an open one is ignored."""
        return Limits(
            **{one: _lower(getattr(self, one), getattr(bounds, one)) for one in _NAMES.values()}
        )

    def under(self, above: "Limits") -> "Limits":
        """Return the limits of the layer above, and these where it sets none."""
        named = ((name, getattr(above, name)) for name in _NAMES.values())
        said = {name: value for name, value in named if value is not None}
        return evolve(self, **said) if said else self

    def hit_by(self, used: "Used") -> "LimitHit | None":
        """Return the first limit that is met, of turns, tokens and spend; None where none is."""
        if self.turns is not None and used.turns >= self.turns:
            return LimitHit("turns_exceeded", used.turns, self.turns)
        tokens = used.tokens
        if self.tokens is not None and tokens >= self.tokens:
            return LimitHit("tokens_exceeded", tokens, self.tokens)
        most, spent = self.spend_microcents, used.spend_microcents
        if most is not None and (spent >= most > 0 or spent > most):
            return LimitHit.of_spend(spent, most)
        return None

    def to_dict(self) -> dict[str, object]:
        """Return the limits by the names that files use; numbers, and what is not set left out."""
        return dict(self._shown)

    @cached_property
    def _shown(self) -> dict[str, object]:
        shown: dict[str, object] = {
            name: _number(getattr(self, attribute))
            for name, attribute in _NAMES.items()
            if getattr(self, attribute) is not None
        }
        return shown | {"spend_currency": CURRENCY} if "spend" in shown else shown


CURRENCY: Final = "USD"
_NAMES: Final[Mapping[str, str]] = {
    limit.metadata.get(_NAME, limit.name): limit.name for limit in fields(Limits)
}
_EXACT: Final = frozenset(limit.name for limit in fields(Limits) if _NAME in limit.metadata)
LIMIT_NAMES: Final = tuple(_NAMES)
"""The names of limits in files; each may also be written with `max_` in front."""

LIMIT_SPELLINGS: Final = (
    *LIMIT_NAMES, "spend_currency", *(f"max_{name}" for name in LIMIT_NAMES),
)  # fmt: skip

DEFAULT_TOOL_TURNS: Final = 24
"""How many turns of an agent may call tools. Source: decision 51."""

DEFAULT_LIMITS: Final = Limits(
    turns=DEFAULT_TOOL_TURNS + 1,  # the last one answers
    tokens=1_000_000,
    spend_usd=Decimal(5),
    spawns=50,
    depth=10,
    duration_s=Decimal(1800),
)
"""The limits where neither configuration nor a directive sets any."""


@frozen
class LayeredLimits:
    """The limits of all layers, and which of them were declared for the run.

    Attributes:
        limits: Defaults, under configuration, under the item, under the caller's. None is left
            open; the parent's don't cap them yet.
        declares_spend: Whether the item or the caller names a spend: a child then reserves it of
            its parent's; else it shares what its parent has.
        declares_tokens: The same for tokens.
    """

    limits: Limits
    declares_spend: bool
    declares_tokens: bool


def read_limits(given: Mapping[str, object]) -> Limits:
    """Read limits by the names that files and callers use.

    Turns, tokens, spawns and depth are whole numbers; spend (US dollars) and duration_seconds any
    number, or its text. None is negative. A ValueError lists every problem: an unknown name, a
    value that doesn't fit, two spellings of one limit that differ.
    """
    problems: list[str] = []
    found: dict[str, int | Decimal] = {}
    for name, value in given.items():
        short = name.removeprefix("max_")
        if name == "spend_currency":
            if not isinstance(value, str) or value.upper() != CURRENCY:
                problems.append(
                    f"spend_currency is {quoted(value)}: spend is counted in {CURRENCY}"
                )
            continue
        attribute = _NAMES.get(short)
        if attribute is None:
            problems.append(
                f"unknown limit {quoted(name)}: the limits are {', '.join(LIMIT_NAMES)}"
            )
            continue
        number = _read(value, whole=attribute not in _EXACT)
        if number is None:
            kind = "number" if attribute in _EXACT else "whole number"
            problems.append(f"{name} is {quoted(value)}, not a {kind} from 0 to 2^53")
        elif found.setdefault(attribute, number) != number:
            problems.append(f"{short} and max_{short} say different things")
    if problems:
        raise ValueError("; ".join(problems))
    return Limits(**found)  # type: ignore[arg-type]


def _lower(one: _Number | None, other: _Number | None) -> _Number | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _number(value: int | Decimal) -> int | float:
    if isinstance(value, int):
        return value
    return int(value) if value == value.to_integral_value() else float(value)


LimitCode: TypeAlias = Literal[
    "turns_exceeded",
    "tokens_exceeded",
    "spend_exceeded",
    "duration_exceeded",
    "spawns_exceeded",
    "depth_exceeded",
]
"""The name of a limit that can be met.

Source: docs/design/threads.md#turn-loop; decision 40.
"""

_CODES: Final[Mapping[str, str]] = {
    f"{name.removesuffix('_seconds')}_exceeded": name for name in LIMIT_NAMES
}
"""The name of each limit in files, by the code of meeting it."""


def limit_of_code(code: str) -> str | None:
    """Return the limit that an error's code says was met, as `--limit` names it."""
    return _CODES.get(code)


@frozen
class LimitHit:
    """A limit that was met.

    Attributes:
        code: The name of the limit.
        current: How much was used: turns, tokens, US dollars, or seconds.
        maximum: The limit, in the same unit.
        reason: An explanation; empty where code and numbers suffice.
        next_step: The next step; empty for a higher limit of the same kind.
    """

    code: LimitCode
    current: float
    maximum: float
    reason: str = ""
    next_step: str = ""

    @classmethod
    def of_spend(
        cls, used_microcents: int, most_microcents: int, reason: str = "", next_step: str = ""
    ) -> Self:
        """Return a hit of the spending limit."""
        used, most = write_usd(used_microcents), write_usd(most_microcents)
        return cls("spend_exceeded", used, most, reason, next_step)

    @property
    def message(self) -> str:
        """What happened, and the next step, for people and models."""
        what = self.code.removesuffix("_exceeded")
        met = f"The limit of {what} is met: {_text(self.current)} of {_text(self.maximum)}."
        return f"{self.reason or met} {self.advice}"

    @property
    def advice(self) -> str:
        """The next step: the given one, or a higher limit."""
        more = f"Start or resume it with a higher one: --limit {limit_of_code(self.code)}=..."
        return self.next_step or more

    def to_dict(self) -> dict[str, object]:
        """Return the hit under the names that hooks and transcripts use."""
        return {
            "limit_code": self.code,
            "current_value": self.current,
            "current_max": self.maximum,
        }


def _text(value: float) -> str:
    return f"{value:,.6f}".rstrip("0").rstrip(".")
