"""A budget that doesn't hold the longest answer still holds a shorter one."""

import re
from pathlib import Path
from typing import Any

import pytest

from ryecore.errors import InsufficientBudget
from ryecore.llm import Price
from ryecore.llm.result import Usage
from ryecore.policy.budget import Amount
from ryecore.testing import call, say
from ryecore.tools import tool
from tests.scripted_host import ScriptedHost

USED = Usage(100, 10)
pytestmark = pytest.mark.anyio


@tool
async def read() -> str:
    """Read something long."""
    return "tide " * 2_000


def _stage(root: Path, *script: Any) -> ScriptedHost:
    return ScriptedHost(
        root,
        *script,
        tools=[read],
        price_of=lambda *_: Price(input="3", output="15"),
        unpriced_models=frozenset(),
    )


async def test_the_first_answer_is_as_short_as_a_small_budget_asks_for(tmp_path: Path) -> None:
    host = _stage(tmp_path, call("add", {"a": 1, "b": 2}, usage=USED), say("3", usage=USED))
    done = await host.run(host.write("acme/x", limits='spend="0.2"'))
    assert (done.ended, done.text) == ("completed", "3")
    assert 0 < host.model.requests[0].max_output_tokens < 16_384


async def test_what_a_tool_brought_shortens_the_next_answer(tmp_path: Path) -> None:
    host = _stage(
        tmp_path, call("read", usage=Usage(900, 100)), say("It is wet.", usage=Usage(4_000, 10))
    )
    done = await host.run(host.write("acme/x", limits='spend="0.1"'))
    assert (done.ended, done.text) == ("completed", "It is wet.")
    spent = (await host.store().ledger.account(done.thread_id)).total
    assert spent.spend_microcents <= 10_000_000


async def test_where_no_answer_is_affordable_the_limit_is_told(tmp_path: Path) -> None:
    host = _stage(tmp_path, say("never"))
    done = await host.run(host.write("acme/x", limits='spend="0.0001"'))
    assert (done.ended, done.code) == ("error", "spend_exceeded")
    assert host.model.requests == []
    assert "this needs $0.00" in done.error  # not what the longest answer would cost


async def test_a_refusal_says_which_limit_would_do_and_counts_no_turn(tmp_path: Path) -> None:
    host = _stage(tmp_path, say("It fits.", usage=USED))
    ref = host.write("acme/x", limits='spend="0.0001"')
    done = await host.run(ref)
    (limit,) = re.findall(r"--limit (spend=[0-9.]+)", done.error)
    assert done.cost.turns == done.to_dict()["cost"]["turns"] == 0
    assert "0 turns" in done.render().plain()
    assert (await host.store().registry.get_thread(done.thread_id)).cost.turns == 0
    key, _, enough = limit.partition("=")
    again = await host.run(ref, limits={key: enough})
    assert again.cost.turns == len(host.model.requests) == 1, again.error


async def test_what_a_family_lacks_is_said_with_whom_to_give_it_to(tmp_path: Path) -> None:
    host = _stage(tmp_path, say("never"))
    store = host.store()
    await store.registry.register("rich", "directive:acme/rich", None)
    await store.ledger.register("rich", Amount(1000, 10**6))
    await store.registry.register("poor", "directive:acme/poor", "rich")
    shared = {"reserves_spend": False, "reserves_tokens": False}
    await store.ledger.reserve("poor", "rich", Amount(1000, 10**6), **shared)
    await store.ledger.hold("rich", 1, 1, Amount(900, 10))
    with pytest.raises(InsufficientBudget, match="the thread rich has") as caught:
        await store.ledger.hold("poor", 1, 1, Amount(200, 10))
    assert "rich" in caught.value.next_step
    assert "0.00000100" in caught.value.next_step
    assert "--limit spend=" in caught.value.next_step
