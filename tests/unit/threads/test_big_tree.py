"""A tree of many threads, whose sums are exact at every node."""

import random
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import define, field

from ryecore.errors import LlmError
from ryecore.llm.cost import Price
from ryecore.llm.request import Capabilities
from ryecore.llm.result import Usage
from ryecore.policy.budget import NOTHING, Amount
from ryecore.state.records import load_run_key
from ryecore.state.store import ThreadStore
from ryecore.state.transcript_check import verify_transcript
from ryecore.state.waiting import run_blocking
from ryecore.testing import FunctionProvider, call, say
from ryecore.tools import ToolContext, tool
from tests.matrix import IS_SOAK
from tests.scripted_host import ScriptedHost

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

NODES = 1_000 if IS_SOAK else 150
SLACK = 50  # what is below a node that is cancelled, or has overspent, may never be started
INPUT_PRICE, OUTPUT_PRICE = 15, 60  # microcents a token: 0.15 and 0.6 USD per million
MAY = "<execute><directive>acme/*</directive><tool>host/*</tool></execute>"


@define
class Node:
    """What one thread of the tree does."""

    number: int
    children: list["Node"] = field(factory=list)
    fate: str = "ends well"
    is_async: bool = False
    reserves: bool = False
    depth: int = 0

    @property
    def size(self) -> int:
        """How many nodes there are from here on down."""
        return 1 + sum(one.size for one in self.children)


def grow(seed: int, count: int) -> list[Node]:
    """A tree of random shape: wide here, deep there."""
    dice = random.Random(seed)
    nodes = [Node(0)]
    open_nodes = [nodes[0]]
    while len(nodes) < count:
        above = dice.choice(open_nodes[-40:] if dice.random() < 0.6 else open_nodes)
        one = Node(len(nodes), depth=above.depth + 1)
        one.is_async = dice.random() < 0.5
        one.reserves = dice.random() < 0.4
        above.children.append(one)
        nodes.append(one)
        if one.depth < 8:
            open_nodes.append(one)
        if len(above.children) >= 12:
            open_nodes.remove(above)
    for one in nodes[1:]:
        if not one.children or dice.random() < 0.02:
            fates = ("fails", "gives up", "is cancelled", "overspends")
            one.fate = dice.choice(fates) if dice.random() < 0.25 else "ends well"
    return nodes


