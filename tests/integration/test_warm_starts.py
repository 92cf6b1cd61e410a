"""Warm starts from end to end: what a host, a tool's author and a person see of them."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from ryecore import ExecutionResult, Rye
from ryecore.items.spaces import built_in_space
from ryecore.lillux.processes import TemplateStats
from tests.workspace import Workspace, events

pytestmark = pytest.mark.anyio

WHO = """\
import os
def execute(params, project_path):
    return {"pid": os.getpid(), "parent": os.getppid(), "level": os.environ.get("LEVEL"), **params}
"""
RUNTIMES = "tools/rye/core/runtimes/python"


def children() -> set[int]:
    """The children of this process, whichever of its threads started them."""
    return {
        int(pid)
        for listing in Path("/proc/self/task").glob("*/children")
        for pid in listing.read_text().split()
    }


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    before = children()
    yield
    assert children() <= before


def start_of(done: ExecutionResult) -> object:
    """How a call was started."""
    return events(done.trace, "execute")[0]["start"]


async def call(rye: Rye, ref: str, **parameters: object) -> tuple[object, Any]:
    """How a call was started, and what it answered."""
    done = await rye.execute(ref, parameters, trace=True)
    assert done.success, done.error
    return start_of(done), done.data


async def warmed(rye: Rye, ref: str, **parameters: object) -> Any:
    """The answer of the first call that started warm."""
    with anyio.fail_after(60):
        while True:
            start, answer = await call(rye, ref, **parameters)
            if start == "warm":
                return answer


def templates(rye: Rye) -> tuple[TemplateStats, ...]:
    pool = rye._parts._executor._pool
    return () if pool is None else pool.stats()


async def test_a_tool_that_is_called_again_starts_warm_and_answers_the_same(
    workspace: Workspace,
) -> None:
    ref = workspace.python("a/who", WHO)
    async with workspace.open() as rye:
        cold = [await call(rye, ref, n=n) for n in (1, 2)]
        assert [start for start, _ in cold] == ["cold", "cold"]
        answers = [answer for _, answer in cold]
        answers += [await warmed(rye, ref, n=n) for n in (3, 4, 5)]
    assert len({answer["pid"] for answer in answers}) == 5
    assert {answer["parent"] for answer in answers} == {os.getpid()}
    assert [answer["n"] for answer in answers] == [1, 2, 3, 4, 5]


async def test_many_calls_at_once_are_each_answered_by_a_process_of_their_own(
    workspace: Workspace,
) -> None:
    ref = workspace.python("a/who", WHO)
    async with workspace.open() as rye:
        await warmed(rye, ref)
        answers: list[Any] = []

        async def one(n: int) -> None:
            answers.append((await rye.execute(ref, {"n": n})).data)

        async with anyio.create_task_group() as tasks:
            for n in range(50):
                tasks.start_soon(one, n)
    assert sorted(answer["n"] for answer in answers) == list(range(50))
    assert len({answer["pid"] for answer in answers}) == 50


async def test_the_trace_says_why_a_call_was_cold(workspace: Workspace) -> None:
    yaml = built_in_space().root / RUNTIMES / "function.yaml"
    workspace.write(f"{RUNTIMES}/function.yaml", yaml.read_bytes())
    refusal = "import os\nos.write(3, b'no\\0it has two threads')\n"
    workspace.write(f"{RUNTIMES}/template.py", refusal)
    ref = workspace.python("a/who", WHO)
    async with workspace.open() as rye:
        first = await rye.execute(ref, trace=True)
        assert "second call within a minute" in events(first.trace, "execute")[0]["why_cold"]
        with anyio.fail_after(60):
            while "two threads" not in str(await rye.execute(ref, trace=True)):
                pass
    async with workspace.open(warm_memory_mib=0) as rye:
        done = await rye.execute(ref, trace=True)
        assert "why_cold" not in events(done.trace, "execute")[0]


async def test_with_no_memory_for_it_every_process_starts_cold(workspace: Workspace) -> None:
    ref = workspace.python("a/who", WHO)
    async with workspace.open(warm_memory_mib=0) as rye:
        assert {(await call(rye, ref))[0] for _ in range(6)} == {"cold"}
        assert templates(rye) == ()


async def test_a_tool_that_says_so_starts_cold(workspace: Workspace) -> None:
    ref = workspace.python("a/who", WHO, warm=False)
    async with workspace.open() as rye:
        assert {(await call(rye, ref))[0] for _ in range(6)} == {"cold"}
        assert templates(rye) == ()


async def test_a_tool_that_is_not_verified_starts_cold(workspace: Workspace) -> None:
    ref = workspace.python("a/who", WHO)
    path = workspace.path("tools/a/who.py")
    path.write_text(path.read_text() + "# edited\n")
    workspace.environ["RYE_DEV_MODE"] = "1"
    with pytest.warns(UserWarning, match="RYE_DEV_MODE"):
        async with workspace.open() as rye:
            assert {(await call(rye, ref))[0] for _ in range(6)} == {"cold"}


async def test_a_tool_that_was_edited_is_served_as_it_is_now(workspace: Workspace) -> None:
    ref = workspace.python("a/who", WHO)
    async with workspace.open() as rye:
        await warmed(rye, ref)
        workspace.python("a/who", WHO.replace("**params", "'version': 2, **params"))
        start, answer = await call(rye, ref)
        assert (start, answer["version"]) == ("cold", 2)
        assert (await warmed(rye, ref))["version"] == 2


async def test_a_module_that_was_edited_is_served_as_it_is_now(workspace: Workspace) -> None:
    workspace.write("tools/a/__init__.py", "")
    workspace.write("tools/a/helper.py", "VALUE = 1\n")
    body = "import helper\ndef execute(params, project_path):\n    return helper.VALUE\n"
    ref = workspace.python("a/tool", body)
    async with workspace.open() as rye:
        assert await warmed(rye, ref) == 1
        workspace.write("tools/a/helper.py", "VALUE = 2\n")
        assert await call(rye, ref) == ("cold", 2)
        assert await warmed(rye, ref) == 2


async def test_a_variable_that_was_changed_is_seen_at_once(workspace: Workspace) -> None:
    ref = workspace.python("a/who", WHO)
    env = workspace.project / ".env"
    env.write_text("LEVEL=1\n")
    async with workspace.open(allow_env=["LEVEL"]) as rye:
        assert (await warmed(rye, ref))["level"] == "1"
        env.write_text("LEVEL=2\n")
        start, answer = await call(rye, ref)
        assert (start, answer["level"]) == ("cold", "2")


async def test_a_template_that_was_edited_serves_nobody_any_more(workspace: Workspace) -> None:
    for name in ("function.yaml", "template.py"):
        ours = built_in_space().root / RUNTIMES / name
        workspace.write(f"{RUNTIMES}/{name}", ours.read_bytes())
    ref = workspace.python("a/who", WHO)
    async with workspace.open() as rye:
        await warmed(rye, ref)
        before = {one.pid for one in templates(rye)}
        path = workspace.path(f"{RUNTIMES}/template.py")
        path.write_bytes(path.read_bytes() + b"# edited\n")
        workspace.sign(path)
        start, _ = await call(rye, ref)
        assert start == "cold"
        await warmed(rye, ref)
        assert {one.pid for one in templates(rye) if one.state == "ready"} - before


async def test_two_that_are_open_share_nothing(workspace: Workspace) -> None:
    ref = workspace.python("a/who", WHO)
    async with workspace.open() as one, workspace.open() as other:
        await warmed(one, ref)
        assert [(await call(other, ref))[0] for _ in range(2)] == ["cold", "cold"]
        await warmed(other, ref)
        assert not {a.pid for a in templates(one)} & {a.pid for a in templates(other)}
        await one.aclose()
        await warmed(other, ref)


async def test_closing_waits_until_no_process_is_left(workspace: Workspace) -> None:
    ref = workspace.python("a/who", WHO)
    before = children()
    rye = workspace.open()
    async with rye:
        await warmed(rye, ref)
        assert children() - before
    assert children() <= before
    assert templates(rye) == ()


def test_a_host_that_blocks_has_it_too_and_leaves_none(workspace: Workspace) -> None:
    ref = workspace.python("a/who", WHO)
    before = children()
    with workspace.sync() as rye:
        for _ in range(500):
            done = rye.execute(ref, trace=True)
            if start_of(done) == "warm":
                break
        assert "after" in str(done)
        assert ", warm start" in str(done)
    assert children() <= before
