"""What runs elsewhere has the result that it has here: on a node, through a queue, on Ray.

One set of runs is made here and at each target, in the same project, and compared: results, errors,
costs and effects. Ids, times and the names of remotes don't count.
"""

import json
import os
import re
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from difflib import unified_diff
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import frozen

from ryecore import CallContext, CancelToken, Rye
from ryecore.errors import RyeError
from tests.forking import WORKERS
from tests.graphs import graph
from tests.matrix import IS_SOAK
from tests.postgres import needs_dbos, needs_server, own_schema
from tests.rays import FACTORY as RAY_FACTORY
from tests.rays import ROOT_FILE, ServedRay, name_cluster, needs_ray
from tests.remotes import connect
from tests.served_node import served_node
from tests.thread_host import FACTORY, PlannedWorkspace
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio

REMOTE = "remote:gpu"
NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
_PASSING: tuple[tuple[str, str], ...] = (
    (r"On gpu: ", ""),  # what ran elsewhere says so
    (r"-\d{10}(-[0-9a-f]{8})?\b", "-ID"),
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "UUID"),
)
_PASSED_OVER = frozenset({"duration_ms", "thread_id", "remote"})  # fmt: skip


@frozen
class Place:
    """A target in a workspace that names it.

    Attributes:
        planned: The workspace.
        options: How a Rye is opened there.
    """

    planned: PlannedWorkspace
    options: Mapping[str, Any]


@frozen
class Case:
    """A run, and what is compared of it.

    Attributes:
        run: Makes it at a target, and returns what it came to.
        is_thread: Whether it is a directive's thread.
        is_quick: Whether it is left to the soak where each run has a process of its own.
    """

    run: Callable[[Rye, PlannedWorkspace, str], Awaitable[object]]
    is_thread: bool = False
    is_quick: bool = False


CASES: dict[str, Case] = {}


def case(*, is_thread: bool = False, is_quick: bool = False) -> Callable[[Any], Any]:
    """Add a run to the suite, by the name of its function."""

    def add(run: Any) -> Any:
        CASES[run.__name__] = Case(run, is_thread, is_quick)
        return run

    return add


@case()
async def a_tool_succeeds(rye: Rye, planned: PlannedWorkspace, target: str) -> object:
    return (await rye.execute("tool:acme/double", {"a": 4}, target=target)).to_dict()


@case(is_quick=True)
async def a_tool_fails(rye: Rye, planned: PlannedWorkspace, target: str) -> object:
    return (await rye.execute("tool:acme/fail", target=target)).to_dict()


@case(is_quick=True)
async def a_tool_runs_out_of_time(rye: Rye, planned: PlannedWorkspace, target: str) -> object:
    done = await rye.execute("tool:acme/wait", target=target, timeout_s=0.3)
    return {**done.to_dict(), "effect_unknown": done.effect_unknown}


@case()
async def a_call_with_wrong_parameters(rye: Rye, planned: PlannedWorkspace, target: str) -> object:
    return await error_of(rye.execute("tool:acme/double", {"a": "four"}, target=target))


@case()
async def a_tool_that_is_missing(rye: Rye, planned: PlannedWorkspace, target: str) -> object:
    return await error_of(rye.execute("tool:acme/missing", target=target))


@case()
async def a_tool_is_cancelled(rye: Rye, planned: PlannedWorkspace, target: str) -> object:
    token, begun = CancelToken(), planned.root / "begun"
    begun.unlink(missing_ok=True)
    os.mkfifo(begun)

    def cancel_once_it_runs() -> None:
        begun.read_text()
        token.cancel()

    canceller = threading.Thread(target=cancel_once_it_runs)
    canceller.start()
    ctx = CallContext(cancellation=token)
    failed = await error_of(rye.execute("tool:acme/wait", target=target, ctx=ctx))
    canceller.join()
    assert (planned.root / "stopped").exists()
    return failed


@case(is_quick=True)
async def a_graph_succeeds(rye: Rye, planned: PlannedWorkspace, target: str) -> object:
    return (await rye.execute("tool:acme/doubles", {"a": 1}, target=target)).to_dict()


