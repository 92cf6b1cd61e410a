"""A long transcript is read in pieces, away from the event loop, and a short one at once."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest

from ryecore.errors import StateError
from ryecore.lillux.keys import SigningKey
from ryecore.state.transcript import Transcript
from ryecore.state.transcript_check import Record, read_records
from ryecore.state.transcript_store import FileRecordStore
from ryecore.state.waiting import INLINE_BYTES
from tests.loops import loop_load

pytestmark = pytest.mark.anyio

LONG = 20_000
"""Records of a long transcript."""

MOST_S = 0.02
"""For how long reading may keep the event loop busy at a time."""


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("long") / "transcript.jsonl", LONG)


def written(path: Path, records: int) -> Path:
    with Transcript.create(path, "acme/x-1", SigningKey.generate()) as transcript:
        for number in range(records):
            transcript.append("model_call", {"turn": number, "text": "x" * 400})
    return path


def records_of(path: Path, **bounds: int) -> AsyncGenerator[Record, None]:
    """The records of the thread whose folder holds the file."""

    def folder_of(_: str) -> Path:
        return path.parent

    store = FileRecordStore(folder_of, lambda name: str(folder_of(name)), SigningKey.generate)
    return store.read("acme/x-1", **bounds)


async def read(path: Path, **bounds: int) -> tuple[list[Record], bool]:
    """The records, and whether other tasks ran meanwhile."""
    has_run = anyio.Event()

    async def run() -> None:
        has_run.set()

    records: list[Record] = []
    let_others_run = False
    async with anyio.create_task_group() as others:
        others.start_soon(run)
        records += [one async for one in records_of(path, **bounds)]
        let_others_run = has_run.is_set()
    return records, let_others_run


async def test_a_long_transcript_keeps_no_event_loop_busy(long: Path) -> None:
    found: list[Record] = []
    async with loop_load() as load:
        async for record in records_of(long):
            found.append(record)
    assert found == list(read_records(long))
    assert load.worst_s < MOST_S


async def test_a_short_transcript_is_read_at_once(long: Path, tmp_path: Path) -> None:
    records, let_others_run = await read(written(tmp_path / "transcript.jsonl", 100))
    assert (len(records), let_others_run) == (100, False)
    size = long.stat().st_size
    near_end = next(one.end for one in read_records(long) if size - one.end < INLINE_BYTES)
    end, let_others_run = await read(long, from_offset=near_end)
    assert (end[0].offset, end[-1].end, let_others_run) == (near_end, size, False)
    beginning, let_others_run = await read(long, to_offset=near_end)
    assert (len(beginning) + len(end), let_others_run) == (LONG, True)


@pytest.mark.both_loops
async def test_whoever_leaves_early_leaves_no_file_open(long: Path, tmp_path: Path) -> None:
    def is_open() -> bool:
        links = (one.resolve() for one in Path("/proc/self/fd").iterdir())
        return long in links

    async with aclosing(records_of(long)) as records:
        assert (await anext(records)).payload["turn"] == 0
        assert is_open()
    assert not is_open()
    with anyio.CancelScope() as scope:
        async with aclosing(records_of(long)) as records:
            await anext(records)
            scope.cancel()
            async for _ in records:
                pass
    assert scope.cancelled_caught
    assert not is_open()
    with pytest.raises(StateError, match="can't be read"):
        await anext(records_of(tmp_path / "transcript.jsonl"))
