"""The wire: events, outcomes, costs and reports. An unknown key is an error."""

from ryecore.convert.strict import Format, make_converter

__all__ = ["WIRE"]

WIRE = Format(lambda: make_converter(forbid_unknown_keys=True))
