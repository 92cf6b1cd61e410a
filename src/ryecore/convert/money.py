"""Money: integer microcents inside, Decimal dollars in Python, a number of dollars on the wire.

Source: decision 39.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from decimal import Decimal

__all__ = ["MICROCENTS_PER_USD", "read_usd", "to_usd", "write_usd"]

MICROCENTS_PER_USD: Final = 100_000_000
"""1 microcent is 1e-8 USD."""


def to_usd(microcents: int) -> "Decimal":
    """Return an amount of microcents in US dollars, exactly."""
    from decimal import Decimal  # noqa: PLC0415 - a process that runs one tool has no amounts

    return Decimal(microcents).scaleb(-8)


def write_usd(microcents: int) -> float:
    """Return an amount of microcents as the number of US dollars that stands in JSON."""
    return microcents / MICROCENTS_PER_USD


def read_usd(usd: float) -> int:
    """Return the microcents of a number of US dollars, as `write_usd` wrote it."""
    return round(usd * MICROCENTS_PER_USD)
