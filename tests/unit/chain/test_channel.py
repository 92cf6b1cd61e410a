"""Tools that report and ask while they run, and hostile ones; each is a process of its own."""

import fcntl
import json
import os
import resource
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from ryecore import CallContext, CancelToken
from ryecore.errors import CallCancelled, InputError, MetadataError
from ryecore.results import ToolLog, ToolProgress, ToolQuestion
from tests.workspace import SCRIPT, Workspace

pytestmark = pytest.mark.anyio

HELPER = """
import json, os

def say(**line):
    with open(os.environ["RYE_CHANNEL"], "a") as channel:
        channel.write(json.dumps(line) + "\\n")

def ask(kind, id=1, **params):
    say(ask=kind, id=id, params=params)
    with open(os.environ["RYE_ANSWERS"]) as answers:
        return json.loads(answers.readline())
"""


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No descriptor, pipe or folder of a channel outlives its call and its Rye."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = _pipes()
    yield
    assert _pipes() == before
    assert list(tmp_path.glob("rye-calls-*")) == []


def _pipes() -> int:
    """How many named pipes this process has open."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            count += "rye-calls-" in os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
    return count


class Caller:
    """A caller that keeps what it is told, and answers each question."""

    def __init__(self, answer: Mapping[str, object] | None = None) -> None:
        self.reports: list[ToolProgress | ToolLog] = []
        self.questions: list[ToolQuestion] = []
        self.asked = anyio.Event()
        self._answer = answer

    def context(self, **more: Any) -> CallContext:
        return CallContext(report_sink=self.reports.append, ask=self.ask, **more)

    async def ask(self, question: ToolQuestion, /) -> Mapping[str, object]:
        self.questions.append(question)
        self.asked.set()
        if self._answer is None:
            await anyio.sleep_forever()
            raise AssertionError
        return self._answer

    @property
    def logs(self) -> list[object]:
        return [one.data for one in self.reports if isinstance(one, ToolLog)]


SHELL = """
printf '{"progress": 1, "total": 2, "message": "half"}\\n' > "$RYE_CHANNEL"
printf '{"log": "hello", "level": "notice", "logger": "db"}\\n' > "$RYE_CHANNEL"
printf '{"ask": "elicit", "id": "name", "params": {"message": "Who?"}}\\n' > "$RYE_CHANNEL"
read -r answer < "$RYE_ANSWERS"
echo "$answer"
"""
PYTHON = f"""{HELPER}
def execute(params, project_path):
    say(progress=1, total=2, message="half")
    say(log="hello", level="notice", logger="db")
    return ask("elicit", "name", message="Who?")
