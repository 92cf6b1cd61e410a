"""Tools in processes of their own: they end, they are ended, or they are found dead."""

import json
import os
import re
import signal
import sqlite3
import subprocess
from contextlib import suppress
from itertools import product

import anyio
import pytest

from ryecore.actions.threads import ThreadReport
from ryecore.chain.primitives import EFFECT_UNKNOWN
from ryecore.errors import (
    InputError,
    InvalidParameters,
    StateError,
    ThreadNotFound,
    UnsignedItem,
)
from ryecore.lillux import watch
from ryecore.state.store import ThreadStore
from ryecore.threads.result import StartedThread
from tests.detached import (
    PATIENCE_S,
    end_of,
    hanging,
    launch,
    log_of,
    pids_of,
    run_rye,
    until_printed,
)
from tests.matrix import IS_SOAK
from tests.unit.lillux.system import wait_until_dead
from tests.warm_hosts import is_alive
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_walkers")]


async def test_a_tool_goes_on_by_itself_and_its_result_is_kept(workspace: Workspace) -> None:
    ref = workspace.python(
        "acme/add", "def execute(params, project):\n  return {'sum': params['a'] + 1}"
    )
    async with workspace.open() as rye:
        launched = await launch(rye, ref, a=41)
        answer = launched.to_dict()
        report = await end_of(rye, launched)
    assert re.fullmatch(
        r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab]\w{3}-\w{12}", launched.thread_id
    )
    assert {name: answer[name] for name in ("status", "async", "type", "item_id", "state")} == {
        "status": "success", "async": True, "type": "tool", "item_id": ref, "state": "running",
    }  # fmt: skip
    assert answer["execution_mode"] == "inline"
    assert (report.status, report.data, report.error) == ("completed", {"sum": 42}, None)
    kept = json.loads((report.folder / "result.json").read_text())
    assert kept == report.result
    wait_until_dead(launched.pid)


async def test_another_process_sees_the_same(workspace: Workspace) -> None:
    ref = workspace.shell("acme/hi", "echo hello")
    async with workspace.open() as rye:
        launched = await launch(rye, ref)
        await end_of(rye, launched)
    printed = await run_rye(workspace, "threads", "show", launched.thread_id[:8], "--json")
    assert json.loads(printed)["result"]["data"]["stdout"] == "hello\n"


async def test_the_launcher_need_not_stay(workspace: Workspace) -> None:
    workspace.shell("acme/late", "read line < go; echo $line")
    os.mkfifo(workspace.project / "go")
    launched = json.loads(
        await run_rye(workspace, "execute", "tool:acme/late", "--async", "--json")
    )
    assert launched["state"] == "running"
    assert is_alive(launched["pid"])
    (workspace.project / "go").write_text("went\n")  # returns once the tool reads
    async with workspace.open() as rye:
        report = await rye.threads.wait(launched["thread_id"], timeout_s=PATIENCE_S)
    assert (report.status, report.data) == (
        "completed", {"stdout": "went\n", "stderr": "", "return_code": 0},
    )  # fmt: skip


async def test_output_can_be_read_while_it_comes(workspace: Workspace) -> None:
    os.mkfifo(workspace.project / "go")
    ref = workspace.shell("acme/steps", "echo one; cat go >&2; echo three")
    async with workspace.open() as rye:
        launched = await launch(rye, ref)
        await until_printed(log_of(workspace, launched), "one\n")
        text, offset = await rye.threads.log(launched.thread_id)
        assert text == "one\n"
        (workspace.project / "go").write_text("two\n")
        came, _ = await rye.threads.log(launched.thread_id, offset=offset, wait_s=PATIENCE_S)
        assert came.startswith("two\n")
        await end_of(rye, launched)
        assert await rye.threads.log(launched.thread_id, offset=offset) == ("two\nthree\n", 14)
        # Nothing more comes, and the end ends the wait.
        nothing = await rye.threads.log(launched.thread_id, offset=14, wait_s=10 * PATIENCE_S)
        assert nothing == ("", 14)


