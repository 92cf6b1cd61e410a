"""SyncRye's calls that an exception of a signal's handler interrupts."""

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from ryecore import CallContext
from tests.graphs import graph
from tests.unit.lillux.system import children

SLEEPS = "echo $$ > pipe; read -r < <(sleep 600)"


class SoftTimeLimitExceeded(Exception):
    """What Celery raises in a worker's main thread."""


def _raise(number: int, frame: object) -> None:
    raise SoftTimeLimitExceeded


@pytest.fixture(params=[signal.SIGINT, signal.SIGUSR1], ids=["SIGINT", "soft time limit"])
def interrupt(request) -> Iterator[tuple[int, type[BaseException]]]:
    """A signal, and what its handler raises."""
    number = request.param
    handler = signal.default_int_handler if number == signal.SIGINT else _raise
    before = signal.signal(number, handler)
    yield number, KeyboardInterrupt if number == signal.SIGINT else SoftTimeLimitExceeded
    signal.signal(number, before)


@contextmanager
def interrupted_by(number: int, pipe: Path, count: int = 1) -> Iterator[list[int]]:
    """Send this process a signal once a tool has written its process's number; that number."""
    os.mkfifo(pipe)
    found: list[int] = []

    def send() -> None:
        found.append(int(pipe.read_text()))
        for _ in range(count):
            os.kill(os.getpid(), number)

    sender = threading.Thread(target=send)
    sender.start()
    yield found
    sender.join(20)


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_the_process_of_an_interrupted_call_is_gone_and_the_next_call_works(workspace, interrupt):
    number, kind = interrupt
    slow, quick = workspace.shell("a/slow", SLEEPS), workspace.shell("a/quick", "echo hi")
    with workspace.sync() as rye, interrupted_by(number, workspace.project / "pipe") as found:
        with pytest.raises(kind):
            rye.execute(slow)
        assert is_gone(found[0])
        assert rye.execute(quick).data["stdout"] == "hi\n"


def test_an_interrupted_graph_has_ended_and_says_so(workspace, interrupt):
    number, kind = interrupt
    workspace.shell("acme/slow", SLEEPS)
    nodes = {"wait": {"action": {"item_id": "tool:acme/slow"}, "next": "done"},
             "done": {"type": "return"}}  # fmt: skip
    ref = graph(workspace, nodes)
    with workspace.sync() as rye, interrupted_by(number, workspace.project / "pipe") as found:
        with pytest.raises(kind):
            rye.graphs.run(ref)
        assert is_gone(found[0])
        assert [one.status for one in rye.threads.list(all=True)] == ["cancelled"]


def test_other_threads_calls_are_left_alone(workspace, interrupt):
    number, kind = interrupt
    slow, other = workspace.shell("a/slow", SLEEPS), workspace.shell("a/other", "cat other")
    os.mkfifo(workspace.project / "other")
    with workspace.sync() as rye, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: rye.execute(other).data["stdout"])
        with interrupted_by(number, workspace.project / "pipe"), pytest.raises(kind):
            rye.execute(slow)
        (workspace.project / "other").write_text("done\n")
        assert waiting.result(20) == "done\n"


def test_a_second_interrupt_is_not_kept_waiting(workspace, interrupt):
    number, kind = interrupt
    workspace.write("tools/a/t.sh", "true\n", sign=False)
    release = anyio.Event()

    async def approve(request: object) -> bool:
        os.kill(os.getpid(), number)
        try:
            await anyio.sleep_forever()
        finally:
            os.kill(os.getpid(), number)
            with anyio.CancelScope(shield=True):
                await release.wait()

    model = CallContext(capabilities=frozenset({"rye.sign.tool.a.t"}))
    with workspace.sync(approve=approve) as rye:
        with pytest.raises(kind):
            rye.request_signing("tool:a/t", ctx=model)
        assert rye.execute("tool:rye/bash", {"command": "echo hi"}).success
        release.set()


def test_an_interrupt_at_any_moment_leaves_nothing_and_breaks_nothing(workspace, interrupt):
    number, kind = interrupt
    quick, interrupted = workspace.shell("a/quick", "true"), 0
    with workspace.sync() as rye:
        rye.execute(quick)
        kept = set(children())
        for number_of_call in range(60):
            sender = threading.Timer(number_of_call / 3000, os.kill, (os.getpid(), number))
            try:
                sender.start()
                rye.execute(quick)
                sender.join()
            except kind:
                interrupted += 1
            sender.join()
        assert rye.execute(quick).success
        assert set(children()) <= kept
    assert interrupted == 60
