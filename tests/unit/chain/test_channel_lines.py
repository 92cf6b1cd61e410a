"""The lines of a call's channel: how they are split, read and written."""

import json
import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.chain.channel_lines import (
    MAX_LINE_BYTES,
    AskLine,
    ChannelLine,
    Lines,
    LogLine,
    ProgressLine,
    read_channel_line,
    write_answer,
)


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ('{"progress": 3}', ProgressLine(3, None, "")),
        ('{"progress": 0.5, "total": 1, "message": "é"}', ProgressLine(0.5, 1, "é")),
        ('{"progress": 1, "total": null}', ProgressLine(1, None, "")),
        ('{"log": "began"}', LogLine("began", "info", "")),
        ('{"log": null, "level": "debug", "logger": "db"}', LogLine(None, "debug", "db")),
        ('{"log": {"rows": [1]}}', LogLine({"rows": [1]}, "info", "")),
        (r'{"log": "half \ud800 é"}', LogLine("half ? é", "info", "")),
        (r'{"log": {"\udfff": ["\ud83d\ude00"]}}', LogLine({"?": ["😀"]}, "info", "")),
        ('{"ask": "roots"}', AskLine("", "roots", {})),
        ('{"ask": "elicit", "id": 7, "params": {"a": 1}}', AskLine(7, "elicit", {"a": 1})),
    ],
)
def test_each_kind_of_line_is_read(line: str, read: ChannelLine) -> None:
    assert read_channel_line(line.encode()) == read


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("hello", None),
        ("[1]", "isn't a JSON object"),
        ("{}", "none of the keys progress, log, ask"),
        ('{"progress": 1, "totals": 2}', "'totals' is not a key"),
        ('{"progress": 1, "log": "x"}', "'log' is not a key"),
        ('{"progress": "1"}', "progress must be a number"),
        ('{"progress": true}', "progress must be a number"),
        ('{"progress": NaN}', "NaN"),
        ('{"progress": 1e400}', None),
        ('{"progress": 1e300}', "progress must be a number"),
        ('{"progress": 1, "message": 2}', "message must be text"),
        ('{"log": "x", "level": "loud"}', "level must be one of debug"),
        ('{"log": "x", "level": ["info"]}', "level must be one of debug"),
        ('{"ask": "money"}', "ask must be one of elicit"),
        ('{"ask": ["roots"]}', "ask must be one of elicit"),
        ('{"ask": "roots", "id": 1.5}', "id must be"),
        ('{"ask": "roots", "id": true}', "id must be"),
        ('{"ask": "roots", "id": "%s"}' % ("x" * 101), "id must be"),
        ('{"ask": "roots", "params": []}', "params must be a JSON object"),
        ("[" * 5000, None),
    ],
)
def test_what_is_not_a_line_is_refused_with_the_reason(line: str, why: str | None) -> None:
    with pytest.raises(ValueError, match=why):
        read_channel_line(line.encode())


@given(st.binary(max_size=200))
def test_no_bytes_are_more_than_refused(line: bytes) -> None:
    with suppress(ValueError):
        read_channel_line(line)


@given(st.lists(st.binary(max_size=40), max_size=12), st.integers(1, 5))
def test_lines_are_the_same_however_they_arrive(chunks: list[bytes], count: int) -> None:
    lines, taken = Lines(), []
    for chunk in chunks:
        lines.add(chunk)
        while lines.has_line:
            taken += lines.take(count)
    *whole, _ = b"".join(chunks).split(b"\n")
    assert taken == [line for line in whole if line.strip()]


def test_a_line_without_end_takes_no_memory_and_the_next_one_counts() -> None:
    lines = Lines()
    for _ in range(100):
        lines.add(b"x" * MAX_LINE_BYTES)
        assert lines.take(10) == []
    lines.add(b'x\n{"log": 1}\n')
    assert lines.take(10) == [None, b'{"log": 1}']
    lines.add(b"y" * MAX_LINE_BYTES + b"\nz\n")
    assert lines.take(10) == [b"y" * MAX_LINE_BYTES, b"z"]
    lines.add(b"y" * MAX_LINE_BYTES + b"y\nz\n")
    assert lines.take(10) == [None, b"z"]


def test_an_answer_is_one_line() -> None:
    assert write_answer(3, result={"a": "b\nc"}) == b'{"id":3,"result":{"a":"b\\nc"}}\n'
    assert json.loads(write_answer("q", error="no")) == {"id": "q", "error": "no"}
    with pytest.raises((TypeError, ValueError)):
        write_answer(3, result={"a": math.nan})
    with pytest.raises((TypeError, ValueError)):
        write_answer(3, result={"a": object()})