async def test_a_character_that_is_not_yet_whole_is_read_when_it_is(workspace: Workspace) -> None:
    os.mkfifo(workspace.project / "go")
    ref = workspace.shell("acme/steps", r"printf 'a\342\206'; cat go >&2; printf '\221b\377c'")
    async with workspace.open() as rye:
        launched = await launch(rye, ref)
        with anyio.fail_after(PATIENCE_S):
            async with watch(log_of(workspace, launched)) as watcher:
                while log_of(workspace, launched).read_bytes() != b"a\xe2\x86":
                    await watcher.changed()
        assert await rye.threads.log(launched.thread_id) == ("a", 1)
        (workspace.project / "go").write_text("")
        await end_of(rye, launched)
        assert await rye.threads.log(launched.thread_id, offset=1) == ("↑b\ufffdc", 7)


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("echo no >&2; exit 3", "no"),
        ("kill -9 $$", f"The tool was ended by signal 9.\n{EFFECT_UNKNOWN}"),
    ],
)
async def test_a_tool_that_fails_ends_its_thread_as_error(
    workspace: Workspace, script: str, error: str
) -> None:
    ref = workspace.shell("acme/bad", script)
    async with workspace.open() as rye:
        report = await end_of(rye, await launch(rye, ref))
    assert (report.status, report.error) == ("error", error)


async def test_the_callers_timeout_holds(workspace: Workspace) -> None:
    ref = hanging(workspace)
    async with workspace.open() as rye:
        launched = await rye.execute(ref, async_=True, timeout_s=1)
        assert isinstance(launched, StartedThread)
        tool, child = await pids_of(workspace, launched)
        report = await end_of(rye, launched)
    assert report.status == "error"
    assert "did not end within 1 s" in str(report.error)
    wait_until_dead(tool, child)


async def test_what_is_wrong_with_a_call_is_said_at_once(workspace: Workspace) -> None:
    unsigned = workspace.write("tools/acme/x.sh", "echo hi", sign=False)
    schema = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}
    strict = workspace.python("acme/strict", "def execute(p, q): pass", CONFIG_SCHEMA=schema)
    strict = workspace.python("acme/strict", f"CONFIG_SCHEMA = {schema!r}\ndef execute(p, q): pass")
    async with workspace.open() as rye:
        with pytest.raises(UnsignedItem):
            await rye.execute("tool:acme/x", async_=True)
        with pytest.raises(InvalidParameters):
            await rye.execute(strict, {"a": "x"}, async_=True)
        with pytest.raises(InputError):
            await rye.execute(strict, {"a": 1}, async_=True, timeout_s=-1)
        assert await rye.threads.list(all=True) == ()
    assert unsigned.exists()
    assert not workspace.path("state").exists()


async def test_cancel_ends_the_tool_and_all_that_it_started(workspace: Workspace) -> None:
    ref = hanging(workspace)
    async with workspace.open() as rye:
        launched = await launch(rye, ref)
        tool, child = await pids_of(workspace, launched)
        asked = await rye.threads.cancel(launched.thread_id)
        assert asked.record.cancel_requested
        report = await end_of(rye, launched)
    assert report.status == "cancelled"
    wait_until_dead(tool, child)


async def test_cancel_reaches_from_another_process(workspace: Workspace) -> None:
    ref = hanging(workspace)
    async with workspace.open() as rye:
        launched = await launch(rye, ref)
        await pids_of(workspace, launched)
        await run_rye(workspace, "threads", "cancel", launched.thread_id)
        assert (await end_of(rye, launched)).status == "cancelled"


async def test_kill_ends_the_process_the_tool_and_all_that_it_started(workspace: Workspace) -> None:
    ref = hanging(workspace)
    async with workspace.open() as rye:
        launched = await launch(rye, ref)
        tool, child = await pids_of(workspace, launched)
        report = await rye.threads.kill(launched.thread_id)
        assert report.status == "killed"
        assert not any(map(is_alive, (launched.pid, tool, child)))
        assert (await rye.threads.kill(launched.thread_id)).status == "killed"
        assert (await rye.threads.cancel(launched.thread_id)).status == "killed"


async def test_kill_ends_a_process_that_no_longer_listens(workspace: Workspace) -> None:
    ref = hanging(workspace)
    async with workspace.open() as rye:
        launched = await launch(rye, ref)
        tool, _ = await pids_of(workspace, launched)
        os.kill(launched.pid, signal.SIGSTOP)
        report = await rye.threads.kill(launched.thread_id, grace_s=0.1)
        assert report.status == "killed"
        wait_until_dead(tool)


@pytest.mark.fresh_processes
async def test_a_process_that_is_killed_leaves_no_row_running(workspace: Workspace) -> None:
    ref = hanging(workspace)
    async with workspace.open() as rye:
        launched = await launch(rye, ref)
        tool, child = await pids_of(workspace, launched)
        waited: list[ThreadReport] = []

        async def wait() -> None:
            waited.append(await end_of(rye, launched))

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            os.kill(launched.pid, signal.SIGKILL)
        assert waited[0].status == "error"
        assert f"The process {launched.pid} ended without recording a result." == waited[0].error
        assert await rye.threads.list() == ()
    wait_until_dead(tool)
    os.kill(child, signal.SIGKILL)  # beyond the promise: the tool's own child, see SECURITY.md


