"""A worker claims a run of its queue as it begins it, which another may have done meanwhile."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing

import anyio
import pytest

from ryecore import Rye
from ryecore.actions.targets.queue_runs import queue_of
from ryecore.actions.targets.run_log import LOG
from ryecore.lillux.processes import ProcessId
from ryecore.runs.queued_run import TakenRun
from ryecore.state.store import ThreadStore
from tests.postgres import needs_dbos, needs_server
from tests.thread_host import PlannedWorkspace

pytest.importorskip("psycopg", reason="needs the extra postgres")
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