"""
AS_SCRIPT = f"""{HELPER}
say(progress=1, total=2, message="half")
say(log="hello", level="notice", logger="db")
print(json.dumps(ask("elicit", "name", message="Who?")))
"""


def make(workspace: Workspace, runtime: str) -> str:
    declared: dict[str, Any] = {"reports": True, "may_ask": ["elicit"]}
    if runtime == "shell":
        return workspace.shell("a/t", SHELL, **declared)
    if runtime == "script":
        return workspace.python("a/t", AS_SCRIPT, executor_id=SCRIPT, **declared)
    return workspace.python("a/t", PYTHON, **declared)


@pytest.mark.both_loops
@pytest.mark.parametrize("runtime", ["shell", "python", "script"])
async def test_a_tool_reports_and_asks_while_it_runs(workspace: Workspace, runtime: str) -> None:
    ref, caller = make(workspace, runtime), Caller({"action": "accept"})
    events: list[Mapping[str, object]] = []
    ctx = caller.context(event_sink=events.append)
    async with workspace.open() as rye:
        done = await rye.execute(ref, ctx=ctx)
    assert done.data == {"id": "name", "result": {"action": "accept"}}
    assert caller.reports == [
        ToolProgress(ref, ctx.call_id, 1, 2, "half"),
        ToolLog(ref, ctx.call_id, "notice", "hello", "db"),
    ]
    (question,) = caller.questions
    assert (question.item_id, question.call_id, question.key) == (ref, ctx.call_id, "name")
    assert (question.kind, question.params) == ("elicit", {"message": "Who?"})
    assert [event for event in events if event["step"] in ("progress", "log")] == [
        {"step": "progress", "item_id": ref, "call_id": ctx.call_id, "progress": 1, "total": 2,
         "message": "half"},
        {"step": "log", "item_id": ref, "call_id": ctx.call_id, "level": "notice",
         "data": "hello", "logger": "db"},
    ]  # fmt: skip


async def test_a_python_tool_does_so_warm_and_cold(workspace: Workspace) -> None:
    ref = make(workspace, "python")
    async with workspace.open() as rye:
        pool, is_warm = None, False
        with anyio.fail_after(30):
            while not is_warm:  # the first is cold, and so are those beside a template that starts
                is_warm = pool is not None and any(one.state == "ready" for one in pool.stats())
                caller = Caller({"action": "accept"})
                done = await rye.execute(ref, ctx=caller.context())
                assert done.data["result"] == {"action": "accept"}  # type: ignore[index]
                assert len(caller.reports) == 2
                pool = rye._parts._executor._warm_pool()


async def test_a_tool_that_declares_nothing_has_no_channel(workspace: Workspace) -> None:
    workspace.environ |= {"RYE_CHANNEL": "/of/another", "RYE_ANSWERS": "/of/another"}
    ref = workspace.shell("a/t", 'echo "${RYE_CHANNEL-none} ${RYE_ANSWERS-none}"')
    alone = workspace.shell("a/reports", 'echo "${RYE_ANSWERS-none}"', reports=True)
    async with workspace.open() as rye:
        assert (await rye.execute(ref)).data["stdout"] == "none none\n"  # type: ignore[index]
        assert (await rye.execute(alone)).data["stdout"] == "none\n"  # type: ignore[index]


async def ask_once(workspace: Workspace, ctx: CallContext, **opened: Any) -> dict[str, Any]:
    async with workspace.open(**opened) as rye:
        done = await rye.execute(make(workspace, "shell"), ctx=ctx)
    answer: dict[str, Any] = done.data  # type: ignore[assignment]
    return answer


async def test_a_question_needs_a_host_that_answers(workspace: Workspace) -> None:
    refused = await ask_once(workspace, CallContext())
    assert refused == {"id": "name", "error": "Nobody is there to answer: the host has no ask "
                       "callback."}  # fmt: skip
    answered = await ask_once(workspace, CallContext(), ask=Caller({"action": "cancel"}).ask)
    assert answered["result"] == {"action": "cancel"}


async def test_a_question_needs_the_callers_capability(workspace: Workspace) -> None:
    caller, may_run = Caller({"action": "accept"}), "rye.execute.tool.a.t"
    for more, is_asked in (
        ([], False),
        (["rye.ask.sample.*"], False),
        (["rye.ask.elicit.b.*"], False),
        (["rye.ask.elicit.a.t"], True),
        (["rye.ask.*"], True),
    ):
        ctx = caller.context(capabilities=frozenset([may_run, *more]))
        answer = await ask_once(workspace, ctx)
        if is_asked:
            assert answer["result"] == {"action": "accept"}
        else:
            assert "lacks the capability rye.ask.elicit.a.t" in answer["error"]
    assert len(caller.questions) == 2


async def test_a_question_needs_a_declaration(workspace: Workspace) -> None:
    caller = Caller({"role": "assistant"})
    script = SHELL.replace('"elicit"', '"sample"')
    other = workspace.shell("a/other", script, may_ask=["elicit", "roots"])
    none = workspace.shell(
        "a/none", 'printf \'{"ask": "roots"}\\n\' > "$RYE_CHANNEL"', reports=True
    )
    async with workspace.open() as rye:
        done = await rye.execute(other, ctx=caller.context())
        assert "doesn't declare sample in may_ask" in done.data["error"]  # type: ignore[index]
        assert (await rye.execute(none, ctx=caller.context())).success
    assert caller.questions == []
    assert "declares no may_ask" in str(caller.logs[-1])


async def test_an_unknown_kind_of_question_is_refused_when_the_tool_is_read(
    workspace: Workspace,
) -> None:
    ref = workspace.shell("a/t", "true", may_ask=["money"])
    async with workspace.open() as rye:
        with pytest.raises(MetadataError, match="may_ask"):
            await rye.execute(ref)


async def test_a_refusal_and_a_failure_of_the_host_are_error_answers(workspace: Workspace) -> None:
    async def refuse(question: ToolQuestion, /) -> Mapping[str, object]:
        raise InputError("Not today.", next_step="Tomorrow.")

    async def fail(question: ToolQuestion, /) -> Mapping[str, object]:
        raise KeyError("a secret")

    async def answer_badly(question: ToolQuestion, /) -> Mapping[str, object]:
        return {"it": object()}

    async def answer_at_length(question: ToolQuestion, /) -> Mapping[str, object]:
        return {"it": "x" * 2**20}

    for ask, why in (
        (refuse, "Not today."),
        (fail, "The host failed"),
        (answer_badly, "The host failed"),
        (answer_at_length, "more than 1048576 bytes"),
    ):
        answer = await ask_once(workspace, CallContext(ask=ask))
        assert why in answer["error"], ask
        assert "secret" not in answer["error"]


async def test_an_answer_longer_than_a_pipe_arrives_whole(workspace: Workspace) -> None:
    long = "x" * 300_000
    assert (await ask_once(workspace, Caller({"text": long}).context()))["result"]["text"] == long


async def test_several_questions_are_open_at_once(workspace: Workspace) -> None:
    body = f"""{HELPER}