@case()
async def a_graph_with_a_thread(rye: Rye, planned: PlannedWorkspace, target: str) -> object:
    return (await rye.execute("tool:acme/flow", target=target)).to_dict()


@case(is_thread=True, is_quick=True)
async def a_thread_succeeds(rye: Rye, planned: PlannedWorkspace, target: str) -> object:
    return await thread_of(rye, "directive:acme/short", target)


@case(is_thread=True, is_quick=True)
async def a_thread_returns_outputs(rye: Rye, planned: PlannedWorkspace, target: str) -> object:
    return await thread_of(rye, "directive:acme/told", target, {"x": "tea"})


@case(is_thread=True)
async def a_thread_calls_a_tool(rye: Rye, planned: PlannedWorkspace, target: str) -> object:
    return await thread_of(rye, "directive:acme/calls", target)


@case(is_thread=True)
async def a_thread_meets_its_limit(rye: Rye, planned: PlannedWorkspace, target: str) -> object:
    return await thread_of(rye, "directive:acme/short", target, limits={"turns": 1})


@case(is_thread=True)
async def a_thread_with_wrong_inputs(rye: Rye, planned: PlannedWorkspace, target: str) -> object:
    return await error_of(rye.execute("directive:acme/told", {}, thread="fork", target=target))


@case(is_thread=True)
async def a_thread_is_cancelled(rye: Rye, planned: PlannedWorkspace, target: str) -> object:
    thread = await rye.start("directive:acme/gated", target=target)
    await planned.begun("gated")
    (planned.root / "gated.begun").unlink()
    await thread.cancel()
    done = await thread.result()
    return {"ended": done.ended, "status": done.status, "cost": str(await thread.cost())}


async def error_of(call: Awaitable[Any]) -> dict[str, object]:
    """The error of a call, as its caller sees it."""
    with pytest.raises(RyeError) as failed:
        await call
    error = failed.value
    return {"class": type(error).__name__, "message": error.message, "next": error.next_step}


async def thread_of(
    rye: Rye, ref: str, target: str, inputs: Any = None, **options: Any
) -> dict[str, object]:
    """The result of a directive's thread, with its account."""
    done = await rye.execute(ref, inputs, thread="fork", target=target, **options)
    account = await rye.threads.account(done.to_dict()["thread_id"])
    return {**done.to_dict(), "own": str(account.own), "held": str(account.held)}


def comparable(found: object) -> object:
    """What a run came to, without what is another's each time."""
    if isinstance(found, Mapping):
        return {name: comparable(one) for name, one in found.items() if name not in _PASSED_OVER}
    if isinstance(found, list | tuple):
        return [comparable(one) for one in found]
    if isinstance(found, str):
        for pattern, text in _PASSING:
            found = re.sub(pattern, text, found)
    return found


def furnish(planned: PlannedWorkspace) -> None:
    """Write what the runs execute."""
    workspace, root = planned.workspace, planned.root
    doubled = "def execute(params, project_path):\n    return {'twice': params['a'] * 2}"
    workspace.python("acme/double", f"CONFIG_SCHEMA = {NUMBERS!r}\n\n\n{doubled}")
    workspace.shell("acme/fail", "echo out; echo why >&2; exit 3")
    trap = f"trap 'touch {root}/stopped; exit' TERM"
    workspace.shell(
        "acme/wait", f"{trap}; [ -p {root}/begun ] && echo up > {root}/begun; sleep 60 & wait"
    )
    planned.write("short", ["mark", {"text": "short"}])
    planned.write("gated", ["mark", {"text": "gated"}], ["gate", {"name": "gated"}])
    text = '<input name="x" type="string" required="true">A text.</input>'
    planned.write("told", ["mark", {"text": "{input:x}"}], inputs=text)
    call = {"item_id": "tool:acme/double", "parameters": {"a": 2}}
    planned.write("calls", ["rye_execute", call], ["rye_execute", {"item_id": "tool:acme/fail"}])
    steps = {
        "double": {
            "action": {"item_id": "tool:acme/double", "params": {"a": "${inputs.a}"}},
            "assign": {"twice": "${result.twice}"},
            "next": "done",
        },
        "done": {"type": "return", "output": {"twice": "${state.twice}"}},
    }
    graph(workspace, steps, "acme/doubles", inputs={"a": {"type": "integer"}}, state={"twice": 0})
    child = planned.write("child", ["mark", {"text": "child"}])
    nodes = {"one": {"action": {"item_id": child, "thread": "fork"}}}
    graph(workspace, nodes, "acme/flow", permissions=("rye.execute.*",))


