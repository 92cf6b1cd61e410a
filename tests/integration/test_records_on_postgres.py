"""Transcripts on a PostgreSQL server: written on one machine, read and continued on another."""

import re
import shutil
import subprocess
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest

from ryecore.errors import (
    BudgetError,
    StateError,
    StateLocked,
    StateUnreachable,
    ThreadConflict,
)
from ryecore.items.signature import utc_now
from ryecore.policy.budget import Amount, Settlement
from ryecore.state.model import Cost
from ryecore.state.store import ThreadStore
from ryecore.state.thread_file import ThreadFile
from tests.postgres import losing_answers, needs_server
from tests.thread_host import PlannedWorkspace
from tests.workspace import Workspace

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")
pytestmark = [pytest.mark.anyio, needs_server]

HELD = Amount(10, 10)
HOST = """
import sys, anyio
from pathlib import Path
from ryecore import Rye
from tests.thread_host import _deps
root = Path(sys.argv[1])
async def main():
    async with Rye.open(root / 'project', user_space=root / 'user', **_deps(root)) as rye:
        try:
            done = await rye.execute('directive:acme/work', thread='fork')
            print(done.status, done.error)
        except Exception as error:
            print(type(error).__name__, error)
anyio.run(main)
"""


@pytest.fixture
def planned(workspace: Workspace, state: str) -> PlannedWorkspace:
    """A workspace whose processes keep their state on the server."""
    workspace.environ["RYE_STATE"] = state
    planned = PlannedWorkspace(workspace)
    planned.write("work", ["mark", {"text": "once"}], ["gate", {"name": "work"}])
    return planned


def elsewhere(planned: PlannedWorkspace) -> PlannedWorkspace:
    """The same project and user space on another machine, without any state but the keys."""
    root = planned.root / "elsewhere"
    for name in ("project", "user"):
        shutil.copytree(
            planned.root / name, root / name, ignore=shutil.ignore_patterns("threads", "objects")
        )
    there = Workspace(root, is_new=False)
    there.environ["RYE_STATE"] = planned.workspace.environ["RYE_STATE"]
    return PlannedWorkspace(there)


def left(planned: PlannedWorkspace) -> set[str]:
    """The names of the files in a machine's state of threads."""
    return {
        one.name for one in (planned.workspace.project / ".ai/state").rglob("*") if one.is_file()
    }


async def test_a_thread_is_read_proved_and_continued_on_another_machine(
    planned: PlannedWorkspace,
) -> None:
    planned.allow("work")
    async with planned.open() as here:
        done = await here.execute("directive:acme/work", thread="fork")
    there = elsewhere(planned)
    thread_id = done.to_dict()["thread_id"]
    async with there.open() as rye:
        thread = await rye.threads.thread(thread_id)
        told = [event async for event in thread.events()]
        assert [one.type for one in told][:1] == ["thread_started"]
        assert [one.type for one in told][-2:] == ["thread_completed", "checkpoint"]
        report = await rye.threads.verify(thread_id)
        assert (report.ok, report.unattested_records) == (True, 0)
        assert (await rye.threads.replay(thread_id)).ok
        resumed = await rye.threads.resume(thread_id, "Go on.")
        assert resumed.status == "success"
        there.allow("work")
        forked = await rye.threads.fork(thread_id, at=1, message="Another way.")
        assert forked.status == "success"
    async with planned.open() as here:  # and back
        for one in await here.threads.list(all=True):
            assert (await here.threads.verify(one.thread_id)).ok
    for machine in (planned, there):
        assert not {"transcript.jsonl", "thread.json", "threads.db"} & left(machine)


async def test_a_stale_owner_adds_nothing_to_a_thread_that_was_taken_over(
    planned: PlannedWorkspace, other: Any
) -> None:
    host = planned.fork(HOST, str(planned.root), stdout=subprocess.PIPE)
    with anyio.fail_after(60):
        await planned.begun("work")
    # As a machine is seen that nobody hears of any more, from all others.
    other.execute("UPDATE threads SET boot_id = 'elsewhere', lease_until = 0")
    there = elsewhere(planned)
    async with there.open() as rye:
        [found] = await rye.threads.list(all=True)
        assert found.status == "error"
        there.allow("work")
        assert (await rye.threads.resume(found.thread_id)).success
        before = await rye.threads.verify(found.thread_id)
        assert before.ok
        planned.allow("work")  # now the stale owner goes on
        printed, _ = host.communicate()
        assert printed.decode().startswith("ThreadConflict"), printed
        assert await rye.threads.verify(found.thread_id) == before
    assert (planned.root / "marks").read_text() == "once\n"


def store_of(workspace: Workspace, state: str) -> ThreadStore:
    """The threads of a workspace, as one process sees them."""
    return ThreadStore.open(workspace.path(""), workspace.path("", "user"), state=state)


