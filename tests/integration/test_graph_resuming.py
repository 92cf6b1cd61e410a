"""Runs of graphs that are gone on with: at each checkpoint, as real processes, several at once."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from attrs import evolve

from ryecore import Rye
from ryecore.errors import InputError, StateError, ThreadConflict
from ryecore.lillux.processes import current_process
from ryecore.state.model import Predecessor
from ryecore.state.store import ThreadStore
from tests.detached import PATIENCE_S, until_printed
from tests.forking import Forked
from tests.graph_crashing import (
    FLOW,
    LIMITS,
    MARK,
    NODES,
    OFTEN,
    ONCE,
    comparable,
    furnish,
    marks,
    open_rye,
)
from tests.graphs import graph
from tests.killing import check_transcript
from tests.small_disk import mount_small_disk
from tests.unit.lillux.system import wait_until_dead
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio

DONE_BY = {
    "load": ["load"],
    "each": [f"three-{index}" for index in range(3)],
    "flaky": ["flaky"],  # once: it doesn't fail a second time
    "fan": [f"six-{index}" for index in range(6)],
    "bad": ["bad"],
    "mend": ["mend"],
    "again": ["two-0", "two-1"],
    "ask": ["asked"],
}
"""What each node does again; `cached` does nothing, since its result is remembered."""


async def test_each_checkpoint_leads_to_the_same_end(tmp_path: Path) -> None:
    furnish(tmp_path)
    async with open_rye(tmp_path) as rye:
        whole = await rye.graphs.run(FLOW, limits=LIMITS)
        did = marks(tmp_path)
        assert set(did) == ONCE | set(OFTEN)
        for step in range(whole.steps):
            again = await rye.graphs.resume(whole.run_id, at=step, limits=LIMITS)
            assert comparable(again) == comparable(whole), step
            before, did = did, marks(tmp_path)
            following = list(NODES)[step:]
            wanted = [mark for node in following for mark in DONE_BY.get(node, ())]
            assert sorted((did - before).elements()) == sorted(wanted), step
        for none in (whole.steps, whole.steps + 1):
            with pytest.raises((InputError, StateError)):
                await rye.graphs.resume(whole.run_id, at=none)
        with pytest.raises(InputError, match="nothing is left to continue"):
            await rye.graphs.resume(whole.run_id)
    assert marks(tmp_path) == did


# Real processes


def paying(workspace: Workspace) -> str:
    """A graph of three marks. The second one tells who runs it, and waits while a gate is shut."""
    workspace.shell("acme/mark", f'{MARK}\necho "{{\\"got\\": $said}}"')
    workspace.shell(
        "acme/pay",
        f'{MARK}\necho "$PPID $$ end" > "$1/../pids"; '
        'test -e "$1/../open" || exec sleep 300; echo \'{"got": "paid"}\'',
    )
    nodes: dict[str, Any] = {
        name: {
            "action": {"item_id": f"tool:acme/{tool}", "params": {"n": name}},
            "assign": {name: "${result.got}"},
            "next": following,
        }
        for name, tool, following in (
            ("check", "mark", "pay"), ("pay", "pay", "tell"), ("tell", "mark", "end"),
        )
    }  # fmt: skip
    nodes["end"] = {"type": "return", "output": "${state.pay}"}
    return graph(workspace, nodes, state=dict.fromkeys(("check", "pay", "tell")))


def started(workspace: Workspace, *arguments: str) -> "subprocess.Popen[bytes]":
    return Forked(
        ["ryecore.cli", *arguments, "--project", str(workspace.project)],
        env={**os.environ, **workspace.environ, "USER_SPACE": str(workspace.user),
             "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


async def ended(process: "subprocess.Popen[bytes]") -> tuple[int, str, str]:
    out, err = await anyio.to_thread.run_sync(process.communicate)
    assert b"Traceback" not in err, err.decode()
    return process.returncode, out.decode(), err.decode()


async def pids_of(workspace: Workspace) -> tuple[int, int]:
    said = await until_printed(workspace.root / "pids", "end")
    walker, tool, _ = said.split()
    return int(walker), int(tool)


async def the_dead_run(workspace: Workspace) -> str:
    """The one run there is, which has ended with its process, whole as far as it came."""
    async with workspace.open() as rye:
        (row,) = await rye.graphs.list()
    assert row.status == "error"
    store = ThreadStore.open(workspace.path(""), workspace.path("", "user"))
    check_transcript(store, row, workspace.user)
    assert (await store.ledger.account(row.thread_id)).state == "error"
    store.close()
    return row.thread_id


async def killed_while_paying(workspace: Workspace) -> str:
    """A run whose process, the command's own, was killed in its second node."""
    ref = paying(workspace)
    with anyio.fail_after(PATIENCE_S):
        command = started(workspace, "graph", "run", ref, "--quiet")
        walker, tool = await pids_of(workspace)
        assert walker == command.pid
        command.kill()
        assert (await ended(command))[0] == -signal.SIGKILL
    wait_until_dead(tool)
    (workspace.root / "open").touch()
    return await the_dead_run(workspace)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # what runs are commands
