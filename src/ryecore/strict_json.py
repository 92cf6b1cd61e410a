"""JSON as RFC 8259 defines it, without the NaN and infinities that Python's reader accepts."""

import json
import math
from typing import Final, NoReturn

__all__ = ["FINITE_DECODER", "STRICT_DECODER", "read_json"]


def read_json(text: str) -> object:
    """Read one JSON value; raise ValueError where the text isn't JSON or is nested too deeply."""
    try:
        value: object = STRICT_DECODER.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


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
