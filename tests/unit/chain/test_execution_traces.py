"""Executing a tool: traces, dry runs, cancellation."""

import json
import os
import threading

import anyio
import pytest

from ryecore import CallContext, CancelToken, _native
from ryecore.errors import (
    BadSignature,
    CallCancelled,
    ConfigError,
    ContentChanged,
    RyeError,
)
from tests.warm_hosts import is_alive
from tests.workspace import Workspace, events

# Trace


def test_a_trace_tells_every_decision_in_order(workspace):
    done = workspace.execute(workspace.shell("a/t", "true"), trace=True)
    assert [event["step"] for event in done.trace] == [
        "resolve",
        "verify_integrity",
        "resolve",
        "verify_integrity",
        "resolve",
        "validate_chain",
        "seal",
        "resolve_env",
        "plan",
        "execute",
    ]
    verified = events(done.trace, "verify_integrity")[0]
    assert verified == {
        "step": "verify_integrity",
        "item_id": "a/t",
        "verified": True,
        "key_fp": workspace.key.public.fingerprint,
    }
    assert json.dumps(done.to_dict()["trace"])


def test_tracing_changes_no_result(workspace):
    ref = workspace.shell(
        "a/t", "cat; unset RYE_CALL_ID; env | sort"
    )  # each call has one of its own
    with workspace.sync() as rye:
        plain, traced, again = (rye.execute(ref, {"a": 1}, trace=on) for on in (False, True, False))
    assert plain.data == traced.data == again.data
    assert plain.chain == traced.chain
    assert plain.trace is None
    assert traced.trace


def test_a_trace_is_whole_also_when_the_chain_is_remembered(workspace):
    ref = workspace.shell("a/t", "true")
    with workspace.sync() as rye:
        first, second = (rye.execute(ref, trace=True) for _ in range(2))
    assert [event["step"] for event in first.trace] == [event["step"] for event in second.trace]


def test_a_failed_run_keeps_its_trace_which_ends_in_the_failing_event(workspace):
    done = workspace.execute(workspace.shell("a/t", "echo why >&2; exit 3"), trace=True)
    last = done.trace[-1]
    assert (last["step"], last["failed"], last["error"], last["exit_code"]) == (
        "execute",
        True,
        "why",
        3,
    )


def unsigned(workspace: Workspace) -> None:
    workspace.write("tools/a/t.sh", "# __executor_id__ = 'a/r'", sign=False)


def broken(workspace: Workspace) -> None:
    workspace.write("tools/a/t.yaml", "executor_id: [")


def without_executor(workspace: Workspace) -> None:
    workspace.shell("a/t", "", executor_id="a/nowhere")


def incompatible(workspace: Workspace) -> None:
    workspace.yaml("a/r", inputs=["x"])
    workspace.shell("a/t", "", executor_id="a/r", outputs=["y"])


def without_interpreter(workspace: Workspace) -> None:
    wish = {"type": "system_binary", "var": "RYE_X", "binary": "no-such-language"}
    workspace.yaml("a/r", env_config={"interpreter": wish}, config={"command": "${RYE_X}"})
    workspace.shell("a/t", "", executor_id="a/r")


def with_an_unsigned_dependency(workspace: Workspace) -> None:
    workspace.write("tools/a/__init__.py", "", sign=False)
    workspace.python("a/t", "")


def with_a_schema(workspace: Workspace) -> None:
    workspace.shell("a/t", "", config_schema={"type": "object", "required": ["x"]})


def without_a_command(workspace: Workspace) -> None:
    workspace.yaml("a/t")