def execute(params, project_path):
    for number in range(20):
        say(ask="roots", id=number)
    say(ask="roots", id=3)
    with open(os.environ["RYE_ANSWERS"]) as answers:
        return [json.loads(answers.readline()) for _ in range(21)]
"""
    ref, caller = workspace.python("a/t", body, may_ask=["roots"]), Caller()
    together = anyio.Event()

    async def ask(question: ToolQuestion, /) -> Mapping[str, object]:
        caller.questions.append(question)
        if len(caller.questions) == 8:
            together.set()
        await together.wait()
        return {"roots": []}

    async with workspace.open() as rye:
        done = await rye.execute(ref, ctx=CallContext(ask=ask))
    answers: list[dict[str, Any]] = done.data  # type: ignore[assignment]
    answered = [one["id"] for one in answers if "result" in one]
    refused = {one["error"] for one in answers if "error" in one}
    assert len(answered) >= 8
    assert refused <= {"8 questions are open already.", "Another question with the id '3' is open."}


# Hostile tools


async def test_garbage_is_counted_and_harms_nothing(workspace: Workspace) -> None:
    script = """
head -c 300000 /dev/zero | tr '\\0' x > "$RYE_CHANNEL"
printf '\\n\\n\\377\\376\\n[[[\\n{"log": "still here"}\\n{"log": "no end' > "$RYE_CHANNEL"
"""
    ref, caller = workspace.shell("a/t", script, reports=True), Caller()
    async with workspace.open() as rye:
        assert (await rye.execute(ref, ctx=caller.context())).success
    assert caller.logs[0] == "still here"
    assert caller.logs[1] == (
        "3 lines of its channel can't be read; one: it has more than 65536 bytes"
    )


async def test_a_flood_is_thinned_and_the_latest_progress_is_passed_on(
    workspace: Workspace,
) -> None:
    body = """
import os
def execute(params, project_path):
    with open(os.environ["RYE_CHANNEL"], "w") as channel:
        for number in range(1, 3001):
            channel.write('{"progress": %d}\\n{"log": %d}\\n' % (number, number))
    return "done"
"""
    ref, caller = workspace.python("a/t", body, reports=True), Caller()
    async with workspace.open() as rye:
        done = await rye.execute(ref, ctx=caller.context())
    assert done.data == "done"
    assert 200 <= len(caller.reports) < 1000
    last = [one for one in caller.reports if isinstance(one, ToolProgress)][-1]
    assert last.progress == 3000
    dropped = 3000 - (len(caller.logs) - 1)
    assert caller.logs[-1] == f"{dropped} reports came too fast, and were dropped"


async def test_a_flood_without_end_leaves_the_host_free_and_ends_with_its_time(
    workspace: Workspace,
) -> None:
    ref = workspace.shell("a/flood", 'yes > "$RYE_CHANNEL"', reports=True)
    other = workspace.shell("a/other", "echo 1")
    async with workspace.open() as rye:
        results: list[Any] = []

        async def flood() -> None:
            results.append(await rye.execute(ref, timeout_s=0.5))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flood)
            for _ in range(5):
                with anyio.fail_after(5):
                    assert (await rye.execute(other)).data == 1
    assert "did not end within 0.5 s" in results[0].error


async def test_answers_that_nobody_reads_hold_nothing_up(workspace: Workspace) -> None:
    body = f"""{HELPER}
def execute(params, project_path):
    for number in range(300):
        say(ask="roots", id=number)
    return "done"
"""
    ref, caller = workspace.python("a/t", body, may_ask=["roots"]), Caller({"roots": ["x" * 9000]})
    async with workspace.open() as rye:
        done = await rye.execute(ref, ctx=caller.context())
    assert done.data == "done"
    assert len(caller.questions) < 30


@pytest.mark.both_loops
async def test_a_tool_that_is_cancelled_while_it_asks_takes_its_question_along(
    workspace: Workspace,
) -> None:
    ref, caller, token = make(workspace, "shell"), Caller(), CancelToken()
    async with workspace.open() as rye, anyio.create_task_group() as tasks:

        async def cancel() -> None:
            await caller.asked.wait()
            token.cancel()

        tasks.start_soon(cancel)
        with pytest.raises(CallCancelled):
            await rye.execute(ref, ctx=caller.context(cancellation=token))


async def test_a_tool_that_is_killed_while_it_asks_takes_its_question_along(
    workspace: Workspace,
) -> None:
    script = SHELL.replace("read -r", "kill -9 $$; read -r")
    ref, caller = workspace.shell("a/t", script, may_ask=["elicit"]), Caller()
    async with workspace.open() as rye:
        done = await rye.execute(ref, ctx=caller.context())
    assert "signal 9" in str(done.error)


async def test_a_tool_that_removes_or_replaces_its_pipes_harms_itself_alone(
    workspace: Workspace,
) -> None:
    script = """
