"""SyncRye: the same verbs, blocking, from any thread."""

import gc
import inspect
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

import anyio
import pytest

from ryecore import CallContext, Rye, SyncRye
from ryecore.actions.graphs import Graphs
from ryecore.actions.threads import Threads
from ryecore.errors import ConfigError, RyeClosed
from ryecore.sync import SyncGraphs, SyncThreads


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_it_works_inside_a_running_event_loop(workspace, loop):
    ref = workspace.shell("a/t", "echo hi")

    async def cell() -> object:
        with workspace.sync() as rye:
            return rye.execute(ref).data["stdout"]

    assert anyio.run(cell, backend=loop) == "hi\n"


def test_a_call_sees_the_context_variables_of_its_caller(workspace):
    workspace.write("tools/a/t.sh", "true\n", sign=False)
    request_number = ContextVar("request_number", default=0)
    seen = []

    async def approve(request):
        seen.append(request_number.get())
        return True

    model = CallContext(capabilities=frozenset({"rye.sign.tool.a.t"}))
    with workspace.sync(approve=approve) as rye:
        request_number.set(7)
        rye.request_signing("tool:a/t", ctx=model)
    assert seen == [7]


def test_many_threads_may_call_it_at_once(workspace):
    ref = workspace.shell("a/t", "cat")
    with workspace.sync() as rye, ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda number: rye.execute(ref, {"n": number}).data, range(40)))
    assert done == [{"n": number} for number in range(40)]


def test_it_has_the_verbs_of_rye(workspace):
    ref = workspace.shell("a/t", "cat", config_schema={"type": "object"})
    with workspace.sync() as rye:
        assert rye.project == workspace.project
        assert rye.keys.load().public == workspace.key.public
        assert rye.trace(ref).chain.ids[0] == "a/t"
        assert rye.schema(ref) == {"type": "object"}
        assert rye.sign(ref).signed[0].relative == "a/t.sh"
        assert rye.verify(ref).is_verified
        assert rye.trust_project().is_file()


INTERNAL = {"aclose", "run", "carry_out", "prune_automatically", "check_resume"}


@pytest.mark.parametrize(
    ("asynchronous", "blocking"), [(Rye, SyncRye), (Threads, SyncThreads), (Graphs, SyncGraphs)]
)
def test_each_method_is_there_with_its_parameters_and_its_documentation(asynchronous, blocking):
    for name, method in inspect.getmembers(asynchronous, inspect.isfunction):
        if name.startswith("_") or (name in INTERNAL and not hasattr(blocking, name)):
            continue
        twin = getattr(blocking, name)
        assert inspect.signature(twin).parameters == inspect.signature(method).parameters
        assert twin.__doc__ == method.__doc__
        assert not inspect.iscoroutinefunction(twin)


def test_rye_has_at_most_fifteen_methods():
    methods = inspect.getmembers(Rye, lambda one: inspect.isfunction(one) or inspect.ismethod(one))
    assert len([name for name, _ in methods if not name.startswith("_")]) <= 15


def test_a_person_is_asked_before_a_model_signs(workspace):
    workspace.write("tools/a/t.sh", "true\n", sign=False)
    asked = []

    async def approve(request):
        asked.append(request.action)
        return True

    model = CallContext(capabilities=frozenset({"rye.sign.tool.a.t"}))
    with workspace.sync(approve=approve) as rye:
        assert len(rye.request_signing("tool:a/t", ctx=model).signed) == 1
    assert asked == ["sign"]


def test_a_project_that_is_none_is_refused_and_leaves_no_thread():
    before = set(threading.enumerate())
    with pytest.raises(ConfigError):
        SyncRye.open("/nowhere")
    assert not set(threading.enumerate()) - before


def test_closing_ends_its_thread_and_may_be_repeated(workspace):
    before = set(threading.enumerate())
    rye = workspace.sync()
    rye.execute(workspace.shell("a/t", "true"))
    rye.close()
    rye.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(20)  # a worker may be on its way out
        assert not thread.is_alive()
    assert "closed" in repr(rye)


def test_after_closing_every_verb_that_needs_it_is_refused(workspace):
    ref = workspace.shell("a/t", "true")
    rye = workspace.sync()
    rye.close()
    for verb in (rye.execute, rye.trace, rye.schema):
        with pytest.raises(RyeClosed):
            verb(ref)


def test_closing_from_another_thread_cancels_what_runs_and_leaves_no_process(workspace):
    os.mkfifo(workspace.project / "pipe")
    ref = workspace.shell("a/t", "echo $$ > pipe; read -r < <(sleep 600)")
    rye = workspace.sync()
    refused: list[BaseException] = []

    def call() -> None:
        try:
            rye.execute(ref)
        except RyeClosed as refusal:
            refused.append(refusal)

    caller = threading.Thread(target=call)
    caller.start()
    pid = int((workspace.project / "pipe").read_text())
    rye.close()
    caller.join(20)
    assert not caller.is_alive()
    assert len(refused) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_an_error_in_the_block_closes_it(workspace):
    before = set(threading.enumerate())
    with pytest.raises(ZeroDivisionError), workspace.sync():
        raise ZeroDivisionError
    assert not set(threading.enumerate()) - before


NEVER_CLOSED = """
import os, sys
from ryecore import SyncRye
rye = SyncRye.open(sys.argv[1], user_space=sys.argv[1])
assert rye.execute("tool:rye/bash", {"command": "echo hi"}).data["stdout"] == "hi\\n"
if sys.argv[2] == "forked":
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        assert status == 3 << 8, status
sys.exit(3)
"""


@pytest.mark.parametrize("how", ["alone", "forked"])
def test_one_that_is_never_closed_keeps_no_interpreter_from_its_end(tmp_path, how):
    done = subprocess.run(
        [sys.executable, "-c", NEVER_CLOSED, str(tmp_path), how],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (3, "")


def test_one_that_is_garbage_is_closed(workspace):
    before = set(threading.enumerate())
    rye = workspace.sync()
    rye.execute("tool:rye/bash", {"command": "true"})
    assert any(thread.name == "ryecore-loop" for thread in threading.enumerate())
    del rye
    until_s = time.monotonic() + 10
    while any(thread.name == "ryecore-loop" for thread in threading.enumerate()):
        assert time.monotonic() < until_s
        gc.collect()  # the loop's thread may refer to it for a moment yet
    assert len(set(threading.enumerate()) - before) <= 1