async def assert_same(place: Place, *, only_threads: bool = False, is_slow: bool = False) -> None:
    """Make each run here and at the target, and compare."""
    planned = place.planned
    marks = planned.root / "marks"
    differ: list[str] = []
    async with planned.open(**place.options) as rye:
        for name, one in CASES.items():
            if (only_threads and not one.is_thread) or (is_slow and one.is_quick and not IS_SOAK):
                continue
            came: list[object] = []
            for target in ("local", REMOTE):
                marks.unlink(missing_ok=True)
                (planned.root / "stopped").unlink(missing_ok=True)
                with anyio.fail_after(60):
                    found = comparable(await one.run(rye, planned, target))
                came.append({"found": found, "marks": marks.read_text() if marks.exists() else ""})
            differ += difference(name, came[0], came[1])
    assert not differ, "\n".join(["", *differ])


def difference(name: str, here: object, there: object) -> Iterator[str]:
    """The lines in which what a run came to differs."""
    if here != there:
        lines = [
            json.dumps(one, indent=1, default=str, sort_keys=True).splitlines()
            for one in (here, there)
        ]
        yield name
        yield from unified_diff(*lines, "here", "there", n=2, lineterm="")


@pytest.fixture
def planned(workspace: Workspace) -> PlannedWorkspace:
    planned = PlannedWorkspace(workspace)
    furnish(planned)
    return planned


@pytest.mark.usefixtures("forked_walkers")
async def test_a_node(planned: PlannedWorkspace) -> None:
    with served_node(planned.root / "node", "--deps", FACTORY, environ=planned.environ) as node:
        connect(planned.workspace, node)
        await assert_same(Place(planned, {}))


@pytest.mark.timeout(300)  # each run is begun in a process that imports Ray
@pytest.mark.usefixtures("forked_walkers")
@needs_server
@needs_ray
async def test_a_ray_cluster(
    planned: PlannedWorkspace, ray_cluster: ServedRay, postgres_address: str, tmp_path: Path
) -> None:
    name_cluster(planned.workspace)
    ray_cluster.root_file.write_text(str(planned.root))
    planned.workspace.environ[ROOT_FILE] = str(ray_cluster.root_file)
    state = own_schema(postgres_address)
    place = Place(planned, {"state": state, "deps_factory": RAY_FACTORY})
    await assert_same(place, is_slow=True)


@pytest.mark.usefixtures("forked_walkers")
@needs_server
@needs_dbos
async def test_a_queue(planned: PlannedWorkspace, postgres_address: str, tmp_path: Path) -> None:
    state = own_schema(postgres_address)
    queue = {"queue": f"{state}&queue=default"}
    remotes = {"remotes": {"gpu": queue}}
    planned.workspace.write("config/remotes/remotes.yaml", json.dumps(remotes))
    planned.workspace.environ["RYE_STATE"] = state
    command = ("node", "work", "--deps", FACTORY, "--project", str(planned.workspace.project))
    options: Any = {"stderr": subprocess.PIPE, "imported": WORKERS}
    with planned.fork("ryecore.cli", *command, **options) as worker:
        assert worker.stderr is not None
        line = worker.stderr.readline().decode()
        assert line.startswith("ryecore works as "), line
        try:
            # A queue runs threads; what tools and graphs do there, they do within one.
            await assert_same(Place(planned, {"state": state}), only_threads=True)
        finally:
            worker.kill()