printf '{"log": 1}\\n' > "$RYE_CHANNEL"
rm "$RYE_CHANNEL" "$RYE_ANSWERS"
ln -s "$1/precious" "$RYE_CHANNEL"
printf '{"log": 2}\\n' > "$RYE_CHANNEL"
"""
    ref, caller = workspace.shell("a/t", script, may_ask=["elicit"]), Caller()
    gone = workspace.shell("a/gone", 'rm -r "$(dirname "$RYE_CHANNEL")"', reports=True)
    (workspace.project / "precious").write_text("mine\n")
    async with workspace.open() as rye:
        assert (await rye.execute(ref, ctx=caller.context())).success
        assert caller.logs == [1]
        assert (await rye.execute(gone)).success
        assert (await rye.execute(make(workspace, "shell"), ctx=Caller({}).context())).success
    assert (workspace.project / "precious").read_text() == '{"log": 2}\n'


async def test_a_process_that_left_the_call_reaches_no_other(workspace: Workspace) -> None:
    script = """
setsid sh -c 'exec 9> "$RYE_CHANNEL"; echo > ready; cat go > /dev/null
    trap "" PIPE; { printf x >&9 || echo refused; } > told' > /dev/null 2>&1 &
cat ready > /dev/null
"""
    ref, caller = workspace.shell("a/t", script, reports=True), Caller()
    for name in ("ready", "go", "told"):
        os.mkfifo(workspace.project / name)
    async with workspace.open() as rye:
        assert (await rye.execute(ref, ctx=caller.context())).success
        (workspace.project / "go").write_text("go\n")
        told = await anyio.Path(workspace.project / "told").read_text()
    assert "refused" in told
    assert caller.reports == []


async def test_a_sink_that_fails_does_not_fail_the_tool(workspace: Workspace) -> None:
    def fail(report: object) -> None:
        raise RuntimeError("a sink")

    ref = workspace.shell("a/t", 'printf \'{"log": 1}\\n\' > "$RYE_CHANNEL"', reports=True)
    async with workspace.open() as rye:
        assert (await rye.execute(ref, ctx=CallContext(report_sink=fail))).success


async def test_many_calls_at_once_each_reach_their_own_caller(workspace: Workspace) -> None:
    body = f"""{HELPER}
def execute(params, project_path):
    say(log=params["n"])
    return ask("roots", params["n"])["result"]["n"]
"""
    ref = workspace.python("a/t", body, may_ask=["roots"])
    async with workspace.open() as rye, anyio.create_task_group() as tasks:

        async def call(number: int) -> None:
            caller = Caller({"n": number})
            done = await rye.execute(ref, {"n": number}, ctx=caller.context())
            assert (done.data, caller.logs) == (number, [number])

        for number in range(40):
            tasks.start_soon(call, number)


def test_it_is_there_on_a_blocking_rye_too(workspace: Workspace) -> None:
    caller = Caller({"action": "accept"})
    with workspace.sync() as rye:
        done = rye.execute(make(workspace, "shell"), ctx=caller.context())
    assert json.loads(json.dumps(done.data))["result"] == {"action": "accept"}


def test_more_calls_than_there_are_files_for_wait(workspace: Workspace) -> None:
    ref = workspace.shell("a/t", 'printf \'{"log": 1}\\n\' > "$RYE_CHANNEL"; echo 1', reports=True)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    results: list[object] = []

    async def call_all() -> None:
        async with workspace.open() as rye, anyio.create_task_group() as tasks:

            async def call() -> None:
                results.append((await rye.execute(ref)).data)

            for _ in range(100):
                tasks.start_soon(call)

    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(300)]  # as a host may have
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 120, hard))
    try:
        anyio.run(call_all)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for one in held:
            os.close(one)
    assert results == [1] * 100


async def test_what_a_killed_host_left_is_removed_by_the_next(
    workspace: Workspace, tmp_path: Path
) -> None:
    left, used, other = (tmp_path / f"rye-calls-{name}" for name in ("left", "used", "other"))
    for folder in (left, used, other):
        folder.mkdir()
        os.mkfifo(folder / "pipe")
    (other / "file").write_text("somebody's own")
    lock = os.open(used, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    ref = workspace.shell("a/t", "true", reports=True)
    async with workspace.open() as rye:
        assert (await rye.execute(ref)).success
    assert not left.exists()
    assert (used / "pipe").exists()
    assert (other / "file").exists()
    os.close(lock)
    for folder in (used, other):
        shutil.rmtree(folder)
