"""The bus of a run: stamps, order, slow consumers, gaps that are told."""

import time
from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from ryecore.errors import InputError
from ryecore.state.events import Envelope, EventBus, EventsMissed, EventStream

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


@frozen
class Said:
    """An event of the tests."""

    word: str

    def to_dict(self) -> Mapping[str, object]:
        return {"type": "said", "word": self.word}


def spoken(count: int, capacity: int = 4096) -> EventBus[Said]:
    bus: EventBus[Said] = EventBus("run-1", capacity=capacity)
    for number in range(1, count + 1):
        bus.emit(Said(str(number)))
    return bus


async def rest(stream: EventStream[Said]) -> list[str]:
    """The words that still come, and `first-last` for what was missed."""
    return [
        f"{came.first}-{came.last}" if isinstance(came, EventsMissed) else came.event.word
        for came in [came async for came in stream]
    ]


async def test_an_event_is_stamped_with_run_time_and_number() -> None:
    bus: EventBus[Said] = EventBus("run-1", now=iter([10.25, 11.5]).__next__)
    stream = bus.subscribe()
    bus.emit(Said("a"))
    bus.emit(Said("b"))
    first, second = [await anext(stream) for _ in range(2)]
    assert first == Envelope("run-1", 10.25, 1, Said("a"))
    assert second.to_dict() == {
        "runId": "run-1",
        "timestamp": 11.5,
        "sequenceNumber": 2,
        "type": "said",
        "word": "b",
    }


async def test_the_time_is_that_of_the_emitting_not_of_the_reading() -> None:
    bus = spoken(1)
    read = time.time()
    came = await anext(bus.subscribe(from_start=True))
    assert isinstance(came, Envelope)
    assert read - 5 < came.timestamp <= read


async def test_a_consumer_that_waits_gets_each_event_when_it_happens(anyio_backend: str) -> None:
    bus = spoken(0)
    got: list[str] = []

    async def consume() -> None:
        async for came in stream:
            assert isinstance(came, Envelope)
            got.append(came.event.word)
            heard.set()

    stream = bus.subscribe()
    async with anyio.create_task_group() as group:
        group.start_soon(consume)
        for word in ("a", "b", "c"):
            heard = anyio.Event()
            await anyio.wait_all_tasks_blocked()
            bus.emit(Said(word))
            await heard.wait()
            assert got[-1] == word
        bus.close()
    assert got == ["a", "b", "c"]


async def test_a_slow_consumer_is_told_what_it_missed_and_goes_on(anyio_backend: str) -> None:
    bus = spoken(2, capacity=4)
    slow, quick = bus.subscribe(from_start=True), bus.subscribe()
    assert (await anext(slow)).to_dict()["word"] == "1"
    for number in range(3, 11):
        bus.emit(Said(str(number)))
        came = await anext(quick)
        assert isinstance(came, Envelope)
        assert came.sequence_number == number
    gap = await anext(slow)
    assert gap == EventsMissed("run-1", 2, 6)
    assert gap.to_dict() == {
        "runId": "run-1",
        "type": "events:missed",
        "first": 2,
        "last": 6,
        "count": 5,
    }
    bus.emit(Said("11"))
    bus.emit(Said("12"))
    bus.close()
    assert await rest(slow) == ["7-8", "9", "10", "11", "12"]
    assert await rest(quick) == ["11", "12"]


async def test_emitting_waits_for_nobody_and_keeps_no_more_than_the_capacity() -> None:
    bus = spoken(0, capacity=100)
    unread = [bus.subscribe() for _ in range(10)]
    for number in range(1, 10_001):
        bus.emit(Said(str(number)))
    assert bus.emitted == 10_000
    assert len(bus._ring) == 100
    bus.close()
    for stream in unread:
        assert await rest(stream) == ["1-9900", *map(str, range(9901, 10_001))]


async def test_one_who_comes_late_begins_now_or_with_what_is_kept() -> None:
    bus = spoken(5, capacity=3)
    late, from_start = bus.subscribe(), bus.subscribe(from_start=True)
    bus.emit(Said("6"))
    bus.close()
    after_the_end = bus.subscribe(from_start=True)
    assert await rest(late) == ["6"]
    assert await rest(from_start) == ["1-3", "4", "5", "6"]
    assert await rest(after_the_end) == ["1-3", "4", "5", "6"]
    assert await rest(bus.subscribe()) == []


async def test_a_hundred_consumers_get_the_same_envelopes(anyio_backend: str) -> None:
    bus = spoken(0)
    got: list[list[object]] = [[] for _ in range(100)]

    async def consume(stream: EventStream[Said], into: list[object]) -> None:
        async for came in stream:
            into.append(came)

    async with anyio.create_task_group() as group:
        for into in got:
            group.start_soon(consume, bus.subscribe(), into)
        for number in range(50):
            bus.emit(Said(str(number)))
            if number % 7 == 0:
                await anyio.wait_all_tasks_blocked()
        bus.close()
    assert [came.sequence_number for came in got[0] if isinstance(came, Envelope)] == [
        *range(1, 51)
    ]
    for other in got[1:]:
        assert all(mine is theirs for mine, theirs in zip(got[0], other, strict=True))


