"""Members of a foreach share a budget: they wait for what others hold, and fail only without it."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from ryecore import Agent
from ryecore.llm import Capabilities, Price
from ryecore.llm.result import Usage
from ryecore.testing import FunctionProvider, call, say
from tests.unit.graph.asking import Asking, gives

USED = Usage(100, 10)
COST = 100 * 300 + 10 * 1500
"""What `USED` costs at 3 and 15 USD per million tokens, in microcents."""

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


async def _answer(request: Any) -> Any:
    await anyio.lowlevel.checkpoint()
    return say("well", usage=USED)


def _host(root: Path, rows: int, *, at_once: int = 20, limits: str = "", **more: Any) -> Asking:
    host = Asking(
        root,
        **({"model": _answer} | more),
        price_of=lambda *_: Price(input="3", output="15"),
        unpriced_models=frozenset(),
    )
    directive = host.write("acme/x", permissions="", limits=limits)
    host.graph(
        {
            "each": {
                "type": "foreach", "over": list(range(rows)), "parallel": True,
                "max_concurrency": at_once, "collect": "all",
                "action": {"item_id": directive, "thread": "fork"}, "next": "done",
            },
            "done": gives("${state.all}"),
        },
        permissions=("rye.execute.*",),
        max_concurrency=at_once,
        on_error="continue",
        state={"all": []},
    )  # fmt: skip
    return host


def _failed(host: Asking, run_id: str) -> list[Any]:
    return [one.payload for one in host.told(run_id, "item_completed") if "error" in one.payload]


@pytest.mark.parametrize("limits", ["", 'spend="0.02"'], ids=["shared", "reserved"])
async def test_members_wait_for_what_others_hold(tmp_path: Path, limits: str) -> None:
    host = _host(tmp_path, 30, limits=limits)
    done = await host.walk("tool:acme/flow", limits={"spend": 0.05})
    assert _failed(host, done.run_id) == []
    assert done.total.spend_microcents == 30 * COST


async def test_members_fail_once_the_money_is_spent(tmp_path: Path) -> None:
    host = _host(tmp_path, 30)
    with anyio.fail_after(20):
        done = await host.walk("tool:acme/flow", limits={"spend": 10 * COST / 1e8})
    failed = _failed(host, done.run_id)
    assert 0 < len(failed) < 30
    assert done.total.spend_microcents == (30 - len(failed)) * COST <= 10 * COST


async def test_more_members_run_than_the_default_of_spawns(tmp_path: Path) -> None:
    host = _host(tmp_path, 55)
    done = await host.walk("tool:acme/flow")
    assert _failed(host, done.run_id) == []
    row = await host.store().registry.get_thread(done.run_id)
    assert row.spawn_count == 55


async def test_a_callers_limit_of_spawns_holds(tmp_path: Path) -> None:
    host = _host(tmp_path, 5)
    done = await host.walk("tool:acme/flow", limits={"spawns": 3})
    assert len(_failed(host, done.run_id)) == 2


async def test_a_wait_for_budget_ends_with_the_run(tmp_path: Path) -> None:
    """A member that waits is cancelled like one that works."""
    asked = anyio.Event()

    async def never(request: Any) -> Any:
        asked.set()
        await anyio.sleep_forever()

    host = _host(tmp_path, 5, model=never)
    async with host.open() as rye:
        with anyio.fail_after(20):
            run = await rye.graphs.start("tool:acme/flow", limits={"spend": 0.05})
            await asked.wait()
            await run.cancel()
            done = await run.result()
    assert done.ended == "cancelled"


async def test_a_resumed_run_keeps_its_callers_spend(tmp_path: Path) -> None:
    """What is left of the caller's money bounds the run that resumes, and no default does."""
    host = _host(tmp_path, 30)
    most = 10 * COST / 1e8
    first = await host.walk("tool:acme/flow", limits={"spend": most})
    async with host.open() as rye:
        with anyio.fail_after(20):
            again = await rye.graphs.resume(first.run_id, at=0)
    spent = first.total.spend_microcents + again.total.spend_microcents
    assert spent <= 10 * COST


async def test_members_wait_for_what_another_ones_called_agent_holds(tmp_path: Path) -> None:
    helping = anyio.Event()

    async def answer(request: Any) -> Any:
        if request.model == "helper":  # it may have a long answer, so it holds all that is left
            helping.set()
            await anyio.wait_all_tasks_blocked()
            return say("found", usage=Usage(1, 10))
        if request.messages[-1].role == "tool":
            return say("well", usage=USED)
        if not helping.is_set() and not asked:
            asked.append(request)
            return call("helper", {"task": "Find it."}, usage=USED)
        await helping.wait()
        return call("add", {"a": 1, "b": 2}, usage=USED)

    asked: list[Any] = []
    model = FunctionProvider(
        answer,
        provider_id="scripted",
        capabilities=Capabilities(max_output_tokens=50),
    )
    helper = Agent(name="helper", provider="scripted", model="helper", max_output_tokens=10_000)
    host = _host(tmp_path, 2, model=model, tools=[helper.as_tool()])
    host.write("acme/x")
    with anyio.fail_after(20):
        done = await host.walk("tool:acme/flow", limits={"spend": 0.05})
    assert _failed(host, done.run_id) == []
    assert done.total.spend_microcents == 4 * COST + 300 + 15_000


async def test_called_agents_wait_for_what_those_of_other_members_hold(tmp_path: Path) -> None:
    async def answer(request: Any) -> Any:
        if request.model == "helper":  # it may have a long answer, so it holds all that is left
            for _ in range(50):  # until the others, whose holds are written in threads, look too
                await anyio.to_thread.run_sync(str)
                await anyio.wait_all_tasks_blocked()
            return say("found", usage=Usage(1, 10))
        if request.messages[-1].role == "tool":
            (result,) = request.messages[-1].parts
            found.append(result.text)
            return say("well", usage=USED)
        asked.append(request)
        if len(asked) == 10:
            together.set()
        await together.wait()
        return call("helper", {"task": "Find it."}, usage=USED)

    asked: list[Any] = []
    found: list[str] = []
    together = anyio.Event()
    model = FunctionProvider(
        answer,
        provider_id="scripted",
        capabilities=Capabilities(max_output_tokens=50),
    )
    helper = Agent(
        name="helper",
        provider="scripted",
        model="helper",
        system_prompt="Be brief. " * 1000,  # more than the request of its caller
        max_output_tokens=10_000,
    )
    host = _host(tmp_path, 10, model=model, tools=[helper.as_tool()])
    host.write("acme/x")
    with anyio.fail_after(20):
        done = await host.walk("tool:acme/flow", limits={"spend": 0.05})
    assert _failed(host, done.run_id) == []
    assert found == ["found"] * 10
    assert done.total.spend_microcents == 10 * (2 * COST + 300 + 15_000)
