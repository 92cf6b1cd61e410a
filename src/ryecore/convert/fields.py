"""How the field of an attrs class is written in a document: its key, and when it is left out.

@frozen(field_transformer=camel_keys)
class CostUpdated:
    node_id: str                                              # nodeId
    spend_microcents: int = field(metadata=usd("spend"))      # spend, in US dollars
    attempt: int | None = field(default=None, metadata=omitted_at_default())
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from ryecore.convert.money import read_usd, write_usd
from ryecore.frozen import frozen

__all__ = ["Form", "camel_keys", "form_of", "key", "omitted_at_default", "usd", "written_by"]

_FORM: Final = "ryecore.convert"


@frozen
class Form:
    """How a field is written.

    Attributes:
        key: Its key in the document; the field's name where None.
        omitted_at_default: Whether it is left out where it has its default value.
        write: Makes the JSON value; the rule of the field's type where None.
        read: Makes the field's value of a JSON number; the rule of its type where None.
    """

    key: str | None = None
    omitted_at_default: bool = False
    write: Callable[[Any], Any] | None = None
    read: Callable[[float], Any] | None = None


def form_of(field: "attrs.Attribute[Any]") -> Form:
    """Return how a field is written."""
    form: Form = field.metadata.get(_FORM, _PLAIN)
    return form


def key(name: str, *, omitted_at_default: bool = False) -> Mapping[str, Form]:
    """Return the metadata of a field that has another name in documents."""
    return {_FORM: Form(name, omitted_at_default)}


def omitted_at_default() -> Mapping[str, Form]:
    """Return the metadata of a field that is left out where it has its default value."""
    return {_FORM: Form(omitted_at_default=True)}


def usd(name: str, *, omitted_at_default: bool = False) -> Mapping[str, Form]:
    """Return the metadata of a field of microcents that is written in US dollars."""
    return {_FORM: Form(name, omitted_at_default, write_usd, read_usd)}


def written_by(
    write: Callable[[Any], Any], key: str | None = None, *, omitted_at_default: bool = False
) -> Mapping[str, Form]:
    """Return the metadata of a field whose JSON value a function of its own makes."""
    return {_FORM: Form(key, omitted_at_default, write)}


def camel_keys(_cls: type, fields: "list[attrs.Attribute[Any]]") -> "list[attrs.Attribute[Any]]":
    """Write the names of all fields in camel case. It is attrs' `field_transformer`."""
    return [
        one.evolve(metadata={**one.metadata, _FORM: attrs.evolve(form_of(one), key=_camel(one))})
        for one in fields
    ]


def _camel(field: "attrs.Attribute[Any]") -> str:
    first, *rest = field.name.split("_")
    return first + "".join(word.capitalize() for word in rest)


_PLAIN: Final = Form()
