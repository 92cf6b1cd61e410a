"""Warm starts from end to end: what a host, a tool's author and a person see of them."""

import os
import time
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from ryecore import Rye
from ryecore.items.spaces import built_in_space
from tests.warm_hosts import children, has_starting, start_of, stats_of, warm_up
from tests.workspace import Workspace, events

pytestmark = pytest.mark.anyio

WHO = """\
import os
def execute(params, project_path):
    return {"pid": os.getpid(), "parent": os.getppid(), "level": os.environ.get("LEVEL"), **params}
"""
RUNTIMES = "tools/rye/core/runtimes/python"


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    before = children()
    yield
    assert children() <= before


async def call(rye: Rye, ref: str, **parameters: object) -> tuple[object, Any]:
    """How a call was started, and what it answered."""
    done = await rye.execute(ref, parameters, trace=True)
    assert done.success, done.error
    return start_of(done), done.data


async def warmed(rye: Rye, ref: str, **parameters: object) -> Any:
    """The answer of the first call that started warm."""
    return (await warm_up(rye, ref, **parameters)).data


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
                while has_starting(rye):
                    await anyio.sleep(0.005)
    async with workspace.open(warm_memory_mib=0) as rye:
        done = await rye.execute(ref, trace=True)
        assert "why_cold" not in events(done.trace, "execute")[0]


async def test_with_no_memory_for_it_every_process_starts_cold(workspace: Workspace) -> None:
    ref = workspace.python("a/who", WHO)
    async with workspace.open(warm_memory_mib=0) as rye:
        assert {(await call(rye, ref))[0] for _ in range(3)} == {"cold"}
        assert stats_of(rye) == ()


async def test_a_tool_that_says_so_starts_cold(workspace: Workspace) -> None:
    ref = workspace.python("a/who", WHO, warm=False)
    async with workspace.open() as rye:
        assert {(await call(rye, ref))[0] for _ in range(3)} == {"cold"}
        assert stats_of(rye) == ()


async def test_a_tool_that_is_not_verified_starts_cold(workspace: Workspace) -> None:
    ref = workspace.python("a/who", WHO)
    path = workspace.path("tools/a/who.py")
    path.write_text(path.read_text() + "# edited\n")
    workspace.environ["RYE_DEV_MODE"] = "1"
    with pytest.warns(UserWarning, match="RYE_DEV_MODE"):
        async with workspace.open() as rye:
            assert {(await call(rye, ref))[0] for _ in range(3)} == {"cold"}


async def test_two_that_are_open_share_nothing(workspace: Workspace) -> None:
    ref = workspace.python("a/who", WHO)
    ours, theirs = ({**workspace.environ, "LEVEL": level} for level in "12")
    async with (
        workspace.open(environ=ours, allow_env=["LEVEL"]) as one,
        workspace.open(environ=theirs, allow_env=["LEVEL"]) as other,
    ):
        assert (await warmed(one, ref))["level"] == "1"
        assert [(await call(other, ref))[0] for _ in range(2)] == ["cold", "cold"]
        assert (await warmed(other, ref))["level"] == "2"
        assert (await warmed(one, ref))["level"] == "1"
        assert not {a.pid for a in stats_of(one)} & {a.pid for a in stats_of(other)}
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
    assert stats_of(rye) == ()


def test_a_host_that_blocks_has_it_too_and_leaves_none(workspace: Workspace) -> None:
    ref = workspace.python("a/who", WHO)
    before = children()
    with workspace.sync() as rye:
        for _ in range(50):
            done = rye.execute(ref, trace=True)
            if start_of(done) == "warm":
                break
            while has_starting(rye):
                time.sleep(0.005)
        assert "after" in str(done)
        assert ", warm start" in str(done)
    assert children() <= before
