"""Runs of tools in this process: each row is ended, whatever becomes of who began it."""

import anyio
import pytest

from ryecore import CallContext
from ryecore.actions.thread_access import tool_runs_of
from ryecore.errors import RyeClosed
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


async def test_a_run_that_begins_as_its_rye_is_closed_is_cancelled(workspace: Workspace) -> None:
    ref, begun = workspace.shell("a/t", "sleep 100"), list[str]()
    async with workspace.open() as rye, anyio.create_task_group() as group:

        def close(thread_id: str) -> None:
            begun.append(thread_id)
            group.start_soon(rye.aclose)

        with pytest.raises(RyeClosed):
            await tool_runs_of(rye.threads).run(ref, {}, CallContext(), close)
    async with workspace.open() as rye:
        assert (await rye.threads.show(begun[0])).status == "cancelled"
