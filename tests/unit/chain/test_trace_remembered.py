"""What was read is remembered as long as it stands as it was read."""

import pytest

from ryecore.chain.trace import Remembered, Trace
from ryecore.errors import InputError
from ryecore.lillux.digests import read_digest
from ryecore.lillux.witness import Evidence


class Reader:
    """Reads a file, and counts how often."""

    def __init__(self, path):
        self.path, self.count, self.expires_at, self.may_remember = path, 0, None, True

    def __call__(self, trace: Trace, evidence: Evidence) -> str:
        self.count += 1
        trace.add("read", path=str(self.path))
        evidence.until(self.expires_at)
        if not self.may_remember:
            evidence.never_remember()
        try:
            content, digest = read_digest(str(self.path), max_bytes=1000)
        except FileNotFoundError:
            evidence.absent(str(self.path))
            return ""
        evidence.file(str(self.path), digest)
        return content.decode()


def test_it_is_read_again_when_it_has_changed_come_or_gone(tmp_path):
    path = tmp_path / "a"
    reader, remembered = Reader(path), Remembered()

    def recall():
        return remembered.recall("key", Trace(), reader)

    assert (recall(), recall(), reader.count) == ("", "", 1)
    path.write_text("one")
    assert (recall(), recall(), reader.count) == ("one", "one", 2)
    path.write_text("two")
    assert (recall(), reader.count) == ("two", 3)
    path.unlink()
    assert (recall(), recall(), reader.count) == ("", "", 4)


def test_the_trace_shows_the_same_whether_it_was_read_or_remembered(tmp_path):
    seen = []
    fresh, again = Trace(), Trace(seen.append)
    remembered, reader = Remembered(), Reader(tmp_path / "a")
    fresh.add("before")
    remembered.recall("key", fresh, reader)
    remembered.recall("key", again, reader)
    assert again.events == fresh.events[1:] == tuple(seen)


@pytest.mark.parametrize(
    ("expires_at", "count"), [("2000-01-01T00:00:00Z", 2), ("2999-01-01T00:00:00Z", 1)]
)
def test_it_holds_no_longer_than_the_key_that_vouched_for_it(tmp_path, expires_at, count):
    remembered, reader = Remembered(), Reader(tmp_path / "a")
    reader.expires_at = expires_at
    for _ in range(2):
        remembered.recall("key", Trace(), reader)
    assert reader.count == count


def test_what_no_witness_can_ask_again_is_not_remembered(tmp_path):
    remembered, reader = Remembered(), Reader(tmp_path / "a")
    reader.may_remember = False
    for _ in range(2):
        remembered.recall("key", Trace(), reader)
    assert reader.count == 2


def test_a_failure_is_not_remembered():
    remembered, tried = Remembered(), []

    def fail(trace, evidence):
        tried.append(1)
        raise InputError("No.")

    for _ in range(2):
        with pytest.raises(InputError):
            remembered.recall("key", Trace(), fail)
    assert len(tried) == 2


def test_it_keeps_a_bounded_number_of_answers():
    remembered = Remembered()
    for number in range(5000):
        remembered.recall(number, Trace(), lambda _trace, _evidence: number)  # noqa: B023
    assert len(remembered._answers) <= 4096
    assert remembered.recall(4999, Trace(), lambda _trace, _evidence: None) == 4999