async def test_a_log_is_resumed_only_once_its_thread_has_lost_its_owner(
    workspace: Workspace, state: str, other: Any
) -> None:
    first, second = store_of(workspace, state), store_of(workspace, state)
    await first.registry.register("a", "directive:acme/x")
    fence = await first.registry.claim("a")
    log = await first.records.create("a")
    log.append("thread_started", {})
    head = await log.checkpoint(0)
    with pytest.raises(StateLocked, match="is written by the process"):
        await second.records.resume("a")
    other.execute("UPDATE threads SET boot_id = 'elsewhere', lease_until = 0")
    again, found = await second.records.resume("a", (head.offset, head.digest))
    assert (found.head, found.tail_records) == (head, 0)
    log.append("cognition_in", {"turn": 1})
    for write in (log.flush, log.commit, lambda: log.checkpoint(1), log.close):
        with pytest.raises(ThreadConflict, match="another process has taken it over"):
            await write()
    again.append("thread_error", {"error": "x"})
    head = await again.checkpoint(1)
    # The thread's end is the end of its log, whoever still holds it.
    await second.registry.settle("a", "error", {}, fence=fence)
    again.append("late", {})
    with pytest.raises(ThreadConflict, match="has ended"):
        await again.flush()
    report = await first.records.verify("a", (head.offset, head.digest), ended=True)
    assert (report.ok, report.unattested_records) == (True, 0)
    first.close()
    second.close()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            "UPDATE records SET body = replace(body, 'sales', 'taxes')",
            "are not those that were signed",
        ),
        ("DELETE FROM records WHERE start > 0", "ends before the checkpoint"),
        ("UPDATE records SET body = 'é' || body WHERE start = 0", "isn't a record"),
        ("DELETE FROM records WHERE start = 0", "."),
    ],
)
async def test_rows_that_somebody_altered_are_found(
    workspace: Workspace, state: str, other: Any, change: str, says: str
) -> None:
    store = store_of(workspace, state)
    log = await store.records.create("a")
    for turn in range(3):
        log.append("thread_started" if turn == 0 else "cognition_in", {"text": "of sales"})
        await log.flush()
        head = await log.checkpoint(turn)
    await log.close()
    other.execute(change)
    report = await store.records.verify("a", (head.offset, head.digest), ended=True)
    assert not report.ok
    assert re.search(says, " ".join(report.problems))
    with pytest.raises(StateError, match="was altered or cut"):
        await store.records.resume("a", (head.offset, head.digest))
    store.close()


async def test_what_follows_the_last_record_is_dropped_by_a_resume(
    workspace: Workspace, state: str, other: Any
) -> None:
    store = store_of(workspace, state)
    log = await store.records.create("a")
    log.append("thread_started", {})
    head = await log.checkpoint(0)
    log.append("cognition_in", {})
    await log.close()
    end = log.offset
    other.execute("UPDATE records SET body = body || 'torn' WHERE start > 0")
    other.execute("UPDATE logs SET length = length + 4")
    again, found = await store.records.resume("a", (head.offset, head.digest))
    assert (found.is_torn, found.tail_records, again.offset) == (True, 1, end)
    head = await again.checkpoint(1)
    await again.close()
    assert (await store.records.verify("a", (head.offset, head.digest), ended=True)).ok
    store.close()


async def test_a_write_whose_answer_was_lost_is_made_once(
    workspace: Workspace, state: str, other: Any
) -> None:
    folder = re.search("host=([^&]+)", state)
    assert folder is not None
    with losing_answers(Path(folder[1]), workspace.root / "between") as lose:
        store = store_of(workspace, state.replace(folder[1], str(workspace.root / "between")))
        log = await store.records.create("a")
        for number in range(4):
            log.append("step", {"n": number})
            lose(number % 2 == 0)
            if number % 2 == 0:
                with pytest.raises(StateUnreachable):
                    await log.flush()
                log.append("step", {"n": number + 100})
            lose(False)
            await log.flush()
        await log.close()
        told = [one.payload["n"] async for one in store.records.read("a")]
        assert told == [0, 100, 1, 2, 102, 3]
        store.close()


async def test_records_beside_rows_whose_answer_was_lost_are_written_once(
    workspace: Workspace, state: str
) -> None:
    folder = re.search("host=([^&]+)", state)
    assert folder is not None
    with losing_answers(Path(folder[1]), workspace.root / "between") as lose:
        store = store_of(workspace, state.replace(folder[1], str(workspace.root / "between")))
        await store.registry.register("a", "directive:acme/a")
        await store.ledger.register("a", Amount(1000, 1000))
        await store.registry.claim("a")
        now = utc_now()
        log = await store.open_log(
            ThreadFile(
                "a", "directive:acme/a", "acme/a", "f" * 64, "running", now, now, None, {}, ()
            )
        )
        assert not await store.records.exists("a")

        async def held(number: int) -> None:
            await log.write_ahead()
            await store.ledger.hold("a", 1, number, HELD)

        for number in range(6):  # the first one makes file and log
            log.append("step", {"n": number})
            lose(number % 2 == 0)
            if number % 2 == 0:
                with pytest.raises(StateUnreachable):
                    await held(number)
                log.append("step", {"n": number + 100})
                lose(False)
            await held(number)
        assert (await store.ledger.account("a")).held == Amount(60, 60)
        assert (await store.read_file("a"))["status"] == "running"
        head = await log.sign(1)
        await log.write_ahead(closes=True)
        await store.settle("a", "completed", {}, 1, head=(head.offset, head.digest))
        told = [one.payload.get("n") async for one in store.records.read("a")]
        assert told == [0, 100, 1, 2, 102, 3, 4, 104, 5, None]
        assert (await store.records.verify("a", (head.offset, head.digest), ended=True)).ok
        store.close()


