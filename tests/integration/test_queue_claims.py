"""A worker claims a run of its queue as it begins it, which another may have done meanwhile."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path

import anyio
import pytest

from ryecore import Rye
from ryecore.actions.targets.queue_runs import queue_of
from ryecore.actions.targets.run_log import LOG
from ryecore.errors import StateUnreachable
from ryecore.lillux.processes import ProcessId
from ryecore.runs.queued_run import TakenRun
from ryecore.state.postgres import pool
from ryecore.state.store import ThreadStore
from tests.postgres import losing_answers, needs_dbos, needs_server
from tests.queue_workers import write_remotes
from tests.thread_host import PlannedWorkspace

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")
pytestmark = [pytest.mark.anyio, needs_server, needs_dbos]

ELSEWHERE = ProcessId("elsewhere", 1, 4242, 1)


class Lines(logging.Handler):
    """The lines that a worker logs of its runs, each of which can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.changed = anyio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self.changed.set()

    async def find(self, part: str) -> None:
        """Wait for a line with a text."""
        with anyio.fail_after(20):
            while not any(part in line for line in self.lines):
                self.changed = anyio.Event()
                await self.changed.wait()


@asynccontextmanager
async def taken_run(
    planned: PlannedWorkspace, state: str
) -> AsyncGenerator[tuple[Rye, ThreadStore, TakenRun, Lines]]:
    """A run that a worker has taken and not begun yet."""
    log, lines = logging.getLogger(LOG), Lines()
    level = log.level
    log.addHandler(lines)
    log.setLevel(logging.INFO)
    spaces = (planned.workspace.path(""), planned.workspace.path("", "user"))
    try:
        async with planned.open(state=state) as rye:
            with closing(ThreadStore.open(*spaces, state=state)) as store:
                ref = "directive:acme/short"
                run = await rye.start(ref, target="remote:queue", idempotency_key="once")
                taken = await TakenRun.find(queue_of(store.queue), run.thread_id)
                assert taken is not None
                yield rye, store, taken, lines
    finally:
        log.setLevel(level)
        log.removeHandler(lines)


@pytest.mark.parametrize("can_begin", [True, False])
async def test_a_run_that_another_worker_has_begun_is_left_to_it(
    planned: PlannedWorkspace, state: str, can_begin: bool
) -> None:
    async with taken_run(planned, state) as (rye, store, taken, lines):
        run_id = taken.record.thread_id
        await store.registry.claim(run_id, ELSEWHERE)
        if not can_begin:
            path = planned.workspace.project / ".ai/directives/acme/short.md"
            path.write_text(path.read_text().replace("short", "other"))
        async with anyio.create_task_group() as group:
            group.start_soon(rye.cluster.carry_out, run_id, taken)
            await lines.find("was begun elsewhere" if can_begin else ": integrity,")
            found = await store.registry.get_thread(run_id)
            assert (found.status, found.fence, found.owner) == ("running", 1, ELSEWHERE)
            again = await rye.start(
                "directive:acme/short", target="remote:queue", idempotency_key="once"
            )
            assert again.thread_id == run_id  # its key is not free
            group.cancel_scope.cancel()
        await store.settle(run_id, "error", {"status": "error"}, 1)  # for the end of the test


async def test_a_run_that_cannot_begin_here_ends_and_says_why(
    planned: PlannedWorkspace, state: str
) -> None:
    async with taken_run(planned, state) as (rye, store, taken, _):
        path = planned.workspace.project / ".ai/directives/acme/short.md"
        path.write_text(path.read_text().replace("short", "other"))
        await rye.cluster.carry_out(taken.record.thread_id, taken)
        run_id = taken.record.thread_id
        assert (await store.look(run_id)).status == "error"
        result = await store.registry.get_result(run_id)
        assert isinstance(result, dict)
        assert "was changed" in result["error"]


async def test_a_run_that_was_asked_to_stop_after_it_was_taken_stops(
    planned: PlannedWorkspace, state: str
) -> None:
    async with taken_run(planned, state) as (rye, store, taken, _):
        run_id = taken.record.thread_id
        await store.registry.request_cancel(run_id)  # as a parent does with those below it
        await rye.cluster.carry_out(run_id, taken)
        assert (await store.look(run_id)).status == "cancelled"
        assert not (planned.root / "marks").exists()


async def test_a_caller_whose_answer_was_lost_is_told_which_run_may_be_in_the_queue(
    planned: PlannedWorkspace,
    state: str,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "_MAX_OUTAGE_S", 0.1)
    folder = state.partition("host=")[2].partition("&")[0]
    between = tmp_path_factory.mktemp("between") / "server"
    failed: list[StateUnreachable] = []
    with losing_answers(Path(folder), between) as lose:
        through = state.replace(folder, str(between))
        write_remotes(planned.workspace, through)
        async with planned.open(state=through) as rye:
            start = partial(rye.start, "directive:acme/short", target="remote:queue")
            await start()
            with psycopg.connect(state.partition("&schema=")[0]) as other:
                name = state.rpartition("=")[2]
                other.execute(f"LOCK TABLE {name}.requests IN EXCLUSIVE MODE".encode())
                async with anyio.create_task_group() as group:

                    async def fail() -> None:
                        with pytest.raises(StateUnreachable) as caught:
                            await start()
                        failed.append(caught.value)

                    group.start_soon(fail)
                    waits = "SELECT 1 FROM pg_locks WHERE NOT granted"
                    with anyio.fail_after(10):
                        while other.execute(waits).fetchone() is None:
                            await anyio.sleep(0.01)
                    lose(True)
                    other.rollback()
            lose(False)
    (error,) = failed
    run_id = str(error.facts["thread_id"])
    assert f"rye threads show {run_id}" in error.next_step
    async with planned.open(state=state) as rye:
        assert run_id in [one.thread_id for one in await rye.threads.list()]