async def test_a_command_that_is_killed_is_gone_on_with_by_another(workspace: Workspace) -> None:
    run_id = await killed_while_paying(workspace)
    code, _, err = await ended(started(workspace, "graph", "resume", run_id, "--quiet"))
    assert code == 2
    assert "'pay' interrupted" in err
    code, out, _ = await ended(
        started(workspace, "graph", "resume", run_id, "--result", '{"got": "by hand"}', "--json")
    )
    assert code == 0
    assert json.loads(out)["data"]["output"] == "by hand"
    assert marks(workspace.root) == {"check": 1, "pay": 1, "tell": 1}
    code, _, err = await ended(started(workspace, "graph", "resume", run_id, "--rerun", "--quiet"))
    assert code == 2
    assert "is being continued already" in err or "was continued already" in err
    again = started(workspace, "graph", "resume", run_id, "--rerun", "--again", "--json")
    code, out, _ = await ended(again)
    assert json.loads(out)["data"]["output"] == "paid"
    assert marks(workspace.root) == {"check": 1, "pay": 2, "tell": 2}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # what runs are commands
@pytest.mark.parametrize("who", ["walker", "host", "both"])
async def test_a_process_of_its_own_that_is_killed_is_gone_on_with(
    workspace: Workspace, who: str
) -> None:
    ref = paying(workspace)
    with anyio.fail_after(PATIENCE_S):
        host = started(workspace, "execute", ref)
        walker, tool = await pids_of(workspace)
        assert walker != host.pid
        if who != "walker":
            host.kill()
        if who != "host":
            os.kill(walker, signal.SIGKILL)
        code, _, _ = await ended(host)
    assert code == (1 if who == "walker" else -signal.SIGKILL)
    wait_until_dead(walker)
    wait_until_dead(tool)
    (workspace.root / "open").touch()
    run_id = await the_dead_run(workspace)
    async with workspace.open() as rye:
        with pytest.raises(StateError, match="'pay' interrupted"):
            await rye.graphs.resume(run_id)
        done = await rye.graphs.resume(run_id, rerun=True)
    assert (done.ended, done.output) == ("completed", "paid")
    assert marks(workspace.root) == {"check": 1, "pay": 2, "tell": 1}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # what runs are commands
async def test_of_many_that_go_on_with_a_run_at_once_one_does(workspace: Workspace) -> None:
    run_id = await killed_while_paying(workspace)
    with anyio.fail_after(PATIENCE_S):
        commands = [
            started(workspace, "graph", "resume", run_id, "--rerun", "--json", "--quiet")
            for _ in range(8)
        ]
        came = [await ended(one) for one in commands]
    won = [json.loads(out) for code, out, _ in came if code == 0]
    refused = [json.loads(out) for code, out, _ in came if code != 0]
    assert len(won) == 1, came
    winner = won[0]["data"]["graph_run_id"]
    for one in refused:
        assert one["error_type"] == "thread_conflict"
        assert winner in one["error"], one
    assert marks(workspace.root) == {"check": 1, "pay": 2, "tell": 1}
    async with workspace.open() as rye:
        assert {row.thread_id for row in await rye.graphs.list()} == {run_id, winner}


# Who goes on with what


async def failed_run(workspace: Workspace, rye: Rye) -> str:
    """A run that has failed at its first node, which goes well from now on."""
    script = f'{MARK}\ntest -e "$1/../open" || exit 3; echo 1'
    workspace.shell("acme/one", script)
    action = {"item_id": "tool:acme/one", "params": {"n": "one"}}
    ref = graph(workspace, {"one": {"action": action}})
    failed = await rye.graphs.run(ref)
    assert failed.status == "error"
    return failed.run_id


async def test_a_run_is_gone_on_with_once_and_then_its_follower_is(workspace: Workspace) -> None:
    async with workspace.open() as rye:
        first = await failed_run(workspace, rye)
        second = await rye.graphs.resume(first)
        with pytest.raises(ThreadConflict, match=second.run_id) as refused:
            await rye.graphs.resume(first)
        assert f"rye graph show {second.run_id}" in str(refused.value.next_step)
        assert marks(workspace.root) == {"one": 2}
        (workspace.root / "open").touch()
        third = await rye.graphs.resume(second.run_id)
        assert third.status == "success"
        with pytest.raises(ThreadConflict):
            await rye.graphs.resume(first)
        await rye.graphs.resume(first, at=0)
        await rye.graphs.resume(first, again=True)
    assert marks(workspace.root) == {"one": 5}