async def test_records_beside_rows_that_are_refused_are_kept_for_the_next_write(
    workspace: Workspace, state: str, other: Any
) -> None:
    store = store_of(workspace, state)
    await store.registry.register("a", "directive:acme/a")
    await store.ledger.register("a", Amount(1000, 1000))
    fence = await store.registry.claim("a")
    log = await store.records.create("a")
    log.append("step", {"n": 0})
    await log.write_ahead()
    with pytest.raises(BudgetError):  # its transaction is undone, and with it what went ahead
        await store.ledger.settle_and_hold(
            "a", [Settlement(9, 9, HELD, HELD, "counted")], 1, 1, HELD, snapshot=Cost()
        )
    assert other.execute("SELECT count(*) FROM records").fetchone() == (0,)
    await store.registry.renew("a", fence)
    assert other.execute("SELECT count(*) FROM records").fetchone() == (1,)
    other.execute("UPDATE logs SET fence = fence + 1")  # another process has resumed it
    log.append("step", {"n": 1})
    await log.write_ahead()
    with pytest.raises(ThreadConflict, match="taken it over"):
        await store.ledger.hold("a", 1, 1, HELD)
    await log.write_ahead()
    with pytest.raises(ThreadConflict, match="taken it over"):
        await store.settle("a", "completed", {}, fence)
    assert (await store.ledger.account("a")).held == Amount()
    assert (await store.registry.get_thread("a")).status == "running"
    store.close()


async def test_a_log_begins_and_is_closed_with_rows(
    workspace: Workspace, state: str, other: Any
) -> None:
    store = store_of(workspace, state)
    await store.registry.register("a", "directive:acme/a")
    await store.ledger.register("a", Amount(1000, 1000))
    fence = await store.registry.claim("a")
    now = utc_now()
    log = await store.open_log(
        ThreadFile("a", "directive:acme/a", "acme/a", "f" * 64, "running", now, now, None, {}, ())
    )
    log.append("thread_started", {})
    await log.write_ahead()
    written = "SELECT (SELECT count(*) FROM records), (SELECT count(*) FROM thread_files)"
    assert other.execute(written).fetchone() == (0, 0)
    await store.ledger.hold("a", 1, 1, HELD)
    assert other.execute(written).fetchone() == (1, 1)
    log.append("thread_completed", {})
    head = await log.sign(1)
    await log.write_ahead(closes=True)
    await store.settle("a", "completed", {}, fence, head=(head.offset, head.digest))
    writer = "SELECT pid IS NOT NULL, fence FROM logs"
    assert other.execute(writer).fetchone() == (False, 1)
    again, _ = await store.records.resume("a", (head.offset, head.digest))
    log.append("late", {})  # it isn't lost without a word
    with pytest.raises(StateError, match="is closed"):
        await log.close()
    await log.close()
    assert other.execute(writer).fetchone() == (True, 2)  # it has another writer
    assert not store._database._joining  # type: ignore[attr-defined]
    await again.close()
    assert (await store.records.verify("a", (head.offset, head.digest), ended=True)).ok
    store.close()


async def test_streamed_text_is_followed_elsewhere_before_the_turn_ends(
    workspace: Workspace, state: str
) -> None:
    writing, reading = store_of(workspace, state), store_of(workspace, state)
    log = await writing.records.create("a")
    told = ""

    async def has_ended() -> bool:
        return False

    with anyio.fail_after(20):
        async with aclosing(reading.records.follow("a", has_ended)) as records:
            log.append_delta("Once ")
            log.append_delta("upon " * 1000)  # a long piece isn't kept for the commit
            async for one in records:
                told += one.payload["text"]
                if len(told) == 5005:
                    break
    log.append_delta("a time.")
    log.append("cognition_out", {})
    head = await log.checkpoint(1)
    await log.close()
    texts = [one.payload.get("text", "") async for one in reading.records.read("a")]
    assert "".join(texts) == f"Once {'upon ' * 1000}a time."
    assert (await reading.records.verify("a", (head.offset, head.digest), ended=True)).ok
    writing.close()
    reading.close()


async def test_records_that_go_ahead_of_rows_are_not_written_before_them_for_a_second(
    workspace: Workspace, state: str, other: Any
) -> None:
    store = store_of(workspace, state)
    logs = [await store.records.create(name) for name in "ab"]
    for log in logs:
        log.append("step", {})
        await log.write_soon()
        if log is logs[0]:
            await log.write_ahead()
    with anyio.fail_after(20):
        while other.execute("SELECT count(*) FROM records").fetchone() != (2,):
            await anyio.sleep(0.01)
    written = other.execute("SELECT thread_id FROM records ORDER BY CAST(xmin AS text)::bigint")
    assert written.fetchall() == [("b",), ("a",)]
    for log in logs:
        await log.close()
    store.close()
