"""JSON as text: encoders that are made once, and JSON for people.

`json.JSONEncoder.encode` makes its C encoder at each call, which takes most of its time for a small
document, and indents in Python. The bytes are the same here.
"""

import json
import json.encoder
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

__all__ = ["indented_json", "make_encoder", "quoted", "quoted_unicode"]

quoted: Final[Callable[[str], str]] = json.encoder.encode_basestring_ascii
"""Returns a text as JSON in ASCII."""

quoted_unicode: Final[Callable[[str], str]] = json.encoder.encode_basestring
"""Returns a text as JSON in which all but controls stands as it is."""


def make_encoder(
    *,
    ascii_only: bool = True,
    sort_keys: bool = False,
    separators: tuple[str, str] = (",", ":"),
    allow_nan: bool = False,
    default: Callable[[Any], object] | None = None,
) -> Callable[[object], str]:
    """Return a function that encodes values as `json.dumps` does with these options.

    A value that contains itself is a RecursionError.
    """
    encoder = json.JSONEncoder(
        ensure_ascii=ascii_only,
        check_circular=False,
        allow_nan=allow_nan,
        sort_keys=sort_keys,
        separators=separators,
        default=default,
    )
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return encoder.encode
    quote = quoted if ascii_only else quoted_unicode
    between, after_key = separators[0], separators[1]
    pieces = cast(
        "Callable[[object, int], tuple[str, ...]]",
        make(
            None, encoder.default, quote, None, after_key, between, sort_keys, False, allow_nan
        ),
    )  # fmt: skip
    join = "".join
    return lambda value: join(pieces(value, 0))


_LITERALS: Final = {True: "true", False: "false", None: "null"}


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else str(value)


_PEOPLE: Final = [
    json.JSONEncoder(ensure_ascii=one, indent=2, default=_plain).encode for one in (False, True)
]


def indented_json(value: object, *, ascii_only: bool = False) -> str:
    """Return JSON for people, as `json.dumps` with an indent of 2.

    Any mapping is an object. Values that JSON lacks are written as texts; a value that contains
    itself is a ValueError.
    """
    try:
        return _indented(value, quoted if ascii_only else quoted_unicode, "\n")
    except (TypeError, RecursionError):  # the encoder has the rules for other types
        return _PEOPLE[ascii_only](value)


def _indented(value: Any, quote: Callable[[str], str], line: str) -> str:
    """Return a value of exactly JSON's types, indented; `line` begins each of its lines."""
    kind = type(value)
    if kind is str:
        return quote(value)
    if kind is int:
        return repr(value)
    if kind is bool or value is None:
        return _LITERALS[value]
    if kind is dict:
        if not value:
            return "{}"
        inner = line + "  "
        items = f",{inner}".join(
            [
                f"{quote(name)}: {quote(one) if type(one) is str else _indented(one, quote, inner)}"
                for name, one in value.items()
            ]
        )
        return f"{{{inner}{items}{line}}}"
    if kind is list or kind is tuple:
        if not value:
            return "[]"
        inner = line + "  "
        return f"[{inner}{f',{inner}'.join([_indented(one, quote, inner) for one in value])}{line}]"
    if kind is float and value - value == 0:
        return repr(value)
    raise TypeError
