"""JSON as RFC 8259 defines it, without the NaN and infinities that Python's reader accepts."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Final, NoReturn

__all__ = [
    "FINITE_DECODER",
    "STRICT_DECODER",
    "find_non_json",
    "read_json",
    "replace_surrogates",
    "whole_text",
]


def read_json(text: str) -> object:
    """Read one JSON value; raise ValueError where the text isn't JSON or is nested too deeply."""
    try:
        value: object = STRICT_DECODER.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def replace_surrogates(value: object) -> object:
    """Return a JSON value with a question mark for each lone surrogate of its texts.

    JSON can escape half a surrogate pair, which no UTF-8 holds.
    """
    if isinstance(value, str):
        return whole_text(value)
    if isinstance(value, Mapping):
        return {str(replace_surrogates(key)): replace_surrogates(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [replace_surrogates(one) for one in value]
    return value


def whole_text(text: str) -> str:
    """Return a text with a question mark for each lone surrogate."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def find_non_json(
    value: object, place: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the place of each value that JSON can't hold, such as a date of YAML, with the reason.

    `value` must hold no cycle.
    """
    if isinstance(value, Mapping):
        for key, one in value.items():
            if isinstance(key, str | int | float | None):
                yield from find_non_json(one, (*place, str(key)))
            else:
                yield (*place, str(key)), "must be text: put it in quotes"
    elif isinstance(value, list | tuple):
        for index, one in enumerate(value):
            yield from find_non_json(one, (*place, index))
    elif reason := _unfit(value):
        yield place, reason


def _unfit(value: object) -> str:
    try:
        if isinstance(value, str):
            value.encode()
        elif isinstance(value, int | float):
            return "" if math.isfinite(value) else "must be a finite number"
        elif value is not None:
            return f"is a {type(value).__name__}, which JSON doesn't have: put text in quotes"
    except UnicodeEncodeError:
        return "holds half a surrogate pair, which isn't text"
    except OverflowError:
        return "is a number that is too large"
    return ""


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"JSON has no {constant}")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"JSON has no number like {text}.")
    return number


STRICT_DECODER: Final = json.JSONDecoder(parse_constant=_refuse)
"""Reads a value from the middle of a text as well (`raw_decode`). It raises RecursionError too."""

FINITE_DECODER: Final = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse)
"""Refuses a number that no float holds, such as 1e999, which JSON's grammar allows."""
