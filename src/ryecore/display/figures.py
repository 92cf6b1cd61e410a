"""Counts, money and time in few characters."""

from ryecore.convert.money import write_usd

__all__ = ["compact", "dollars", "duration"]


def compact(count: int) -> str:
    """A count in at most four characters, such as 1.2k."""
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            scaled = count / size
            return (f"{scaled:.1f}".removesuffix(".0") if scaled < 10 else f"{scaled:.0f}") + unit
    return str(count)


def dollars(microcents: int) -> str:
    """An amount of money, as exact as it has to be."""
    usd = write_usd(microcents)
    if usd >= 1000:
        return f"${compact(round(usd))}"
    if usd >= 100:
        return f"${usd:.0f}"
    digits = 2 if usd >= 1 else 3 if usd >= 0.1 else 4
    return f"${usd:.{digits}f}".rstrip("0").rstrip(".")


def duration(seconds: float) -> str:
    """How long something lasts, such as 1:05 for a minute and five seconds."""
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
