"""What a run tells those who listen: late, live, too slowly; and those who wait for it."""

from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest

from ryecore import SigningKey
from ryecore.agent.outcome import NodeOutcome
from ryecore.graph.projection import RUN_RECORD_TYPES
from ryecore.graph.schedule import Position
from ryecore.state.events import RunEvent
from ryecore.state.model import Durability
from ryecore.state.transcript_check import read_records
from tests.unit.graph.small_run import RUN, SyncJournal, create_journal, live

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]
KEY = SigningKey.generate()


def begin(folder: Path, durability: Durability = "process") -> SyncJournal:
    journal = create_journal(folder, folder / "objects", RUN, KEY, durability)
    journal.tell("run_started", {"inputs": {}})
    return journal


def written(folder: Path) -> list[tuple[str, Mapping[str, object]]]:
    return [kind(RunEvent.of(record)) for record in read_records(folder / "transcript.jsonl")]


def kind(event: RunEvent) -> tuple[str, Mapping[str, object]]:
    assert event.run_id == RUN
    said = {key: one for key, one in event.payload.items() if not key.startswith(("_", "prev"))}
    return event.type, said


async def heard(journal: SyncJournal) -> list[tuple[str, Mapping[str, object]]]:
    return [kind(event) async for event in journal.events()]


async def test_readers_hear_all_from_the_start_whenever_they_come(tmp_path: Path) -> None:
    journal = begin(tmp_path)
    results = []
    began = anyio.Event()

    async def listen() -> None:
        events = []
        async for event in journal.events():
            began.set()
            events.append(kind(event))
        results.append(events)

    async with anyio.create_task_group() as group:
        group.start_soon(listen)
        await began.wait()
        for step in range(1, 4):
            journal.tell("node_started", {"node": "load", "step": step})
            journal.append(
                "node_completed",
                {"node": "load", **journal.outcome_of(NodeOutcome("completed", step))},
            )
            journal.checkpoint(Position("load", step, {}))
            if step == 2:
                group.start_soon(listen)
                await anyio.lowlevel.checkpoint()
        journal.close()
    assert results == [written(tmp_path)] * 2
    assert len(results[0]) == 1 + 3 * 4
    assert {one for one, _ in results[0]} <= set(RUN_RECORD_TYPES)


@pytest.mark.parametrize("durability", ["process", "machine"])
async def test_who_comes_after_the_end_reads_what_was_written(
    tmp_path: Path, durability: Durability
) -> None:
    journal = begin(tmp_path, durability)
    journal.checkpoint(Position("load", 1, {}))
    journal.close()
    journal.close()
    assert await heard(journal) == written(tmp_path)


async def test_a_reader_chooses_the_past_or_what_comes(tmp_path: Path) -> None:
    journal = begin(tmp_path)
    past = [kind(event) async for event in journal.events(follow=False)]
    assert past == written(tmp_path)
    assert [event async for event in journal.events(from_start=False, follow=False)] == []
    coming = journal.events(from_start=False)
    async with anyio.create_task_group() as group:

        async def listen() -> None:
            assert [kind(event) async for event in coming] == written(tmp_path)[1:]

        group.start_soon(listen)
        await anyio.wait_all_tasks_blocked()
        journal.checkpoint(Position("load", 1, {}))
        journal.close()


async def test_a_slow_reader_misses_nothing(tmp_path: Path) -> None:
    """More happens than is kept for it, while it is at the first event; and at the second again."""
    journal = begin(tmp_path)
    events: list[tuple[str, Mapping[str, object]]] = []
    async for event in journal.events():
        events.append(kind(event))
        if len(events) in (2, 5000):
            for number in range(5000):
                journal.append("item_completed", {"node": "each", "index": number})
            journal.checkpoint(Position("load", 1, {}))
        elif len(events) == 1:
            journal.append("node_started", {"node": "each"})
        if len(events) == 10_000:
            journal.close()
    assert events == written(tmp_path)
    assert len(events) == 2 + 2 * 5002


async def test_who_waits_for_it_is_told_steps_and_no_values(tmp_path: Path) -> None:
    told: list[Mapping[str, object]] = []
    journal = create_journal(tmp_path, tmp_path / "objects", RUN, KEY, "process", sink=told.append)
    journal.tell("run_started", {"inputs": {"key": "secret"}})
    journal.checkpoint(Position("load", 1, {"key": "secret"}))
    journal.tell("node_started", {"node": "load", "params": {"key": "secret"}})
    journal.close()
    assert told == [
        {"step": "run_started", "item_id": RUN, "turn": 0},
        {"step": "node_started", "item_id": "load", "turn": 1},
    ]


async def test_an_event_is_shown_as_its_line(tmp_path: Path) -> None:
    live(tmp_path, KEY)
    for record in read_records(tmp_path / "transcript.jsonl"):
        event = RunEvent.of(record)
        assert event.to_dict() == {
            "timestamp": record.timestamp,
            "thread_id": RUN,
            "event_type": record.type,
            "payload": dict(record.payload),
        }