@pytest.mark.fresh_processes  # a forked one outlives its stand-in, which is what is killed here
@pytest.mark.parametrize("delay_ms", range(0, 300, 20) if IS_SOAK else [0, 120, 240])
async def test_killed_at_any_time_it_has_ended_and_says_so(
    workspace: Workspace, delay_ms: int
) -> None:
    ref = workspace.shell("acme/hi", "echo hello")
    async with workspace.open() as rye:
        launched = await launch(rye, ref)
        await anyio.sleep(delay_ms / 1000)  # not to wait: to hit another line of its life
        with suppress(ProcessLookupError):
            os.kill(launched.pid, signal.SIGKILL)
        report = await end_of(rye, launched)
    assert report.status in ("completed", "error")
    assert (report.status == "completed") == (report.data is not None)
    assert json.loads((report.folder / "result.json").read_text()) == report.result


@pytest.mark.fresh_processes
async def test_who_looks_first_settles_what_was_killed(workspace: Workspace) -> None:
    ref = hanging(workspace)
    async with workspace.open() as rye:
        launched = await launch(rye, ref)
        _, child = await pids_of(workspace, launched)
        os.kill(launched.pid, signal.SIGKILL)
        wait_until_dead(launched.pid)
        os.kill(child, signal.SIGKILL)
    listed = await run_rye(workspace, "threads", "list", "--all", "--json")
    assert json.loads(listed)["threads"][0]["status"] == "error"


async def test_term_counts_as_a_wish_to_stop(workspace: Workspace) -> None:
    ref = hanging(workspace)
    async with workspace.open() as rye:
        launched = await launch(rye, ref)
        tool, child = await pids_of(workspace, launched)
        os.kill(launched.pid, signal.SIGTERM)
        assert (await end_of(rye, launched)).status == "cancelled"
    wait_until_dead(tool, child)


@pytest.mark.parametrize("delay_ms", [0, 50, 100, 200])
async def test_term_at_any_time_is_a_wish_to_stop(workspace: Workspace, delay_ms: int) -> None:
    ref = hanging(workspace)
    async with workspace.open() as rye:
        launched = await launch(rye, ref)
        await anyio.sleep(delay_ms / 1000)  # not to wait: to hit another line of its life
        os.kill(launched.pid, signal.SIGTERM)
        report = await end_of(rye, launched)
    # Before Python has taken its first step, the signal still ends it.
    assert report.status == "cancelled" or "ended" in str(report.error)
    wait_until_dead(launched.pid)


async def test_what_was_stopped_before_it_began_never_begins(workspace: Workspace) -> None:
    async with workspace.open() as rye:
        launched = await launch(rye, workspace.shell("acme/first", "true"))
        await end_of(rye, launched)  # so that the project has its state
        store = ThreadStore.open(workspace.path(""), workspace.path("", "user"))
        store.make_folder("waiting")
        await store.registry.register("waiting", "tool:acme/first")
        assert (await rye.threads.cancel("waiting")).status == "cancelled"
        await store.registry.register("waiting-too", "tool:acme/first")
        assert (await rye.threads.kill("waiting-too")).status == "killed"
        store.close()


async def test_a_wait_is_over_when_its_time_is(workspace: Workspace) -> None:
    ref = hanging(workspace)
    async with workspace.open() as rye:
        launched = await launch(rye, ref)
        report = await rye.threads.wait(launched.thread_id, timeout_s=0.05)
        assert not report.ended
        assert report.result is None
        await rye.threads.kill(launched.thread_id)


async def test_a_thread_that_never_existed_is_said(workspace: Workspace) -> None:
    ref = workspace.shell("acme/hi", "echo hello")
    ids = ["", "nothing", "../../x", "a/../b", "x" * 999, "\0", "é"]
    async with workspace.open() as rye:
        calls = (rye.threads.wait, rye.threads.show, rye.threads.cancel, rye.threads.kill,
                 rye.threads.log)  # fmt: skip
        for _ in range(2):  # without any state, and with some
            for thread_id, call in product(ids, calls):
                with pytest.raises(ThreadNotFound):
                    await call(thread_id)
            if not workspace.path("state").exists():
                await end_of(rye, await launch(rye, ref))
    assert {entry.name for entry in workspace.path("state").iterdir()} == {"threads"}