async def test_who_died_before_it_began_keeps_nobody_from_going_on(workspace: Workspace) -> None:
    nobody = evolve(current_process(), pid=2**22 - 3, start_ticks=1)
    async with workspace.open() as rye:
        first = await failed_run(workspace, rye)
        (workspace.root / "open").touch()
        store = ThreadStore.open(workspace.path(""), workspace.path("", "user"))
        follows = Predecessor(first, first, frozenset())
        idle = await store.registry.register(f"{first}-2", FLOW, owner=nobody, follows=follows)
        with pytest.raises(StateError, match="ended before it began") as refused:
            await rye.graphs.resume(idle.thread_id)
        assert str(refused.value.next_step).endswith(f"rye graph resume {first}")
        view = await rye.graphs.show(first)
        assert view.next_step.startswith(f"rye graph resume {first}")
        assert (await rye.graphs.resume(first)).status == "success"
        store.close()


# Members of a foreach


async def test_each_member_that_was_being_done_is_asked_about(workspace: Workspace) -> None:
    script = f'{MARK}\ncase "$said" in *[1-4]*) test -e "$1/../open" || exec sleep 300;; esac'
    workspace.shell("acme/one", f'{script}; echo "$said"')
    nodes = {
        "each": {
            "type": "foreach", "over": "${state.all}", "as": "one", "collect": "done",
            "action": {"item_id": "tool:acme/one", "params": {"n": "${one}"}},
            "parallel": True, "next": "end",
        },
        "end": {"type": "return", "output": "${state.done}"},
    }  # fmt: skip
    ref = graph(workspace, nodes, state={"all": [0, 1, 2, 3, 4, 5], "done": []})
    async with workspace.open() as rye:
        run = await rye.graphs.start(ref)
        over = set()
        async for event in run.events():
            if event.type == "item_completed":
                over.add(event.payload["index"])
            if over >= {0, 5}:
                break
        with anyio.fail_after(PATIENCE_S):
            while len(marks(workspace.root)) < 6:
                await anyio.sleep(0.02)
        await run.cancel()
        await run.result()
        (workspace.root / "open").touch()
        with pytest.raises(StateError, match="member 1-4 of 'each'") as refused:
            await rye.graphs.resume(run.run_id)
        assert refused.value.members == (1, 2, 3, 4)
        options = (
            "--member INDEX=JSON for each of member 1-4 that was done, and --rerun for the others"
        )
        assert options in refused.value.next_step
        shown = await rye.graphs.show(run.run_id)
        assert shown.next_step == f"rye graph resume {run.run_id} {options}"
        with pytest.raises(StateError, match="member 1, 3-4 of 'each'"):
            await rye.graphs.resume(run.run_id, members={2: "by hand"})
        with pytest.raises(InputError, match="member 5 of 'each'"):
            await rye.graphs.resume(run.run_id, members={2: "x", 5: "x"}, rerun=True)
        done = await rye.graphs.resume(run.run_id, members={2: "two", 3: None}, rerun=True)
    assert done.output == [{"n": 0}, {"n": 1}, "two", None, {"n": 4}, {"n": 5}]
    assert marks(workspace.root) == {0: 1, 1: 2, 2: 1, 3: 1, 4: 2, 5: 1}


# A full disk


@pytest.fixture
def on_small_disk(tmp_path: Path) -> Iterator[Workspace]:
    """A workspace whose project stands on a file system of 2 MiB."""
    workspace = Workspace(tmp_path)
    with mount_small_disk(workspace.project, "2m"):
        yield workspace


async def test_a_disk_that_fills_stops_a_run_and_room_lets_it_go_on(
    on_small_disk: Workspace,
) -> None:
    workspace = on_small_disk
    workspace.shell("acme/mark", f'{MARK}\necho "{{\\"got\\": $said}}"')
    fill = 'head -c 4M /dev/zero > "$1/filler" 2>/dev/null; echo \'{"got": "filled"}\''
    workspace.shell("acme/fill", f"{MARK}\n{fill}")
    nodes: dict[str, Any] = {
        name: {"action": {"item_id": f"tool:acme/{tool}", "params": {"n": name}},
               "assign": {"big": "${inputs.big}"}, "next": following}
        for name, tool, following in (
            ("one", "mark", "two"), ("two", "fill", "three"), ("three", "mark", "end"),
        )
    }  # fmt: skip
    nodes["end"] = {"type": "return", "output": "well"}
    ref = graph(workspace, nodes, state={"big": ""}, inputs={"big": {"type": "string"}})
    async with workspace.open() as rye:
        with pytest.raises(StateError, match="No space") as stopped:
            await rye.graphs.run(ref, {"big": "x" * 50_000})
        assert "room" in str(stopped.value.next_step)
        assert marks(workspace.root) == {"one": 1, "two": 1}
        (workspace.project / "filler").unlink()
    async with workspace.open() as rye:
        (row,) = await rye.graphs.list()
        assert row.status == "error"
        with pytest.raises(StateError, match="'two' interrupted"):
            await rye.graphs.resume(row.thread_id)
        done = await rye.graphs.resume(row.thread_id, result={"got": "filled"})
    assert done.output == "well"
    assert marks(workspace.root) == {"one": 1, "two": 1, "three": 1}
