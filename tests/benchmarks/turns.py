"""Turns of an agent, streamed deltas and 1,000 runs at once, beside the same work by hand.

The peers' figures come from `python -m tests.benchmarks.peers`, with the same script.
"""

import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

from ryecore.agent import (
    Agent,
    AgentEvent,
    AgentNode,
    AgentRunnerDeps,
    AgentSession,
    AgentToken,
    NodeExecContext,
    create_agent_node_executor,
)
from ryecore.llm import (
    Capabilities,
    LlmRequest,
    LlmResult,
    MediaStore,
    Price,
    StreamChunk,
    StreamEnd,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from ryecore.state.events import EventBus
from ryecore.tools import ToolRegistry, tool
from tests.benchmarks.floor import turns as floor
from tests.benchmarks.harness import compare, report

_TURNS, _RUN_TURNS, _DELTAS = 10, 3, 1_000
_FEW, _MANY = 10, 1_000

Run: TypeAlias = Callable[[], Awaitable[object]]


class FakeProvider:
    """As little of a provider as can be, so that what surrounds it is measured.

    Args:
        turns: How many turns call a tool, before one answers.
        deltas: In how many pieces it answers.
    """

    provider_id = "fake"
    _all = Capabilities()

    def __init__(self, turns: int, deltas: int = 1) -> None:
        end = Usage(1, 1)
        self._turns = turns
        self._answer: tuple[StreamChunk, ...] = (
            *[TextDelta("word ")] * deltas,
            StreamEnd("stop", end),
        )
        self._call: tuple[StreamChunk, ...] = (
            ToolCallStart(0, "c", "add"),
            ToolCallDelta(0, '{"a": 1, "b": 1}'),
            StreamEnd("tool_use", end),
        )

    def capabilities(self, model: str) -> Capabilities:
        """All."""
        return self._all

    async def stream(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> AsyncIterator[StreamChunk]:
        """Call a tool, or answer."""
        calls = len(request.messages) // 2 < self._turns
        for chunk in self._call if calls else self._answer:
            yield chunk

    async def generate(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> LlmResult:
        """Not needed here."""
        raise NotImplementedError


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


_TOOLS = {"add": add}
_AGENT = Agent(name="adder", provider="fake", model="m", system_prompt="Add.", tools=("add",))
_PRICE = Price("3", "15")


def deps(provider: FakeProvider) -> AgentRunnerDeps:
    """What a host injects here."""
    return AgentRunnerDeps(
        resolve_provider=lambda _: provider,
        key_for=lambda _: "",
        registry=ToolRegistry([tool(inline=True)(add)]),
        price_of=lambda provider, model: _PRICE,
    )


def runner(turns: int, deltas: int = 1) -> Run:
    """Runs a vertex, whose events go to a bus of its own, and are read from it at the end."""
    execute = create_agent_node_executor(deps(FakeProvider(turns, deltas)))
    node = AgentNode.asking("Add.", agent=_AGENT)

    async def run() -> object:
        bus: EventBus[AgentEvent] = EventBus("run")
        events = bus.subscribe()
        done = await execute(NodeExecContext(vertex=node, resolved_agent=_AGENT, emit=bus.emit))
        bus.close()
        assert done.status == "completed", done
        return [event async for event in events]

    return run


def _told(turns: int, deltas: int = 1, kept: floor.Kept | None = None) -> Run:
    model = floor.call_model(turns) if turns else floor.text_model(deltas)

    async def run() -> object:
        events: list[object] = []
        await floor.told(model, _TOOLS, events.append, kept)
        return events

    return run


def _repeated(loop: asyncio.Runner, run: Run, times: int) -> Callable[[], None]:
    async def repeat() -> None:
        for _ in range(times):
            await run()

    return lambda: loop.run(repeat())


def _turn(loop: asyncio.Runner) -> None:
    ours = _repeated(loop, runner(_TURNS), 10)
    model = floor.call_model(_TURNS)

    async def bare() -> object:
        return await floor.bare(model, _TOOLS)

    with tempfile.TemporaryDirectory() as folder:
        kept = floor.Kept(Path(folder))
        for name, base, goal in (
            ("a bare loop over dicts", bare, "for comparison"),
            ("a loop with events", _told(_TURNS), "without ledger and transcript"),
            ("a loop with events, SQLite, JSONL", _told(_TURNS, kept=kept), "≤ 2, with threads"),
        ):
            compare(
                f"ten turns and an answer, ten times, beside {name}",
                ours,
                _repeated(loop, base, 10),
                goal=goal,
            )
        kept.close()


def _delta(loop: asyncio.Runner) -> None:
    base = _repeated(loop, _told(0, _DELTAS), 3)
    goal = "≤ 2"
    compare(
        "1,000 deltas, three times, to a consumer of the bus",
        _repeated(loop, runner(0, _DELTAS), 3),
        base,
        goal=goal,
    )
    provided = deps(FakeProvider(0, _DELTAS))

    async def called() -> None:
        events: list[AgentEvent] = []
        await AgentSession(_AGENT, provided).send("Talk.", on_event=events.append)

    async def streamed() -> None:
        async with AgentSession(_AGENT, provided).stream("Talk.") as events:
            async for _ in events:
                pass

    compare("the same of a session, to a function", _repeated(loop, called, 3), base, goal=goal)
    compare("the same of a session, streamed", _repeated(loop, streamed, 3), base, goal=goal)


def _bus(loop: asyncio.Runner) -> None:
    """Events alone: emitted, then read by one consumer, and by a hundred."""
    event = AgentToken("node", "word ", "m")

    async def told(consumers: int) -> None:
        bus: EventBus[AgentEvent] = EventBus("run")
        streams = [bus.subscribe() for _ in range(consumers)]
        for _ in range(_DELTAS):
            bus.emit(event)
        bus.close()
        for stream in streams:
            async for _ in stream:
                pass

    def floor() -> None:
        events: list[object] = []
        for number in range(_DELTAS):
            events.append(("run", time.time(), number, event))
        for _ in events:
            pass

    for count in (1, 100):
        compare(
            f"1,000 events over the bus, to consumers: {count}",
            lambda count=count: loop.run(told(count)),  # type: ignore[misc]
            floor,
            goal="beside a list of tuples, and one who reads it",
        )


async def _at_once(run: Run, count: int) -> float:
    begun = time.perf_counter()
    await asyncio.gather(*(run() for _ in range(count)))
    return count / (time.perf_counter() - begun)


async def _rates(run: Run) -> dict[str, float]:
    await run()
    few = statistics.median([await _at_once(run, _FEW) for _ in range(50)])
    many = statistics.median([await _at_once(run, _MANY) for _ in range(5)])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"rate": many, "of_the_rate_at_10": many / few, "mib": peak}


def _runs() -> None:
    got = {who: _in_a_process(who) for who in ("ours", "floor")}
    ours, base = got["ours"], got["floor"]
    report(
        "1,000 runs of three turns at once",
        ours.pop("rate"),
        "/s",
        **ours,
        floor=base["rate"],
        floor_mib=base["mib"],
        goal="≥ 3,500/s, ≤ 60 MiB, ≥ 0.85 of the rate at 10",
    )


def _in_a_process(who: str) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.benchmarks.turns", who]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    rates: dict[str, float] = json.loads(done.stdout)
    return rates


def run() -> None:
    """Report all figures."""
    with asyncio.Runner() as loop:
        _turn(loop)
        _delta(loop)
        _bus(loop)
    _runs()


if __name__ == "__main__":
    made: dict[str, Callable[[int], Any]] = {"ours": runner, "floor": _told}
    sys.stdout.write(json.dumps(asyncio.run(_rates(made[sys.argv[1]](_RUN_TURNS)))))
