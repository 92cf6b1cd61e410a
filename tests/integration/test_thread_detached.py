"""Directives' threads in processes of their own, started by a host and by other threads."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from ryecore.actions.payload import Payload
from ryecore.actions.settings import Settings
from ryecore.items.refs import ItemRef
from ryecore.items.spaces import built_in_space
from ryecore.policy import CallContext
from ryecore.runs.request import RunRequest
from ryecore.threads.result import StartedThread
from tests.integration.test_thread_stopping import (
    PATIENCE_S,
    host,
    root_of,
    settled,
    waiting_parent,
)
from tests.thread_host import COST, FACTORY, PlannedWorkspace
from tests.unit.lillux.system import wait_until_dead
from tests.warm_hosts import is_alive
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_walkers")]

PARENT = "RYE_PARENT_THREAD_ID"


@pytest.fixture
def planned(workspace: Workspace) -> PlannedWorkspace:
    return PlannedWorkspace(workspace)


async def test_a_host_starts_a_thread_that_outlives_it(planned: PlannedWorkspace) -> None:
    ref = planned.write("late", ["gate", {"name": "late"}], ["mark", {"text": "late"}])
    with anyio.fail_after(PATIENCE_S):
        async with planned.open() as rye:
            started = await rye.execute(ref, thread="fork", async_=True)
            assert isinstance(started, StartedThread)
            await planned.begun("late")
        assert started.pid != os.getpid()
        assert is_alive(started.pid)
        planned.allow("late")
        async with planned.open() as rye:
            report = await rye.threads.wait(started.thread_id)
    assert report.status == "completed"
    assert report.result["thread_id"] == started.thread_id  # type: ignore[index]
    wait_until_dead(started.pid)
    assert (planned.root / "marks").read_text() == "late\n"
    assert settled(planned) == {"late": "completed"}


@pytest.mark.fresh_processes
async def test_a_child_knows_its_parent_and_its_tools_do_not(planned: PlannedWorkspace) -> None:
    planned.workspace.shell("acme/env", f'echo "parent: ${{{PARENT}-none}}" > ../seen')
    env = ["rye_execute", {"item_id": "tool:acme/env"}]
    child = planned.write("child", env, ["gate", {"name": "child"}], limits='spend="0.5"')
    fork = {"item_id": child, "thread": "fork", "async": True}
    ref = planned.write("parent", ["rye_execute", fork])
    with anyio.fail_after(PATIENCE_S):
        async with planned.open() as rye:
            thread = await rye.start(ref)
            await planned.begun("child")
            (row,) = await thread.children()
            environ = Path(f"/proc/{row.pid}/environ").read_bytes().split(b"\0")
            assert f"{PARENT}={thread.thread_id}".encode() in environ
            assert row.pid != os.getpid()
            planned.allow("child")
            result = await thread.result()  # the parent has waited for its child
    assert (planned.root / "seen").read_text() == "parent: none\n"
    assert result.ended == "completed"
    assert settled(planned) == {"parent": "completed", "child": "completed"}
    assert result.total.spend_microcents == 5 * COST


async def test_a_parent_waits_for_a_child_no_longer_than_it_may(planned: PlannedWorkspace) -> None:
    child = planned.write("child", ["gate", {"name": "child"}])
    fork = {"item_id": child, "thread": "fork", "async": True}
    ref = planned.write("parent", ["rye_execute", fork], limits='duration_seconds="3"')
    with anyio.fail_after(PATIENCE_S):
        async with planned.open() as rye:
            assert (await rye.execute(ref, thread="fork")).ended == "completed"
    assert settled(planned)["child"] in ("cancelled", "error")


@pytest.mark.parametrize("is_seen", [True, False])
async def test_a_parents_death_stops_its_child_and_loses_no_money(
    planned: PlannedWorkspace, is_seen: bool
) -> None:
    ref = waiting_parent(planned, **{"async": True})
    with host(planned, ref) as running, anyio.fail_after(PATIENCE_S):
        await planned.begun("child")
        store = planned.store()
        (root,) = [one for one in await store.registry.list_active() if one.parent_id is None]
        (child,) = await store.registry.list_children(root.thread_id)
        assert child.pid
        running.send_signal(signal.SIGKILL)
        await anyio.to_thread.run_sync(running.wait)
        assert is_alive(child.pid)
        if not is_seen:
            planned.allow("child")  # it ends by itself, and nobody has looked yet
            wait_until_dead(child.pid)
        ended = await store.wait(root.thread_id)
        assert ended.status == "error"
        await store.wait(child.thread_id)
        wait_until_dead(child.pid)
        account = await store.ledger.account(root.thread_id)
        spent = (await store.ledger.account(child.thread_id)).own.spend_microcents
        assert spent == (COST if is_seen else 2 * COST)
        assert account.children.spend_microcents == spent
        store.close()
    assert settled(planned) == {"parent": "error", "child": "cancelled" if is_seen else "completed"}


def payload(
    planned: PlannedWorkspace, thread_id: str, ref: str, token: str, parent: str | None
) -> bytes:
    workspace = planned.workspace
    settings = Settings(
        project_path=str(workspace.project),
        user_space=str(workspace.user),
        system_spaces=(built_in_space(),),
        inherit_env=(),
        trusted_keys=(),
        trust_project_interpreters=False,
        config={},
        cache_dir=str(planned.root / "cache"),
        durability="process",
        deps_factory=FACTORY,
    )
    ctx = CallContext(budget_account=parent, call_id="call")
    return Payload(settings, thread_id, RunRequest(ItemRef.parse(ref)), ctx, token).to_bytes()


def detached(planned: PlannedWorkspace, document: bytes, **environ: str) -> None:
    subprocess.run(
        [sys.executable, "-P", "-m", "ryecore.thread_worker"],
        input=document,
        env=_joined(planned.environ, environ),
        check=False,
        timeout=PATIENCE_S,
        capture_output=True,
    )


def _joined(one: Mapping[str, str], other: Mapping[str, str]) -> dict[str, str]:
    return {**one, **other}


async def test_a_stranger_is_nobodys_child(planned: PlannedWorkspace) -> None:
    victim = planned.write("victim", ["gate", {"name": "victim"}])
    ref = planned.write("thief", ["mark", {"text": "stolen"}])
    with host(planned, victim) as running, anyio.fail_after(PATIENCE_S):
        await planned.begun("victim")
        async with planned.open() as rye:
            root = await root_of(rye)
        store = planned.store()
        registry = store.registry

        # With a token that it has guessed, and with the victim's name in its environment.
        await registry.register("child-1", ref, root)
        await registry.mint_token("child-1")
        detached(planned, payload(planned, "child-1", ref, "guessed", root), **{PARENT: root})
        assert (await registry.get_thread("child-1")).status == "created"

        # With a token of its own, for the budget of another one.
        await registry.register("own", ref)
        token = await registry.mint_token("own")
        detached(planned, payload(planned, "own", ref, token, root), **{PARENT: root})
        assert (await registry.get_thread("own")).status == "error"
        assert "not registered as a child" in str(await registry.get_result("own"))

        # With a token that was used already.
        await registry.register("child-2", ref, root)
        token = await registry.mint_token("child-2")
        await registry.claim("child-2", token=token)
        detached(planned, payload(planned, "child-2", ref, token, root), **{PARENT: root})
        assert (await registry.get_thread("child-2")).fence == 1

        assert (await store.ledger.account(root)).children.spend_microcents == 0
        assert not (planned.root / "marks").exists()
        store.close()
        running.kill()
