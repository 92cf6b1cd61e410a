"""The audit log: a line for each execute, whoever asks and however it ends."""

import json
import os
import stat
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from anyio.abc import TaskGroup

from ryecore import CallContext, CancelToken, Rye, RyeError
from ryecore.audit import AuditFile, AuditLog
from ryecore.display.sanitize import RyeWarning
from ryecore.errors import AuditError, ConfigError, InputError, IntegrityError, InvalidParameters
from ryecore.policy.execution import Execution, Executions
from ryecore.results import AuditRecord
from tests.audited import SECRET, AuditedHost, read_log
from tests.small_disk import fill_disk
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio


@pytest.fixture
def host(tmp_path: Path) -> AuditedHost:
    return AuditedHost(tmp_path)


def brief(line: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(line[name] for name in names)


def start_call(tasks: TaskGroup, rye: Rye, ref: str) -> anyio.Event:
    """Execute an item in a task, and return what is set when it has ended."""
    ended = anyio.Event()

    async def execute() -> None:
        await rye.execute(ref)
        ended.set()

    tasks.start_soon(execute)
    return ended


async def test_a_tool_is_two_lines_which_say_what_ran_for_whom_and_how_it_ended(
    host: AuditedHost,
) -> None:
    async with host.open() as rye:
        labels = {"tenant": "acme"}
        await rye.execute(host.tool, {"text": SECRET}, labels=labels)
        item = rye.verify(host.tool)
    began, ended = host.lines()
    assert began["id"] == ended["id"]
    assert brief(began, "outcome", "cost_usd", "error_code") == ("started", None, "")
    assert ended | {"time": "", "id": "", "duration_ms": 0} == {
        "time": "",
        "id": "",
        "outcome": "success",
        "ref": host.tool,
        "hash": item.integrity,
        "key": host.workspace.key.public.fingerprint,
        "caller": "host",
        "caller_thread": None,
        "labels": labels,
        "operation": "execute",
        "target": "local",
        "thread_id": None,
        "error_code": "",
        "duration_ms": 0,
        "cost_usd": None,
        "project": str(host.workspace.project),
        "pid": os.getpid(),
    }
    assert 0 <= began["duration_ms"] <= ended["duration_ms"]
    assert began["time"] <= ended["time"]
    assert stat.S_IMODE(host.log.stat().st_mode) == 0o600


async def test_a_threads_calls_are_in_the_log_with_the_thread_as_caller_and_its_cost(
    host: AuditedHost,
) -> None:
    async with host.open() as rye:
        done = await rye.execute(host.ask, thread="fork")
    assert done.success
    lines = host.lines()
    assert [brief(one, "ref", "outcome", "caller") for one in lines] == [
        (host.ask, "started", "host"),
        (host.tool, "started", "thread"),
        (host.tool, "success", "thread"),
        (host.ask, "success", "host"),
    ]
    assert {one["caller_thread"] for one in lines if one["ref"] == host.tool} == {done.thread_id}
    assert brief(lines[-1], "id", "thread_id") == (done.thread_id, done.thread_id)
    assert lines[-1]["cost_usd"] == float(done.cost.amount.spend_usd) > 0
    assert SECRET not in host.log.read_text()


@pytest.mark.both_loops
@pytest.mark.parametrize("kind", ["thread", "graph"])
async def test_a_run_in_the_background_has_a_line_when_it_starts_and_one_when_it_ends(
    host: AuditedHost, kind: str
) -> None:
    async with host.open() as rye:
        run: Any = await (rye.start(host.ask) if kind == "thread" else rye.graphs.start(host.graph))
        await run.result()
        run_id = run.thread_id if kind == "thread" else run.run_id
    own = [one for one in host.lines() if one["thread_id"] == run_id]
    assert [brief(one, "id", "operation", "outcome") for one in own] == [
        (run_id, "start", "started"),
        (run_id, "execute", "success"),
    ]
    inner = [one for one in host.lines() if one["caller_thread"] == run_id]
    assert [brief(one, "ref", "outcome") for one in inner] == [
        (host.tool, "started"),
        (host.tool, "success"),
    ]
    assert SECRET not in host.log.read_text()


async def test_a_run_that_is_cancelled_says_so(tmp_path: Path) -> None:
    host = AuditedHost(tmp_path, model=lambda _: anyio.sleep_forever())
    async with host.open() as rye:
        thread = await rye.start(host.ask)
        await thread.cancel()
        await thread.result()
    assert [one["outcome"] for one in host.lines()] == ["started", "cancelled"]


async def test_a_run_that_the_closing_of_its_rye_cancels_says_so(tmp_path: Path) -> None:
    host = AuditedHost(tmp_path, model=lambda _: anyio.sleep_forever())
    async with host.open() as rye:
        await rye.start(host.ask)
    assert [one["outcome"] for one in host.lines()] == ["started", "cancelled"]


@pytest.mark.both_loops
async def test_a_call_that_its_caller_cancels_says_so(host: AuditedHost) -> None:
    began = host.workspace.project / "began"
    os.mkfifo(began)
    sleep = host.workspace.shell("acme/sleep", "echo > began; exec sleep 1000")
    async with host.open() as rye, anyio.create_task_group() as tasks:
        tasks.start_soon(rye.execute, sleep)
        await anyio.to_thread.run_sync(began.read_text)
        tasks.cancel_scope.cancel()
    assert [one["outcome"] for one in host.lines()] == ["started", "cancelled"]


async def test_a_cancelled_token_and_a_tool_that_fails_are_told_apart(host: AuditedHost) -> None:
    false = host.workspace.shell("acme/false", "exit 3")
    cancelled = CancelToken()
    cancelled.cancel()
    async with host.open() as rye:
        assert not (await rye.execute(false)).success
        with pytest.raises(RyeError, match="cancelled"):
            await rye.execute(false, ctx=CallContext(cancellation=cancelled))
    ends = [brief(one, "outcome", "error_code") for one in host.ends()]
    assert ends == [("error", "tool_failed"), ("cancelled", "cancelled")]


async def test_what_is_refused_is_one_line_with_its_code(host: AuditedHost) -> None:
    unsigned = host.workspace.path("tools/acme/unsigned.sh")
    unsigned.write_text('# __executor_id__ = "rye/core/runtimes/bash/bash"\necho x\n')
    tampered = host.workspace.shell("acme/tampered", "echo x")
    path = host.workspace.path("tools/acme/tampered.sh")
    path.write_text(path.read_text() + f"echo {SECRET}\n")
    nothing = CallContext(capabilities=frozenset())
    async with host.open() as rye:
        for ref, options, error in (
            ("tool:acme/unsigned", {}, IntegrityError),
            (tampered, {}, IntegrityError),
            (host.tool, {"parameters": {"text": 1}}, InvalidParameters),
            (host.tool, {"parameters": {"text": SECRET}, "ctx": nothing}, InputError),
            ("tool:acme/nowhere", {}, LookupError),
            (host.tool, {"target": "moon"}, RyeError),
        ):
            with pytest.raises(error):
                await rye.execute(ref, **options)
    codes = [brief(one, "ref", "outcome", "error_code", "caller") for one in host.lines()]
    assert codes == [
        ("tool:acme/unsigned", "refused", "unsigned_item", "host"),
        (tampered, "refused", "content_changed", "host"),
        (host.tool, "refused", "invalid_parameters", "host"),
        (host.tool, "refused", "denied", "model"),
        ("tool:acme/nowhere", "refused", "not_found", "host"),
        (host.tool, "refused", "unsupported", "host"),
    ]
    # What verified before it was refused has its hash.
    assert [one["hash"] is not None for one in host.lines()] == [
        False, False, True, False, False, False,
    ]  # fmt: skip
    assert SECRET not in host.log.read_text()


async def test_what_a_model_writes_as_a_ref_stays_one_short_line(host: AuditedHost) -> None:
    async with host.open() as rye:
        with pytest.raises(RyeError):
            await rye.execute('x"}\n{"outcome": "success"' + "y" * 10_000)
    (line,) = host.lines()
    assert line["outcome"] == "refused"
    assert len(host.log.read_bytes()) < 1_000


async def test_directions_and_dry_runs_are_in_it_once(host: AuditedHost) -> None:
    async with host.open() as rye:
        await rye.execute(host.ask)
        await rye.execute(host.tool, {"text": "x"}, dry_run=True)
    assert [brief(one, "ref", "operation", "outcome") for one in host.lines()] == [
        (host.ask, "execute", "success"),
        (host.tool, "dry_run", "success"),
    ]
    assert all(one["hash"] for one in host.lines())


async def test_a_repeated_start_is_a_line_of_its_own_with_the_thread_it_found(
    host: AuditedHost,
) -> None:
    async with host.open() as rye:
        first = await rye.execute(host.ask, thread="fork", idempotency_key="k")
        await rye.execute(host.ask, thread="fork", idempotency_key="k")
    *_, again = host.lines()
    assert brief(again, "outcome", "thread_id") == ("success", first.thread_id)
    assert again["id"] != first.thread_id


async def test_a_resumed_thread_is_in_it(tmp_path: Path) -> None:
    host = AuditedHost(tmp_path, "one", "two")
    async with host.open() as rye:
        first = await rye.execute(host.ask, thread="fork")
        second = await rye.threads.resume(first.thread_id, "And?")
    assert [one["thread_id"] for one in host.ends()] == [first.thread_id, second.thread_id]


async def test_a_function_gets_records_and_its_failure_refuses_what_begins(
    host: AuditedHost,
) -> None:
    records: list[AuditRecord] = []

    async def take(record: AuditRecord) -> None:
        await anyio.sleep(0)
        if len(records) == 2:
            raise RuntimeError(SECRET)
        records.append(record)

    async with host.open(audit=take) as rye:
        await rye.execute(host.tool, {"text": "x"})
        with pytest.warns(RyeWarning), pytest.raises(AuditError) as refusal:
            await rye.execute(host.tool, {"text": "x"})
        with pytest.raises(AuditError):
            await rye.execute(host.ask)  # which begins nothing, but must not succeed unseen
    assert [one.outcome for one in records] == ["started", "success"]
    assert not host.log.exists()
    assert "RuntimeError" in str(refusal.value)
    assert SECRET not in str(refusal.value)
    assert refusal.value.next_step


@pytest.mark.both_loops
async def test_a_cancelled_call_waits_for_a_function_that_awaits(host: AuditedHost) -> None:
    records: list[AuditRecord] = []
    tasks = anyio.create_task_group()

    async def take(record: AuditRecord) -> None:
        tasks.cancel_scope.cancel()
        await anyio.lowlevel.checkpoint()
        records.append(record)

    async with host.open(audit=take) as rye, tasks:
        tasks.start_soon(rye.execute, host.tool, {"text": "x"})
    assert [one.outcome for one in records] == ["started", "cancelled"]


async def test_a_sync_rye_passes_records_to_a_plain_function(host: AuditedHost) -> None:
    records: list[AuditRecord] = []
    with host.workspace.sync(audit=records.append) as rye:
        rye.execute(host.tool, {"text": "x"})
    assert [one.outcome for one in records] == ["started", "success"]
    assert records[0].cost_usd is None


def test_the_variable_names_the_log_where_the_host_does_not(
    workspace: Workspace, tmp_path: Path
) -> None:
    ref = workspace.shell("acme/x", "echo x")
    workspace.environ["RYE_AUDIT"] = str(tmp_path / "named.jsonl")
    workspace.execute(ref)
    workspace.execute(ref, opened={"audit": tmp_path / "passed.jsonl"})
    assert [len(read_log(tmp_path / f"{name}.jsonl")) for name in ("named", "passed")] == [2, 2]


def test_a_projects_dotenv_neither_sets_nor_unsets_the_log(
    workspace: Workspace, tmp_path: Path
) -> None:
    ref = workspace.shell("acme/x", "echo ${RYE_AUDIT:-none}")
    (workspace.project / ".env").write_text(f"RYE_AUDIT={tmp_path}/other.jsonl\n")
    workspace.environ["RYE_AUDIT"] = str(tmp_path / "audit.jsonl")
    assert workspace.execute(ref).data["stdout"].strip() == str(tmp_path / "audit.jsonl")
    assert len(read_log(tmp_path / "audit.jsonl")) == 2
    assert not (tmp_path / "other.jsonl").exists()


def test_a_log_without_a_folder_is_refused_at_once(workspace: Workspace, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no folder"):
        workspace.open(audit=tmp_path / "nowhere/audit.jsonl")
    with pytest.raises(ConfigError, match="audit is 3"):
        workspace.open(audit=3)


@pytest.mark.parametrize("how", ["link", "pipe", "folder", "moved"])
def test_a_link_a_pipe_or_a_folder_in_its_place_is_never_written_to(
    workspace: Workspace, tmp_path: Path, how: str
) -> None:
    ref = workspace.shell("acme/x", "touch ran")
    victim, folder = tmp_path / "victim", tmp_path / "logs"
    victim.write_text("as it was\n")
    folder.mkdir()
    log = folder / "audit.jsonl"
    match how:
        case "link":
            log.symlink_to(victim)
        case "pipe":
            os.mkfifo(log)
        case "folder":
            log.mkdir()
    with workspace.sync(audit=log) as rye:
        if how == "moved":  # its folder became a link after the Rye was opened
            (tmp_path / "elsewhere").mkdir()
            folder.rmdir()
            folder.symlink_to(tmp_path / "elsewhere")
        with pytest.warns(RyeWarning), pytest.raises(AuditError) as refusal:
            rye.execute(ref)
    assert str(log) in refusal.value.message
    assert not (workspace.project / "ran").exists()
    assert victim.read_text() == "as it was\n"
    assert list((tmp_path / "elsewhere").glob("*")) == [] if how == "moved" else True


def test_a_renamed_log_stays_as_it_is_and_a_new_one_begins(
    workspace: Workspace, tmp_path: Path
) -> None:
    ref, log = workspace.shell("acme/x", "echo x"), tmp_path / "audit.jsonl"
    with workspace.sync(audit=log) as rye:
        rye.execute(ref)
        log.rename(tmp_path / "audit.1")
        rye.execute(ref)
    assert len(read_log(log)) == len(read_log(tmp_path / "audit.1")) == 2


async def test_a_line_behind_a_torn_one_is_whole(host: AuditedHost) -> None:
    host.log.write_text('{"outcome": "succ')
    async with host.open() as rye:
        await rye.execute(host.tool, {"text": "x"})
    torn, *whole = host.log.read_text().splitlines()
    with pytest.raises(ValueError, match="column"):
        json.loads(torn)
    assert [json.loads(one)["outcome"] for one in whole] == ["started", "success"]


async def let_go(fifo: Path, waiting: anyio.Event) -> None:
    """Let a tool go on that reads a fifo, and wait for the end of its call."""
    await anyio.to_thread.run_sync(fifo.write_text, "\n")
    await waiting.wait()


@pytest.mark.root
async def test_a_full_disk_refuses_what_begins_and_an_end_is_written_late(
    host: AuditedHost, small_disk: Path
) -> None:
    log = small_disk / "audit.jsonl"
    ran, go = (host.workspace.project / name for name in ("ran", "go"))
    os.mkfifo(ran)
    os.mkfifo(go)
    wait = host.workspace.shell("acme/wait", "echo > ran; read -r < go")
    async with host.open(audit=log) as rye, anyio.create_task_group() as tasks:
        waiting = start_call(tasks, rye, wait)
        await anyio.to_thread.run_sync(ran.read_text)
        with log.open("a") as file:  # leaves 50 bytes of its last page, the only ones
            file.write(" " * (4096 - 51 - log.stat().st_size % 4096) + "\n")
        filler = fill_disk(small_disk)
        with pytest.warns(RyeWarning), pytest.raises(AuditError, match="No space left"):
            await rye.execute(host.tool, {"text": "x"})
        with pytest.warns(RyeWarning):
            await let_go(go, waiting)
        filler.unlink()
        await rye.execute(host.tool, {"text": "x"})
    whole = []
    for line in filter(str.strip, log.read_text().splitlines()):
        with suppress(ValueError):  # the line that had no room, with the one behind it
            whole.append(json.loads(line))
    assert [brief(one, "ref", "outcome") for one in whole] == [
        (wait, "started"),
        (host.tool, "refused"),
        (wait, "success"),
        (host.tool, "started"),
        (host.tool, "success"),
    ]


async def test_records_that_wait_are_written_once_and_first() -> None:
    written: list[str] = []
    is_full = True

    async def take(record: AuditRecord) -> None:
        await anyio.sleep(0)
        if is_full:
            raise OSError("full")
        written.append(record.ref)

    log = AuditLog(take)
    seen = Executions("/p", None, log.write)
    for name in "ab":
        with pytest.warns(RyeWarning):
            await log.write(Execution(seen, name, CallContext()).record(), must=False)
    is_full = False
    async with anyio.create_task_group() as tasks:
        for name in "cd":
            record = Execution(seen, name, CallContext()).record()
            tasks.start_soon(partial(log.write, record, must=True))
    assert sorted(written) == ["a", "b", "c", "d"]


async def test_a_record_that_cannot_wait_any_more_is_told_as_lost() -> None:
    async def take(record: AuditRecord) -> None:
        raise OSError("full")

    log, seen = AuditLog(take), Executions("/p", None, None)
    record = Execution(seen, "a", CallContext()).record()
    for _ in range(1_000):
        with pytest.warns(RyeWarning, match="The record of a is written later"):
            await log.write(record, must=False)
    with pytest.warns(RyeWarning, match="The record of a is lost: 1,000 others wait already"):
        await log.write(record, must=False)


def test_two_processes_write_whole_lines_into_one_file(tmp_path: Path) -> None:
    program = (
        "import sys, anyio\n"
        "from ryecore import CallContext\n"
        "from ryecore.audit import AuditFile, AuditLog\n"
        "from ryecore.policy.execution import Execution, Executions\n"
        "log = AuditLog(AuditFile(sys.argv[1]))\n"
        "seen = Executions('/p', None, log.write)\n"
        "async def main():\n"
        "    print('ready', flush=True)\n"
        "    sys.stdin.readline()\n"
        "    for number in range(2000):\n"
        "        one = Execution(seen, f'tool:{sys.argv[2]}/{number}' + 'x' * 200, CallContext())\n"
        "        await log.write(one.record(), must=True)\n"
        "anyio.run(main)\n"
    )
    log = tmp_path / "audit.jsonl"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    writers = [
        subprocess.Popen([sys.executable, "-c", program, str(log), name], **pipes)
        for name in ("a", "b")
    ]
    for one in writers:
        assert one.stdout is not None
        assert one.stdout.readline() == b"ready\n"
    for one in writers:  # both have begun, so that both write at the same time
        assert one.stdin is not None
        one.stdin.write(b"go\n")
        one.stdin.flush()
    for one in writers:
        one.communicate()
    assert [one.returncode for one in writers] == [0, 0]
    refs = [one["ref"] for one in read_log(log)]
    assert len(refs) == len(set(refs)) == 4000
    first = [ref[5] for ref in refs]
    assert first != sorted(first)  # they wrote at the same time


async def test_machine_durability_syncs_each_line(tmp_path: Path) -> None:
    log = AuditFile(str(tmp_path / "audit.jsonl"), is_synced=True)
    record = Execution(Executions("/p", None, None), "tool:x", CallContext()).record()
    await AuditLog(log).write(record, must=True)
    assert len(read_log(tmp_path / "audit.jsonl")) == 1
