"""Records: what stands in transcripts and journals. A key that another version wrote is ignored.

Nobody mends a record by hand, so an error names its first problem alone.
"""

from ryecore.convert.strict import Format, make_converter

__all__ = ["RECORDS"]

RECORDS = Format(lambda: make_converter(forbid_unknown_keys=False, all_problems=False))
