"""Records: what stands in transcripts and journals. A key that another version wrote is ignored."""

from ryecore.convert.strict import Format, make_converter

__all__ = ["RECORDS"]

RECORDS = Format(lambda: make_converter(forbid_unknown_keys=False))