class Actor:
    """The model: it plays every node of the tree, by the number that stands in its directive."""

    def __init__(self, nodes: list[Node], seed: int) -> None:
        self._nodes = nodes
        self._seed = seed

    def __call__(self, request: Any) -> Any:
        number = int(request.messages[0].text.partition("Node number ")[2].partition(".")[0])
        node, turn = self._nodes[number], len(request.messages) // 2 + 1
        dice = random.Random(self._seed * 1_000_003 + number * 101 + turn)
        usage = Usage(dice.randrange(1, 300), dice.randrange(1, 90))
        if node.children and turn == 1:
            calls = [self._start(one) for one in node.children]
            first = calls[0]
            for one in calls[1:]:
                first = first + one
            return first + call("add", {"a": number, "b": turn}, usage=usage)
        if turn <= 1 + bool(node.children):
            return self._end(node, usage)
        return say("Done.", usage=usage)

    def _start(self, node: Node) -> Any:
        given: dict[str, Any] = {
            "item_id": "directive:acme/node", "parameters": {"n": node.number}, "thread": "fork",
            "async": node.is_async,
        }  # fmt: skip
        if node.reserves:
            given["limit_overrides"] = {"spend": 0.01 * node.size, "tokens": 20_000 * node.size}
        return call("rye_execute", given)

    def _end(self, node: Node, usage: Usage) -> Any:
        match node.fate:
            case "fails":
                return LlmError("The key is wrong.", kind="auth", status=401)
            case "gives up":
                given = {"status": "error", "error_detail": "I can't."}
                return call("rye_directive_return", given, usage=usage)
            case "is cancelled":
                return call("stop_me", usage=usage)
            case "overspends":
                return call("add", {"a": 1, "b": 1}, usage=Usage(50_000, 400))
        return call("add", {"a": node.number, "b": 7}, usage=usage)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_tree_of_many_threads_is_exact(tmp_path: Path, anyio_backend: str) -> None:
    seed = 20_261_122
    nodes = grow(seed, NODES + SLACK)
    opened: list[ThreadStore] = []

    @tool
    async def stop_me(ctx: ToolContext) -> str:
        """Ask for this thread to be stopped, as somebody else might."""
        assert ctx.call.budget_account is not None
        await opened[0].cancel(ctx.call.budget_account)
        await anyio.sleep_forever()
        raise AssertionError

    provider = FunctionProvider(
        Actor(nodes, seed), provider_id="scripted",
        capabilities=Capabilities(max_output_tokens=400), checkpoints=False,
    )  # fmt: skip
    host = ScriptedHost(
        tmp_path, model=provider, tools=[stop_me],
        price_of=lambda *_: Price("0.15", "0.6"), unpriced_models=frozenset(),
    )  # fmt: skip
    ref = host.write(
        "acme/node", "Node number {input:n}.", permissions=MAY,
        inputs='<input name="n" type="integer" required="true">Which.</input>',
        outputs='<output name="what" type="string">Anything.</output>',
    )  # fmt: skip
    host.workspace.write("config/agent/resilience.yaml", {
        "loop": {"nudges": 0},
        "limits": {"spend": 500, "tokens": 2**40, "spawns": 100, "depth": 12},
    })  # fmt: skip
    opened.append(host.store())
    done = await host.run(ref, {"n": 0})
    assert done.ended == "completed", done.error

    store = host.store()
    registry, ledger = store.registry, store.ledger
    key = load_run_key(host.workspace.user / ".ai").public
    rows = {one.thread_id: one for one in await registry.list_tree(done.thread_id)}
    assert len(rows) >= NODES
    below: dict[str, Amount] = {}
    children: dict[str, list[str]] = {}
    for row in rows.values():
        assert row.ended, row
        if row.parent_id is not None:
            children.setdefault(row.parent_id, []).append(row.thread_id)

    def total(thread_id: str) -> Amount:
        if thread_id not in below:
            own = run_blocking(ledger.account(thread_id)).own
            below[thread_id] = sum(map(total, children.get(thread_id, ())), own)
        return below[thread_id]

    for thread_id, row in rows.items():
        if not (store.folder_of(thread_id) / "transcript.jsonl").exists():
            assert row.status in ("error", "cancelled")  # it never began: what is above was stopped
            continue
        charges = await ledger.charges(thread_id)
        spent = sum((one.actual for one in charges), NOTHING)
        ends = host.records(thread_id, "model_call_end")
        told = Amount(
            sum(one.payload["spend_microcents"] for one in ends),
            sum(one.payload["input_tokens"] + one.payload["output_tokens"] for one in ends),
        )
        cost = Amount(row.cost.spend_microcents, row.cost.input_tokens + row.cost.output_tokens)
        account = await ledger.account(thread_id)
        assert spent == told == cost == account.own, thread_id
        by_hand = sum(
            one.payload["input_tokens"] * INPUT_PRICE + one.payload["output_tokens"] * OUTPUT_PRICE
            for one in ends if one.payload["mark"] == "counted"
        )  # fmt: skip
        counted = [one for one in ends if one.payload["mark"] == "counted"]
        assert by_hand == sum(one.payload["spend_microcents"] for one in counted)
        assert account.total == total(thread_id) == (await ledger.tree(thread_id)).spent, thread_id
        assert (account.held, account.reserved) == (NOTHING, NOTHING), thread_id
        assert all(one.mark != "held" for one in charges)
        report = verify_transcript(
            store.folder_of(thread_id) / "transcript.jsonl", thread_id, key, row.transcript_head,
            ended=True,
        )  # fmt: skip
        assert report.ok, (thread_id, report)
    root = await ledger.account(done.thread_id)
    every = sum([(await ledger.account(one)).own for one in rows if total(one)], NOTHING)
    assert root.total == done.total == every
    statuses = [one.status for one in rows.values()]
    assert min(statuses.count(one) for one in ("completed", "error", "cancelled")) > NODES // 50