async def test_the_beginning_of_an_id_is_enough_where_it_is_alone(workspace: Workspace) -> None:
    ref = workspace.shell("acme/hi", "echo hello")
    async with workspace.open() as rye:
        await end_of(rye, await launch(rye, ref))
        store = ThreadStore.open(workspace.path(""), workspace.path("", "user"))
        for name in ("same-1", "same-2"):
            await store.registry.register(name, ref)
        store.close()
        assert (await rye.threads.show("same-1")).thread_id == "same-1"
        with pytest.raises(ThreadNotFound, match=r"several threads: same-1, same-2"):
            await rye.threads.show("same")


async def test_many_at_once(workspace: Workspace) -> None:
    many = 40 if IS_SOAK else 10
    ref = workspace.shell("acme/hi", "echo $$")
    ended: list[ThreadReport] = []
    async with workspace.open() as rye:

        async def one() -> None:
            ended.append(await end_of(rye, await launch(rye, ref)))

        async with anyio.create_task_group() as group:
            for _ in range(many):
                group.start_soon(one)
        assert len(await rye.threads.list(all=True, limit=100)) == many
    assert [report.status for report in ended] == ["completed"] * many
    assert len({report.thread_id for report in ended}) == many


async def test_a_launch_that_can_not_be_written_down_leaves_nothing_running(
    workspace: Workspace,
) -> None:
    ref = hanging(workspace)
    store = ThreadStore.open(workspace.path(""), workspace.path("", "user"))
    (registry,) = store.folder.glob(".*/threads.db")
    broken = sqlite3.connect(registry)
    broken.execute(
        "CREATE TRIGGER full BEFORE UPDATE OF pid ON threads BEGIN SELECT RAISE(FAIL, 'full'); END"
    )
    broken.close()
    async with workspace.open() as rye:
        with pytest.raises(StateError, match="full"):
            await rye.execute(ref, async_=True)
        (record,) = await rye.threads.list(all=True)
        assert record.status == "error"
        assert "full" in str((await rye.threads.show(record.thread_id)).error)
    store.close()


async def test_a_folder_that_can_not_be_written_starts_nothing(workspace: Workspace) -> None:
    ref = workspace.shell("acme/hi", "touch ran")
    workspace.path("state").write_text("")
    async with workspace.open() as rye:
        with pytest.raises(StateError, match="can't be used"):
            await rye.execute(ref, async_=True)
    assert not (workspace.project / "ran").exists()


async def test_a_cloned_state_is_not_read(workspace: Workspace) -> None:
    ref = workspace.shell("acme/hi", "echo hello")
    threads = workspace.path("state/threads")
    threads.mkdir(parents=True)
    (threads / "threads.db").write_text("a stranger's")
    async with workspace.open() as rye:
        with pytest.warns(UserWarning, match=r"not made by you.*moved to"):
            launched = await launch(rye, ref)
        assert (await end_of(rye, launched)).status == "completed"


def test_a_thread_shows_itself_in_a_notebook(workspace: Workspace) -> None:
    ref = workspace.shell("acme/hi", "echo '<b>hello</b>'")
    with workspace.sync() as rye:
        report = rye.threads.wait(rye.execute(ref, async_=True).data["thread_id"])
    assert repr(report) == f"ThreadReport({report.thread_id!r}, completed, {ref!r})"
    for shown in (str(report), report._repr_html_()):
        assert report.thread_id in shown
        assert "completed" in shown
    assert "<b>hello</b>" in str(report)
    assert "&lt;b&gt;hello&lt;/b&gt;" in report._repr_html_()


def test_without_await(workspace: Workspace) -> None:
    ref = workspace.shell("acme/hi", "echo hello")
    with workspace.sync() as rye:
        launched = rye.execute(ref, async_=True)
        assert isinstance(launched, StartedThread)
        report = rye.threads.wait(launched.thread_id, timeout_s=PATIENCE_S)
        assert report.status == "completed"
        assert rye.threads.log(launched.thread_id) == ("hello\n", 6)
        assert [one.thread_id for one in rye.threads.list(all=True)] == [launched.thread_id]
        assert rye.threads.show(launched.thread_id).ended
        assert rye.threads.cancel(launched.thread_id).status == "completed"
        assert rye.threads.kill(launched.thread_id).status == "completed"
    assert subprocess.run(["true"], check=True).returncode == 0
