"""Servers that answer badly about the tasks of calls, and what callers are told then."""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ryecore import ExecutionResult
from ryecore.mcp_client.task_files import OpenTasks
from tests.integration.test_mcp_eras import MODERN, http_server
from tests.integration.test_mcp_http import pinned
from tests.integration.test_mcp_sessions import Forgetful, forgetful
from tests.mcp_items import server_item
from tests.workspace import Workspace

pytestmark = pytest.mark.usefixtures("forked_connectors")

TOOL = {"name": "echo", "inputSchema": {"type": "object"}}
SAID = {"content": [{"type": "text", "text": "said"}]}
EXTENSION = {"io.modelcontextprotocol/tasks": {}}
ERROR = {"code": -32603, "message": "it broke"}

ASKED = {
    "method": "elicitation/create",
    "params": {"message": "?", "requestedSchema": {"type": "object", "properties": {}}},
}

Get = Callable[[int], dict[str, Any] | int | None]


def task(task_id: str = "t", status: str = "working", **more: Any) -> dict[str, Any]:
    when = "2026-01-01T00:00:00Z"
    told = {"taskId": task_id, "status": status, "createdAt": when, "lastUpdatedAt": when}
    pauses = {"ttl": None, "ttlMs": None, "pollInterval": 50, "pollIntervalMs": 50}
    return {**told, **pauses, **more}


ASKING = task(status="input_required", inputRequests={"k": ASKED})


class Modern:
    """A server of 2026 whose calls become a task.

    Args:
        created: The task as it is created.
        get: Returns it by how often it was asked for; None refuses with HTTP 400.
        cancel: Answers its cancellation; an error, a result, or None as above.
    """

    def __init__(
        self, created: Mapping[str, Any], get: Get, cancel: Callable[[], Any] = lambda: MODERN
    ) -> None:
        self.call = {"resultType": "task", **created}
        self.get, self.cancel = get, cancel
        self.update: Callable[[Mapping[str, Any]], Any] = lambda _: MODERN
        self.asked: list[str] = []

    def __call__(self, method: str, message: Mapping[str, Any]) -> dict[str, Any] | int | None:
        self.asked.append(method)
        match method:
            case "server/discover":
                offered = {"tools": {}, "extensions": EXTENSION}
                return MODERN | {"supportedVersions": ["2026-07-28"], "capabilities": offered}
            case "tools/list":
                return MODERN | {"tools": [TOOL]}
            case "tools/call":
                return MODERN | self.call
            case "tasks/get":
                told = self.get(self.asked.count(method))
                return MODERN | told if isinstance(told, dict) else told
            case "tasks/cancel":
                answer: dict[str, Any] | None = self.cancel()
                return answer
            case "tasks/update":
                taken: dict[str, Any] | int | None = self.update(message["params"])
                return taken
        return None


def legacy(get: Get, result: Callable[[int], dict[str, Any] | None]) -> Any:
    """A server of 2025 whose calls become a task; its result by how often it was asked for."""
    asked: list[str] = []

    def answer(method: str, _: Mapping[str, Any]) -> dict[str, Any] | None:
        asked.append(method)
        match method:
            case "initialize":
                offered = {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}}
                about = {"serverInfo": {"name": "old", "version": "1"}, "capabilities": offered}
                return {"protocolVersion": "2025-11-25", **about}
            case "tools/list":
                return {"tools": [{**TOOL, "execution": {"taskSupport": "optional"}}]}
            case "tools/call":
                return {"task": task()}
            case "tasks/get":
                return get(asked.count(method))
            case "tasks/result":
                return result(asked.count(method))
            case "tasks/cancel":
                return {}
        return None

    return answer


def call(
    workspace: Workspace, server: Any, *, ask: Any = None, may_ask: Sequence[str] = ()
) -> ExecutionResult:
    with http_server(server) as recorder, workspace.sync(ask=ask) as rye:
        config = {"transport": "http", "url": recorder.url}
        workspace.yaml(
            "mcp/servers/test", executor_id=None, tool_type="mcp_server", may_ask=list(may_ask),
            config=config,
        )  # fmt: skip
        return rye.execute(pinned(workspace, rye))


