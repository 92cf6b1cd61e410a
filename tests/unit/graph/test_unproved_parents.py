"""A name in the environment makes no run the child of a thread."""

import os
import subprocess
import sys
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from ryecore import CallContext
from ryecore.errors import RyeError, StateError
from ryecore.runs.bounds import PARENT_ID
from tests.unit.graph.asking import Asking, gives

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_walkers")]


async def test_no_graph_believes_a_parent_by_its_name_alone(tmp_path: Path) -> None:
    host = Asking(tmp_path)
    ref = host.graph({"done": gives("ran")})
    thread = host.write("acme/x")
    async with host.open() as rye:
        boss = await rye.graphs.run(ref)
    host.workspace.environ[PARENT_ID] = boss.run_id
    async with host.open() as rye:
        starts = {
            "in this process": lambda: rye.graphs.run(ref),
            "one step": lambda: rye.graphs.step(ref, "done"),
            "detached": lambda: rye.execute(ref, async_=True),
            "in a process of its own": lambda: rye.execute(ref),
            "a detached tool": lambda: rye.execute(
                "tool:rye/bash", {"command": "true"}, async_=True
            ),
            "a detached thread": lambda: rye.execute(thread, thread="fork", async_=True),
        }
        for start in starts.values():
            with pytest.raises(RyeError, match=PARENT_ID) as refused:
                await start()
            assert PARENT_ID in refused.value.next_step
        with pytest.raises(StateError):  # nor one that isn't there
            await rye.graphs.run(ref, ctx=CallContext(budget_account="acme/boss/boss-1"))
    claimed = await anyio.to_thread.run_sync(
        lambda: subprocess.run(
            [sys.executable, "-m", "ryecore.cli", "execute", ref],
            cwd=host.workspace.project,
            env={**host.workspace.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=False,
        )
    )
    assert claimed.returncode != 0
    assert "Traceback" not in claimed.stderr
    assert PARENT_ID in claimed.stderr
    store = host.store()
    assert await store.registry.list_children(boss.run_id) == ()
    assert [one.thread_id for one in await store.registry.list_threads()] == [boss.run_id]