@pytest.mark.parametrize(
    ("prepare", "step"),
    [
        (lambda workspace: None, "resolve"),
        (unsigned, "verify_integrity"),
        (broken, "read_metadata"),
        (without_executor, "resolve"),
        (incompatible, "validate_chain"),
        (without_interpreter, "resolve_env"),
        (with_an_unsigned_dependency, "seal"),
        (with_a_schema, "check_parameters"),
        (without_a_command, "plan"),
    ],
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_refusals_trace_ends_in_the_failing_event(workspace, prepare, step, dry_run):
    prepare(workspace)
    with pytest.raises(RyeError) as refusal:
        workspace.execute("tool:a/t", dry_run=dry_run, trace=True)
    last = refusal.value.trace[-1]
    assert (last["step"], last["failed"]) == (step, True)
    assert refusal.value.message in str(last["error"])
    assert refusal.value.item_id == "tool:a/t"
    assert refusal.value.next_step
    document = refusal.value.to_dict()
    assert document["status"] == "error"
    assert json.dumps(document)


def test_a_refusal_carries_a_trace_only_when_asked(workspace):
    with pytest.raises(RyeError) as refusal:
        workspace.execute("tool:a/t")
    assert refusal.value.trace == ()


def test_an_event_sink_is_told_each_event_as_it_happens(workspace):
    told: list[object] = []
    done = workspace.execute(
        workspace.shell("a/t", "true"), ctx=CallContext(event_sink=told.append), trace=True
    )
    assert told == list(done.trace)


# Dry run


def test_a_dry_run_shows_the_plan_and_runs_nothing(workspace):
    ref = workspace.shell("a/t", "touch ran", version="1.0.0")
    done = workspace.execute(ref, {"a": 1}, dry_run=True)
    document = done.to_dict()
    assert document["status"] == "validation_passed"
    assert document["message"] == "Tool chain validation passed (dry run)"
    assert document["item_id"] == ref
    assert document["validated_pairs"] == [
        ["a/t", "rye/core/runtimes/bash/bash"],
        ["rye/core/runtimes/bash/bash", "rye/core/primitives/execute"],
    ]
    assert document["plan"]["command"] == "/bin/bash"
    assert document["plan"]["stdin_bytes"] == len('{"a": 1}')
    assert "data" not in document
    assert done.success
    assert not (workspace.project / "ran").exists()
    assert "would run" in str(done)


def test_a_dry_run_asks_for_every_signature_anew(workspace, monkeypatch):
    workspace.write("tools/a/__init__.py", "")
    workspace.write("tools/a/helper.py", "")
    ref = workspace.python("a/t", "def execute(p, project):\n    return 1")
    asked: list[bytes] = []
    arithmetic = _native.verify_signature

    def counting(key: bytes, signature: bytes, message: bytes) -> bool:
        asked.append(message)
        return arithmetic(key, signature, message)

    monkeypatch.setattr(_native, "verify_signature", counting)
    with workspace.sync() as rye:
        rye.execute(ref)
        asked.clear()
        rye.execute(ref)
        assert not asked  # the arithmetic is remembered
        rye.execute(ref, dry_run=True)
    names = [line for message in asked for line in message.decode().split("\n")[1:2]]
    for name in ("a/t.py", "a/__init__.py", "a/helper.py", "rye/core/runtimes/python/function.yaml"):  # fmt: skip # noqa: E501
        assert f"tool:{name}" in names


def test_a_dry_run_notices_what_memory_would_let_pass(workspace, monkeypatch):
    ref = workspace.shell("a/t", "true")
    with workspace.sync() as rye:
        rye.execute(ref)
        # Whatever a cache may have come to believe, the arithmetic says no.
        monkeypatch.setattr(_native, "verify_signature", lambda *_: False)
        with pytest.raises(BadSignature) as refusal:
            rye.execute(ref, dry_run=True, trace=True)
    assert refusal.value.trace[-1]["step"] == "verify_integrity"


def test_a_dry_run_refuses_what_a_run_would_refuse(workspace):
    ref = workspace.shell("a/t", "true")
    path = workspace.path("tools/a/t.sh")
    path.write_text(path.read_text() + "# more\n")
    with pytest.raises(ContentChanged):
        workspace.execute(ref, dry_run=True)


def test_a_dry_run_of_a_tool_without_a_command_is_refused(workspace):
    with pytest.raises(ConfigError):
        workspace.execute(workspace.yaml("a/t"), dry_run=True)


# Cancellation

WAIT = 'echo $$ > pid.new; mv pid.new pid; trap "" TERM; while :; do read -r -t 1 < <(sleep 60); done'  # fmt: skip # noqa: E501


async def started(workspace: Workspace) -> int:
    """The pid of the waiting tool, once it runs."""
    pid = anyio.Path(workspace.project / "pid")
    while not await pid.exists():
        await anyio.lowlevel.checkpoint()
    return int(await pid.read_text())


@pytest.mark.anyio
@pytest.mark.both_loops
async def test_a_cancelled_task_leaves_no_process(workspace):
    ref = workspace.shell("a/t", WAIT.replace('trap "" TERM; ', ""))
    async with workspace.open() as rye:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(rye.execute, ref)
                pid = await started(workspace)
                tasks.cancel_scope.cancel()
            assert not is_alive(pid)


@pytest.mark.anyio
@pytest.mark.both_loops
async def test_a_token_cancels_from_another_thread_and_a_tool_that_ignores_term_ends(workspace):
    token = CancelToken()
    ref = workspace.shell("a/t", WAIT)
    async with workspace.open() as rye, anyio.create_task_group() as tasks:

        async def cancel_later() -> None:
            await started(workspace)
            threading.Thread(target=token.cancel).start()

        tasks.start_soon(cancel_later)
        with pytest.raises(CallCancelled, match="cancelled") as refusal:
            await rye.execute(ref, ctx=CallContext(cancellation=token), trace=True)
        assert refusal.value.item_id == ref
        assert refusal.value.chain
        assert refusal.value.trace[-1]["failed"]
        assert not is_alive(await started(workspace))


@pytest.mark.anyio
@pytest.mark.both_loops
async def test_a_token_that_was_cancelled_before_runs_nothing(workspace):
    token = CancelToken()
    token.cancel()
    ref = workspace.shell("a/t", "touch ran")
    async with workspace.open() as rye:
        with pytest.raises(CallCancelled):
            await rye.execute(ref, ctx=CallContext(cancellation=token))
    assert not (workspace.project / "ran").exists()


@pytest.mark.anyio
@pytest.mark.both_loops
async def test_a_token_cancelled_after_the_end_changes_nothing(workspace):
    token = CancelToken()
    async with workspace.open() as rye:
        done = await rye.execute(
            workspace.shell("a/t", "echo x"), ctx=CallContext(cancellation=token)
        )
    await anyio.to_thread.run_sync(token.cancel)
    assert done.data["stdout"] == "x\n"


@pytest.mark.anyio
@pytest.mark.both_loops
async def test_one_token_cancels_many_calls(workspace):
    token = CancelToken()
    ref = workspace.shell("a/t", "read -r -t 60 < <(sleep 60)")
    refused: list[object] = []
    async with workspace.open() as rye:
        await rye.execute(ref, dry_run=True)
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:

                async def call() -> None:
                    try:
                        await rye.execute(ref, ctx=CallContext(cancellation=token))
                    except CallCancelled as refusal:
                        refused.append(refusal)

                for _ in range(5):
                    tasks.start_soon(call)
                await anyio.lowlevel.checkpoint()
                token.cancel()
    assert len(refused) == 5


def test_a_token_that_is_cancelled_while_the_loop_ends_is_no_error_for_who_cancels(workspace):
    ref = workspace.shell("a/t", "echo > started; read -r _ < go")
    for name in ("started", "go"):
        os.mkfifo(workspace.project / name)
    token, cancelling, ended = CancelToken(), threading.Event(), threading.Event()

    def wait_for_the_end() -> None:
        cancelling.set()
        assert ended.wait(20)

    token.on_cancel(wait_for_the_end)  # the first to be told
    problems: list[BaseException] = []

    def cancel() -> None:
        try:
            token.cancel()
        except BaseException as problem:
            problems.append(problem)

    async def execute() -> None:
        async with workspace.open() as rye:
            await rye.execute(ref, ctx=CallContext(cancellation=token))

    running = threading.Thread(target=anyio.run, args=[execute])
    running.start()
    (workspace.project / "started").read_text()
    other = threading.Thread(target=cancel)
    other.start()
    assert cancelling.wait(20)
    (workspace.project / "go").write_text("\n")
    running.join(20)
    ended.set()
    other.join(20)
    assert problems == []
