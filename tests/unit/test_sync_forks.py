"""SyncRye in forked children, as gunicorn's preloading and Celery's workers have it."""

import json
import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ryecore import SyncRye
from ryecore.errors import InputError, RyeClosed
from tests.graphs import adding
from tests.workspace import Workspace

_TIMEOUT_S = 30


def in_fork(body: Callable[[], Any]) -> Any:
    """What a body gives in a forked child, which ends after it."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            try:
                document = {"gives": body()}
            except BaseException as error:
                document = {"error": f"{type(error).__name__}: {error}"}
            os.write(write, json.dumps(document).encode())
        finally:
            os._exit(0)
    os.close(write)
    killer = threading.Timer(_TIMEOUT_S, os.kill, (child, 9))
    killer.start()
    with open(read, "rb") as answer:
        text = answer.read()
    os.waitpid(child, 0)
    killer.cancel()
    assert text, "the child hung"
    document = json.loads(text)
    assert "error" not in document, document["error"]
    return document["gives"]


@pytest.fixture
def cat(workspace: Workspace) -> str:
    return workspace.shell("a/cat", "cat")


def call(rye: SyncRye, ref: str, number: int) -> int:
    return int(rye.execute(ref, {"n": number}).raise_for_status().data["n"])


@pytest.mark.parametrize("is_used", [True, False])
def test_it_works_in_a_forked_child_and_goes_on_in_the_parent(workspace, cat, is_used):
    with workspace.sync() as rye:
        if is_used:
            assert call(rye, cat, 1) == 1
        assert in_fork(lambda: [call(rye, cat, 2), call(rye, cat, 3)]) == [2, 3]
        assert call(rye, cat, 4) == 4


def test_several_threads_of_a_child_may_call_it_first(workspace, cat):
    def body() -> list[int]:
        with ThreadPoolExecutor(8) as pool:
            numbers = list(pool.map(lambda n: call(rye, cat, n), range(24)))
        loops = [one for one in threading.enumerate() if one.name == "ryecore-loop"]
        assert len(loops) == 1
        return numbers

    with workspace.sync() as rye:
        call(rye, cat, 1)
        assert in_fork(body) == list(range(24))


def test_it_works_in_a_worker_of_multiprocessing(workspace, cat):
    with workspace.sync() as rye:
        call(rye, cat, 1)
        answers = multiprocessing.get_context("fork").SimpleQueue()
        worker = multiprocessing.get_context("fork").Process(
            target=lambda: answers.put(call(rye, cat, 7)), daemon=True
        )
        worker.start()
        worker.join(_TIMEOUT_S)
        try:
            assert worker.exitcode == 0
            assert answers.get() == 7
        finally:
            worker.kill()


def test_a_child_may_be_forked_while_calls_are_under_way(workspace, cat):
    os.mkfifo(workspace.project / "pipe")
    slow = workspace.shell("a/slow", "cat pipe")
    with workspace.sync() as rye, ThreadPoolExecutor(4) as pool:
        waiting = pool.submit(lambda: rye.execute(slow).data["stdout"])
        others = [pool.submit(call, rye, cat, number) for number in range(3)]
        assert in_fork(lambda: call(rye, cat, 5)) == 5
        (workspace.project / "pipe").write_text("done\n")
        assert waiting.result(_TIMEOUT_S) == "done\n"
        assert [one.result(_TIMEOUT_S) for one in others] == [0, 1, 2]


def test_a_grandchild_and_a_child_that_forks_from_another_thread_work(workspace, cat):
    def from_a_thread() -> int:
        with ThreadPoolExecutor(1) as pool:
            return int(pool.submit(in_fork, lambda: call(rye, cat, 3)).result())

    with workspace.sync() as rye:
        assert in_fork(lambda: [call(rye, cat, 1), in_fork(lambda: call(rye, cat, 2))]) == [1, 2]
        assert from_a_thread() == 3
        assert call(rye, cat, 4) == 4


def test_closing_in_a_child_closes_nothing_of_the_parent(workspace, cat):
    def body() -> str:
        call(rye, cat, 2)
        rye.close()
        with pytest.raises(RyeClosed):
            call(rye, cat, 3)
        return repr(rye)

    with workspace.sync() as rye:
        call(rye, cat, 1)
        assert in_fork(body).endswith(", closed)")
        assert in_fork(rye.close) is None
        assert call(rye, cat, 4) == 4


def test_one_that_was_closed_before_the_fork_stays_so(workspace, cat):
    rye = workspace.sync()
    rye.close()

    def body() -> bool:
        with pytest.raises(RyeClosed):
            call(rye, cat, 1)
        return True

    assert in_fork(body)


def test_what_was_taken_before_the_fork_works_in_a_child_or_says_what_to_do(workspace):
    ref = adding(workspace)
    with workspace.sync() as rye:
        graphs, threads = rye.graphs, rye.threads
        run = graphs.start(ref, {"a": 1})
        assert run.result().success

        def body() -> list[object]:
            with pytest.raises(InputError) as refusal:
                run.result()
            done = graphs.run(ref, {"a": 1})
            return [done.success, len(threads.list(all=True)), str(refusal.value)]

        success, runs, refusal = in_fork(body)
        assert (success, runs) == (True, 2)
        assert f"rye.graphs.show({run.run_id!r})" in refusal
        assert graphs.run(ref, {"a": 1}).success