def left(workspace: Workspace) -> list[Path]:
    return [*(workspace.user / ".ai/state/mcp/tasks").rglob("*.json")]


def test_a_task_that_has_ended_as_it_is_created_is_asked_for_its_result(
    workspace: Workspace,
) -> None:
    server = Modern(task(status="completed"), lambda _: task(status="completed", result=SAID))
    done = call(workspace, server)
    assert done.success, done.error
    assert "tasks/cancel" not in server.asked


@pytest.mark.parametrize(
    ("created", "get"),
    [
        (task(), lambda _: None),
        (task(ttlMs=0), lambda _: task(ttlMs=0)),
        (task(), lambda _: ASKING),
        (task("x" * 100_000), lambda _: task()),
    ],
    ids=["gone", "kept-too-short", "unanswerable", "endless-id"],
)  # fmt: skip
def test_a_call_whose_task_is_lost_says_that_its_effect_is_unknown(
    workspace: Workspace, created: Mapping[str, Any], get: Get
) -> None:
    done = call(workspace, Modern(created, get))
    assert not done.success
    assert done.effect_unknown, done.error
    assert len(str(done.error)) < 1000
    assert not left(workspace)


def test_a_task_that_fails_or_is_cancelled_at_its_server_says_so_and_why(
    workspace: Workspace,
) -> None:
    failed = call(workspace, Modern(task(), lambda _: task(status="failed", error=ERROR)))
    assert (failed.error, failed.effect_unknown) == ("it broke", False)
    why = task(status="cancelled", statusMessage="no time")
    cancelled = call(workspace, Modern(task(), lambda _: why))
    assert cancelled.error == "the task was cancelled: no time"


@pytest.mark.parametrize("status", ["completed", "input_required"])
def test_a_result_of_2025_is_asked_for_again_where_it_was_lost_on_its_way(
    workspace: Workspace, status: str
) -> None:
    done = call(
        workspace, legacy(lambda _: task(status=status), lambda n: None if n == 1 else SAID)
    )
    assert done.success, done.error


def test_a_result_of_2025_that_never_comes_leaves_its_effect_unknown(workspace: Workspace) -> None:
    done = call(workspace, legacy(lambda _: task(status="completed"), lambda _: None))
    assert not done.success
    assert done.effect_unknown


@pytest.mark.parametrize(
    "refusal", [503, {"error": ERROR}, {"error": {"code": -32602, "message": "not now"}}],
    ids=["gateway", "error", "refusal"],
)  # fmt: skip
def test_an_answer_that_does_not_arrive_is_sent_again_and_not_asked_for_again(
    workspace: Workspace, refusal: Any
) -> None:
    sent: list[Mapping[str, Any]] = []
    asked: list[Any] = []

    def update(params: Mapping[str, Any]) -> Any:
        sent.append(params["inputResponses"])
        return refusal if len(sent) == 1 else MODERN

    async def ask(question: Any, /) -> Mapping[str, object]:
        asked.append(question)
        return {"action": "accept", "content": {"name": "Ada"}}

    ended = task(status="completed", result=SAID)
    server = Modern(task(), lambda _: ended if len(sent) == 2 else ASKING)
    server.update = update
    done = call(workspace, server, ask=ask, may_ask=["elicit"])
    assert done.success, done.error
    assert "tasks/cancel" not in server.asked
    assert len(asked) == 1
    assert sent == [{"k": {"action": "accept", "content": {"name": "Ada"}}}] * 2


def test_answers_that_never_arrive_leave_the_effect_unknown(workspace: Workspace) -> None:
    async def ask(_: Any, /) -> Mapping[str, object]:
        return {"action": "decline"}

    server = Modern(task(), lambda _: ASKING)
    server.update = lambda _: None
    done = call(workspace, server, ask=ask, may_ask=["elicit"])
    assert done.effect_unknown
    assert server.asked.count("tasks/update") == 6
    assert server.asked[-1] == "tasks/cancel"


