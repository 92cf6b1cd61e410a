"""Counts, money, sizes and durations as people read them."""

from typing import Final

__all__ = ["byte_size", "compact", "counted", "dollars", "duration", "exact_dollars"]

_MICROCENTS_PER_USD: Final = 10**8


def compact(count: int) -> str:
    """Return a count in at most four characters, such as 1.2k."""
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            scaled = count / size
            return (f"{scaled:.1f}".removesuffix(".0") if scaled < 10 else f"{scaled:.0f}") + unit
    return str(count)


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number and what it counts, such as 1,200 turns.

    Args:
        plural: Several of them; the noun with an s, if empty.
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def dollars(microcents: int) -> str:
    """Return an amount of money, as exact as it has to be."""
    usd = microcents / _MICROCENTS_PER_USD
    if usd >= 1000:
        return f"${compact(round(usd))}"
    if usd >= 100:
        return f"${usd:.0f}"
    digits = 2 if usd >= 1 else 3 if usd >= 0.1 else 4
    return f"${usd:.{digits}f}".rstrip("0").rstrip(".")


def exact_dollars(microcents: int, digits: int = 6) -> str:
    """Return an amount of money with a fixed number of digits behind the point."""
    return f"${microcents / _MICROCENTS_PER_USD:.{digits}f}"


def byte_size(size_bytes: int) -> str:
    """Return a number of bytes in the largest unit that fits, such as 1.5 MB for 1,500,000."""
    size = float(size_bytes)
    for unit in ("B", "KB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def duration(seconds: float) -> str:
    """Return how long something lasts, such as 1:05 for a minute and five seconds."""
    seconds = max(seconds, 0)
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{int(seconds)} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if not hours:
        return f"{minutes}:{rest:02}"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if days else f"{hours}:{minutes:02}:{rest:02}"
