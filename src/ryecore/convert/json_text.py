"""JSON as text: writers that are made once, and JSON for people.

The extension writes values of exactly JSON's types, in a third of the time that `json` takes or
less. What it leaves, `json` writes: other types, lone surrogates, and what is nested deep. The
bytes are the same.
"""

import json
import json.encoder
from collections.abc import Callable, Mapping
from typing import Any, Final

from ryecore import _native

__all__ = ["indented_json", "make_encoder", "quoted"]

quoted: Final[Callable[[str], str]] = json.encoder.encode_basestring_ascii
"""Returns a text as JSON in ASCII."""


def make_encoder(
    *,
    ascii_only: bool = True,
    sort_keys: bool = False,
    spaced: bool = False,
    allow_nan: bool = False,
    default: Callable[[Any], object] | None = None,
) -> Callable[[object], str]:
    """Return a function that encodes values as `json.dumps` does with these options.

    A value that contains itself is a RecursionError.

    Args:
        spaced: Whether a space follows each comma and colon.
    """
    encode = json.JSONEncoder(
        ensure_ascii=ascii_only,
        check_circular=False,
        allow_nan=allow_nan,
        sort_keys=sort_keys,
        separators=(", ", ": ") if spaced else (",", ":"),
        default=default,
    ).encode
    write = _native.JsonWriter(
        ascii_only=ascii_only, sort_keys=sort_keys, spaced=spaced, indented=False
    ).write

    def encode_value(value: object) -> str:
        text = write(value)
        return encode(value) if text is None else text

    return encode_value


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else str(value)


_WRITERS: Final = [
    (
        _native.JsonWriter(ascii_only=one, sort_keys=False, spaced=False, indented=True).write,
        json.JSONEncoder(ensure_ascii=one, indent=2, default=_plain).encode,
    )
    for one in (False, True)
]


def indented_json(value: object, *, ascii_only: bool = False) -> str:
    """Return JSON for people, as `json.dumps` with an indent of 2.

    Any mapping is an object. Values that JSON lacks are written as texts; a value that contains
    itself is a ValueError.
    """
    write, encode = _WRITERS[ascii_only]
    text = write(value)
    return encode(value) if text is None else text