@pytest.mark.parametrize(
    ("fault", "count"), [(503, 8), (0, 1), (0, 3)], ids=["gateway", "cut", "cut-thrice"]
)
def test_a_task_is_followed_beyond_a_restart_of_its_server(
    workspace: Workspace, fault: int, count: int
) -> None:
    ended = task(status="completed", result=SAID)
    server = Modern(task(), lambda n: fault if n <= count else ended)
    done = call(workspace, server)
    assert done.success, done.error
    assert "tasks/cancel" not in server.asked
    assert server.asked.count("tools/call") == 1
    assert not left(workspace)


class ForgetfulOfTasks(Forgetful):
    """A server of 2025-11-25 that forgets a session in which a task is asked for."""

    def __init__(self) -> None:
        super().__init__(404, "", "tasks/get")
        self.asked: list[str] = []
        self.server = legacy(lambda _: task(status="completed"), lambda _: SAID)

    def result(self, method: str, message: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(method)
        if method == "initialize":
            self.sessions += 1
        result: dict[str, Any] = self.server(method, message) or {}
        return result


def test_a_task_is_followed_in_a_new_session_once_its_own_is_forgotten(
    workspace: Workspace,
) -> None:
    server = ForgetfulOfTasks()
    with forgetful(server) as url, workspace.sync() as rye:
        server_item(workspace, transport="http", url=url)
        done = rye.execute(pinned(workspace, rye))
    assert done.success, done.error
    assert server.has_forgotten
    assert server.asked.count("tools/call") == 1


def test_other_calls_are_served_while_a_task_is_followed_beyond_a_restart(
    workspace: Workspace,
) -> None:
    is_back = threading.Event()
    states: list[Any] = []

    def get(number: int) -> Any:
        is_back.set() if number > 1 else None
        return 0 if number == 1 else (states or [task()])[0]

    server = Modern(task(), get)
    with http_server(server) as recorder, workspace.sync() as rye:
        server_item(workspace, transport="http", url=recorder.url)
        ref = pinned(workspace, rye)
        with ThreadPoolExecutor(1) as calls:
            followed = calls.submit(rye.execute, ref)
            assert is_back.wait(20)
            server.call = SAID
            other = rye.execute(ref)
            states.append(task(status="completed", result={"content": []}))
            assert followed.result().success
    assert other.data["content"] == SAID["content"]  # type: ignore[index]
    assert server.asked.count("tools/call") == 2


def leave(workspace: Workspace, server: Modern, url: str, count: int) -> None:
    """Leave files of tasks as processes do that were killed."""
    tasks = OpenTasks(workspace.user, url)
    for number in range(count):
        kept = tasks.keep(f"left-{number}", "echo")
        assert kept is not None
        with kept:
            pass
    server.call = SAID


def begin_session(workspace: Workspace, url: str) -> None:
    """Call a tool in a session of its own."""
    with workspace.sync() as rye:
        server_item(workspace, transport="http", url=url)
        done = rye.execute(pinned(workspace, rye))
        assert done.success, done.error


def test_a_left_task_is_forgotten_once_its_server_cannot_know_it(workspace: Workspace) -> None:
    server = Modern(task(), lambda _: task(), lambda: None)
    with http_server(server) as recorder:
        leave(workspace, server, recorder.url, 2)
        begin_session(workspace, recorder.url)
        old, new = left(workspace)  # it may be busy
        days_ago = time.time() - 8 * 24 * 3600
        os.utime(old, (days_ago, days_ago))
        begin_session(workspace, recorder.url)
        assert left(workspace) == [new]
        server.cancel = lambda: {"error": {"code": -32601, "message": "Method not found"}}
        begin_session(workspace, recorder.url)
        assert not left(workspace)


def test_a_server_whose_cancellation_hangs_is_called_all_the_same(workspace: Workspace) -> None:
    until = threading.Event()  # the session waits for 2 s of it, as this test does
    server = Modern(task(), lambda _: task(), lambda: until.wait(60) and None)
    with http_server(server) as recorder, workspace.sync() as rye:
        try:
            server_item(workspace, transport="http", url=recorder.url, startup_timeout=5)
            leave(workspace, server, recorder.url, 4)
            done = rye.execute(pinned(workspace, rye))
            assert done.success, done.error
            assert server.asked.count("tasks/cancel") == 1
        finally:
            until.set()
