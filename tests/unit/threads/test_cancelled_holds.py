"""A try that is cancelled while its hold is synced: the model isn't asked, nothing is charged."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from ryecore import Agent
from ryecore.llm import Price, Usage
from ryecore.policy.budget import NOTHING, Amount
from ryecore.testing import call, say
from tests.disk import replace_syncs
from tests.scripted_host import ScriptedHost

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


class HeldSync:
    """Holds up the sync of the registry's log that a hold waits for, once a transcript says so."""

    def __init__(self, host: ScriptedHost, said: str = '"model_call"') -> None:
        self._said = said
        self.began, self.may_end = threading.Event(), threading.Event()
        self._threads = host.workspace.path("state/threads")
        self._sync: Callable[[int], None] = os.fdatasync

    def __call__(self, descriptor: int) -> None:
        if Path(os.readlink(f"/proc/self/fd/{descriptor}")).name == "threads.db-wal":
            transcripts = self._threads.rglob("transcript.jsonl")
            if any(self._said in one.read_text() for one in transcripts):
                self.began.set()
                assert self.may_end.wait(30)
        self._sync(descriptor)


async def cancelled_by_scope(run: Callable[[], Any], sync: HeldSync) -> None:
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await anyio.to_thread.run_sync(sync.began.wait, 30)
            scope.cancel()
            sync.may_end.set()
    assert scope.cancelled_caught


async def cancelled_by_task(run: Callable[[], Any], sync: HeldSync) -> None:
    import asyncio

    task = asyncio.create_task(run())
    await anyio.to_thread.run_sync(sync.began.wait, 30)
    task.cancel()
    await anyio.wait_all_tasks_blocked()
    sync.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("cancel", [cancelled_by_scope, cancelled_by_task])
async def test_a_hold_that_is_cancelled_while_it_is_synced_is_given_back(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    anyio_backend_name: str,
    cancel: Callable[[Callable[[], Any], HeldSync], Any],
) -> None:
    if cancel is cancelled_by_task and anyio_backend_name == "trio":
        pytest.skip("only asyncio cancels a task by itself")
    host = ScriptedHost(tmp_path, say("never said"))
    ref = host.write("acme/x")
    sync = HeldSync(host)
    replace_syncs(monkeypatch, sync)
    async with host.open(durability="machine") as rye:

        async def run() -> None:
            await rye.execute(ref, thread="fork")

        await cancel(run, sync)
    assert host.model.requests == []
    store = host.store()
    (row,) = await store.registry.list_threads()
    account = await store.ledger.account(row.thread_id)
    store.close()
    assert row.status == "cancelled"
    assert (account.own, account.held) == (NOTHING, NOTHING)
    (end,) = host.records(row.thread_id, "model_call_end")
    assert (end.payload["outcome"], end.payload["mark"]) == ("cancelled", "freed")


async def test_the_hold_of_a_called_agent_is_given_back_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = Agent(name="helper", provider="scripted", model="m")
    host = ScriptedHost(
        tmp_path,
        call("helper", {"task": "Find it."}, usage=Usage(100, 10)),
        say("never said"),
        tools=[helper.as_tool()],
        price_of=lambda *_: Price("1", "1"),
    )
    ref = host.write("acme/x")
    sync = HeldSync(host, '"provider":"agent"')
    replace_syncs(monkeypatch, sync)
    async with host.open(durability="machine") as rye:

        async def run() -> None:
            await rye.execute(ref, thread="fork")

        await cancelled_by_scope(run, sync)
    assert len(host.model.requests) == 1
    store = host.store()
    (row,) = await store.registry.list_threads()
    account = await store.ledger.account(row.thread_id)
    store.close()
    assert (account.own, account.held) == (Amount(11_000, 110), NOTHING)
    (_, end) = host.records(row.thread_id, "model_call_end")
    assert (end.payload["outcome"], end.payload["mark"]) == ("refused", "freed")