@pytest.mark.parametrize("read_before", range(4))
async def test_a_read_that_is_cancelled_loses_nothing(read_before: int, anyio_backend: str) -> None:
    bus = spoken(read_before)
    stream = bus.subscribe(from_start=True)
    got: list[str] = []

    async def consume() -> None:
        async for came in stream:
            assert isinstance(came, Envelope)
            got.append(came.event.word)

    async with anyio.create_task_group() as group:
        group.start_soon(consume)
        await anyio.wait_all_tasks_blocked()
        # The event and the cancel come in the same step of the loop.
        bus.emit(Said("during"))
        group.cancel_scope.cancel()
    bus.emit(Said("after"))
    bus.close()
    expected = [*map(str, range(1, read_before + 1)), "during", "after"]
    assert got + await rest(stream) == expected


async def test_consumers_that_break_off_or_fail_hold_nobody(anyio_backend: str) -> None:
    bus = spoken(0)

    async def gives_up() -> None:
        async for _ in bus.subscribe():
            return

    async def fails() -> None:
        with suppress(ZeroDivisionError):
            async for _ in bus.subscribe():
                raise ZeroDivisionError

    async def is_cancelled() -> None:
        with anyio.CancelScope() as scopes[0]:
            async for _ in bus.subscribe():
                pass

    async def stays() -> None:
        got.extend(await rest(bus.subscribe()))

    scopes = [anyio.CancelScope()]
    got: list[str] = []
    async with anyio.create_task_group() as group:
        for consumer in (gives_up, fails, is_cancelled, stays):
            group.start_soon(consumer)
        await anyio.wait_all_tasks_blocked()
        bus.emit(Said("a"))
        await anyio.wait_all_tasks_blocked()
        scopes[0].cancel()
        await anyio.wait_all_tasks_blocked()
        bus.emit(Said("b"))
        bus.close()
    assert got == ["a", "b"]


async def test_two_readers_of_one_stream_share_its_events(anyio_backend: str) -> None:
    bus = spoken(0)
    stream = bus.subscribe()
    got: list[str] = []

    async def consume() -> None:
        got.extend(await rest(stream))

    async with anyio.create_task_group() as group:
        group.start_soon(consume)
        group.start_soon(consume)
        for word in "abcdef":
            await anyio.wait_all_tasks_blocked()
            bus.emit(Said(word))
        bus.close()
    assert sorted(got) == [*"abcdef"]


async def test_a_closed_bus_says_so(anyio_backend: str) -> None:
    bus = spoken(1)
    bus.close()
    bus.close()
    assert bus.is_closed
    assert repr(bus) == "EventBus('run-1': 1 events, closed)"
    with pytest.raises(InputError, match="'run-1' is closed"):
        bus.emit(Said("too late"))
    assert bus.emitted == 1


async def test_a_bus_belongs_to_one_thread(anyio_backend: str) -> None:
    bus = spoken(1)
    with pytest.raises(InputError, match="belongs to another thread"):
        await anyio.to_thread.run_sync(bus.emit, Said("elsewhere"))
    with pytest.raises(InputError, match="belongs to another thread"):
        await anyio.to_thread.run_sync(bus.close)
    await anyio.to_thread.run_sync(anyio.from_thread.run_sync, bus.emit, Said("by the loop"))
    bus.close()
    assert await rest(bus.subscribe(from_start=True)) == ["1", "by the loop"]


async def test_the_buses_of_two_runs_know_nothing_of_each_other() -> None:
    one, other = spoken(2), spoken(3)
    one.close()
    other.emit(Said("4"))
    other.close()
    assert await rest(one.subscribe(from_start=True)) == ["1", "2"]
    assert await rest(other.subscribe(from_start=True)) == ["1", "2", "3", "4"]


def test_a_capacity_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        EventBus("run-1", capacity=0)


@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.sampled_from(["emit", "read", "join", "join late"]), st.integers(0, 3))),
)
def test_each_consumer_sees_every_number_once_in_order_or_is_told(
    capacity: int, steps: list[tuple[str, int]]
) -> None:
    bus: EventBus[Said] = EventBus("run-1", capacity=capacity)
    joined: list[tuple[EventStream[Said], int, list[tuple[int, int]]]] = []

    def read(stream: EventStream[Said], seen: list[tuple[int, int]]) -> None:
        try:
            anext(stream).__await__().__next__()
        except StopIteration as done:
            came = done.value
        if isinstance(came, EventsMissed):
            # What is said to be missed is not there any more, and what comes next is.
            assert came.count == came.last - came.first + 1
            assert came.last == bus.emitted - capacity
            seen.append((came.first, came.last))
        else:
            assert came.event.word == str(came.sequence_number)
            seen.append((came.sequence_number, came.sequence_number))

    for step, which in steps:
        if step == "emit":
            bus.emit(Said(str(bus.emitted + 1)))
        elif step == "join":
            joined.append((bus.subscribe(), bus.emitted, []))
        elif step == "join late":
            joined.append((bus.subscribe(from_start=True), 0, []))
        elif which < len(joined):
            stream, began, seen = joined[which]
            if (seen[-1][1] if seen else began) < bus.emitted:
                read(stream, seen)
    for stream, began, seen in joined:
        while (seen[-1][1] if seen else began) < bus.emitted:
            read(stream, seen)
        spans = [(began, began), *seen]
        assert all(after[0] == before[1] + 1 for before, after in pairwise(spans))
        assert spans[-1][1] == bus.emitted
