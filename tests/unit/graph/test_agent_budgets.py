"""What a graph's agents cost is held in the run's account before it is asked, and settled after."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import pytest

from ryecore import CallContext, Limits
from ryecore.llm import Price
from ryecore.llm.media import FolderMediaStore
from ryecore.llm.result import Usage
from ryecore.state.waiting import run_blocking
from ryecore.testing import call, cut, fail, say
from ryecore.testing.scripted import ScriptedMediaProvider, make
from tests.unit.graph.asking import Asking, agent, asks, gives

USED = Usage(100, 10)
COST = 100 * 300 + 10 * 1500
"""What `USED` costs at 3 and 15 USD per million tokens, in microcents."""

pytestmark = pytest.mark.anyio


def _stage(root: Path, *script: Any, **deps: Any) -> Asking:
    priced = {
        "price_of": lambda *_: Price(input="3", output="15"),
        "unpriced_models": frozenset(),
    }
    return Asking(root, *script, **(priced | deps))


def _account(host: Asking, run_id: str) -> Any:
    return run_blocking(host.store().ledger.account(run_id))


async def test_a_run_says_everywhere_what_its_agents_cost(tmp_path: Path) -> None:
    host = _stage(
        tmp_path, call("add", {"a": 1, "b": 2}, usage=USED), say("3", usage=USED),
        say("again", usage=USED),
    )  # fmt: skip
    host.graph(
        {"first": asks(next_node="second"), "second": asks(), "done": gives()},
        agents={"writer": agent(tools=["add"])},
    )
    done = await host.walk("tool:acme/flow")
    assert done.output == "again"
    assert (done.cost.turns, done.cost.input_tokens, done.cost.output_tokens) == (3, 300, 30)
    assert done.cost.spend_microcents == done.total.spend_microcents == 3 * COST
    assert done.data["cost"] == {"tokens": 330, "spend": 3 * COST / 1e8}
    account = _account(host, done.run_id)
    assert (account.own.spend_microcents, account.held.spend_microcents) == (3 * COST, 0)
    charges = await host.store().ledger.charges(done.run_id)
    assert [(one.turn, one.attempt, one.mark) for one in charges] == [
        (1, 1, "counted"), (2, 1, "counted"), (3, 1, "counted"),
    ]  # fmt: skip
    folder = host.workspace.project / ".ai/state/threads" / done.run_id
    said = json.loads((folder / "thread.json").read_text())
    assert said["status"] == "completed"
    assert said["cost"]["input_tokens"] == 300
    row = await host.store().registry.get_thread(done.run_id)
    assert row.cost == done.cost


async def test_the_journal_holds_each_try_before_it_is_made_and_after(tmp_path: Path) -> None:
    host = _stage(tmp_path, say("well", usage=USED))
    host.graph({"first": asks(), "done": gives()})
    done = await host.walk("tool:acme/flow")
    kinds = [one.type for one in host.told(done.run_id)]
    at = kinds.index("model_call")
    assert kinds[at : at + 4] == ["model_call", "model_call_end", "cost", "node_completed"]
    (held,) = host.told(done.run_id, "model_call")
    (ended,) = host.told(done.run_id, "model_call_end")
    assert held.payload["held_spend_microcents"] > COST
    assert (ended.payload["spend_microcents"], ended.payload["mark"]) == (COST, "counted")


async def test_the_cost_that_is_told_adds_up_over_the_nodes(tmp_path: Path) -> None:
    host = _stage(tmp_path, say("a", usage=USED), say("b", usage=USED))
    host.graph({"first": asks(next_node="second"), "second": asks(), "done": gives()})
    done = await host.walk("tool:acme/flow")
    costs = [one.payload["cumulativeCostMicrocents"] for one in host.told(done.run_id, "cost")]
    assert costs == [COST, 2 * COST]


async def test_a_retry_is_held_and_settled_by_itself(tmp_path: Path) -> None:
    host = _stage(tmp_path, fail("unavailable"), say("well", usage=USED))
    host.graph({"first": asks(retry=2), "done": gives()})
    done = await host.walk("tool:acme/flow")
    assert done.output == "well"
    charges = await host.store().ledger.charges(done.run_id)
    assert [(one.turn, one.attempt, one.mark) for one in charges] == [
        (1, 1, "estimated"), (1, 2, "counted"),
    ]  # fmt: skip


async def test_retry_feeds_the_first_choice_alone(tmp_path: Path) -> None:
    host = _stage(tmp_path, fail("unavailable"), fail("unavailable"), fail("unavailable"))
    host.graph(
        {"first": asks(retry=2), "done": gives()},
        agents={
            "writer": agent(fallback_chain=[{"provider": "scripted", "model": "m-2"}]),
        },
    )
    done = await host.walk("tool:acme/flow")
    assert [one.model for one in host.model.requests] == ["m-1", "m-1", "m-2"]
    assert done.failed is not None
    assert done.failed.code == "provider_unavailable"
    assert len(await host.store().ledger.charges(done.run_id)) == 3


async def test_a_cut_answer_is_charged_as_an_estimate(tmp_path: Path) -> None:
    host = _stage(tmp_path, say("It was a dark and stormy night") + cut())
    host.graph({"first": asks(), "done": gives()})
    done = await host.walk("tool:acme/flow")
    assert done.ended == "error"
    (charge,) = await host.store().ledger.charges(done.run_id)
    assert charge.mark == "estimated"
    assert done.total.spend_microcents == charge.actual.spend_microcents > 0


async def test_an_answer_that_counts_nothing_is_charged_as_an_estimate(tmp_path: Path) -> None:
    host = _stage(tmp_path, say("well"))
    host.graph({"first": asks(), "done": gives()})
    done = await host.walk("tool:acme/flow")
    (charge,) = await host.store().ledger.charges(done.run_id)
    assert charge.mark == "estimated"
    assert charge.actual == done.total
    assert 0 < charge.actual.tokens < charge.held.tokens


async def test_the_answer_is_as_long_as_what_is_left_allows(tmp_path: Path) -> None:
    host = _stage(tmp_path, say("well", usage=USED))
    host.graph({"first": asks(), "done": gives()})
    done = await host.walk("tool:acme/flow", limits={"spend": 0.02})
    assert done.output == "well"
    assert 0 < host.model.requests[0].max_output_tokens < 16_384


async def test_what_a_state_grew_to_shortens_the_answer(tmp_path: Path) -> None:
    """The first bound knows no prompt; what the ledger refuses is asked again, for less."""
    host = _stage(tmp_path, say("well", usage=USED))
    host.graph(
        {"first": asks("{{ run.outputs.long }}"), "done": gives()}, state={"long": "tide " * 9_000}
    )
    done = await host.walk("tool:acme/flow", limits={"spend": 0.1})
    assert done.output == "well"
    ends = [one.payload["mark"] for one in host.told(done.run_id, "model_call_end")]
    assert ends == ["freed", "counted"]


async def test_where_nothing_is_affordable_the_node_fails_and_nothing_is_asked(
    tmp_path: Path,
) -> None:
    host = _stage(tmp_path, say("never"))
    host.graph(
        {
            "first": asks(on_error="told"),
            "told": gives("${state._last_error.node}"),
            "done": gives(),
        }
    )
    done = await host.walk("tool:acme/flow", limits={"spend": 0.0001})
    assert done.output == "first"
    assert host.model.requests == []
    (end, *_) = host.told(done.run_id, "node_completed")
    assert end.payload["code"] == "budget_exceeded"


async def test_a_model_without_a_price_is_refused(tmp_path: Path) -> None:
    host = _stage(tmp_path, say("never"), price_of=None)
    host.graph({"first": asks(), "done": gives()})
    done = await host.walk("tool:acme/flow")
    assert done.failed is not None
    assert done.failed.code == "budget_exceeded"
    assert "has no price" in done.failed.message
    assert host.model.requests == []


async def test_a_model_without_a_price_is_asked_where_the_host_says_so(tmp_path: Path) -> None:
    host = _stage(tmp_path, say("well", usage=USED), price_of=None, unpriced_models={"scripted/*"})
    host.graph({"first": asks(), "done": gives()})
    done = await host.walk("tool:acme/flow")
    assert (done.output, done.total.tokens) == ("well", 110)


async def test_what_costs_more_than_was_held_stops_the_run_and_all_below(tmp_path: Path) -> None:
    host = _stage(tmp_path, say("dear", usage=Usage(100, 60_000)), say("never"))
    directive = host.write("acme/x")
    host.graph(
        {
            "first": asks(next_node="second"),
            "second": asks(on_error="forked"),
            "forked": {"action": {"item_id": directive, "thread": "fork"}, "next": "done"},
            "done": gives(),
        },
        permissions=("rye.execute.*",),
    )
    done = await host.walk("tool:acme/flow")
    assert len(host.model.requests) == 1
    assert done.ended == "error"
    ends = {one.payload["node"]: one.payload for one in host.told(done.run_id, "node_completed")}
    assert ends["first"].get("error") is None
    assert ends["second"]["code"] == ends["forked"]["code"] == "budget_exceeded"
    (over,) = host.told(done.run_id, "budget_overspent")
    assert over.payload["spent"]["tokens"] == 60_100
    assert done.total.tokens == 60_100


async def test_the_limit_of_turns_is_one_over_all_nodes(tmp_path: Path) -> None:
    host = _stage(tmp_path, say("a", usage=USED), say("b", usage=USED), say("never"))
    nodes = {"n1": asks(next_node="n2"), "n2": asks(next_node="n3"), "n3": asks(), "done": gives()}
    host.graph(nodes)
    done = await host.walk("tool:acme/flow", limits={"turns": 2})
    assert done.failed is not None
    assert (done.failed.node, done.failed.code) == ("n3", "budget_exceeded")
    assert done.cost.turns == 2


async def test_runs_at_once_share_their_parents_money_exactly(tmp_path: Path) -> None:
    """What is held and spent never passes the ceiling, and each run knows its own."""
    inside = 0

    async def answer(request: Any) -> Any:
        nonlocal inside
        inside += 1
        await anyio.sleep(0.01)
        return say("well", usage=USED)

    host = _stage(tmp_path, model=answer)
    host.graph({"first": asks(next_node="second"), "second": asks(), "done": gives()})
    results: list[Any] = []
    async with host.open() as rye, anyio.create_task_group() as group:

        async def run() -> None:
            results.append(await rye.graphs.run("tool:acme/flow"))

        for _ in range(6):
            group.start_soon(run)
    assert [one.total.spend_microcents for one in results] == [2 * COST] * 6
    assert inside == 12
    assert len({one.run_id for one in results}) == 6


async def test_forks_beside_each_other_draw_on_the_runs_account(tmp_path: Path) -> None:
    async def answer(request: Any) -> Any:
        await anyio.sleep(0.01)
        return say("well", usage=USED)

    host = _stage(tmp_path, model=answer)
    directive = host.write("acme/x", permissions="")
    host.graph(
        {
            "each": {
                "type": "foreach", "over": [1, 2, 3, 4, 5], "parallel": True,
                "action": {"item_id": directive, "thread": "fork"}, "next": "ask",
            },
            "ask": asks(),
            "done": gives(),
        },
        permissions=("rye.execute.*",),
    )  # fmt: skip
    done = await host.walk("tool:acme/flow", limits={"spend": 5})
    assert done.output == "well"
    assert done.cost.spend_microcents == COST
    assert done.total.spend_microcents == 6 * COST
    account = _account(host, done.run_id)
    assert (account.own.spend_microcents, account.children.spend_microcents) == (COST, 5 * COST)


async def test_a_resumed_run_counts_its_own(tmp_path: Path) -> None:
    host = _stage(tmp_path, say("a", usage=USED), fail("auth"), say("b", usage=USED))
    host.graph({"first": asks(next_node="second"), "second": asks(), "done": gives()})
    async with host.open() as rye:
        failed = await rye.graphs.run("tool:acme/flow")
        done = await rye.graphs.resume(failed.run_id, rerun=True)
    assert (failed.ended, done.output) == ("error", "b")
    assert failed.cost.spend_microcents == done.cost.spend_microcents == COST
    assert [one.turn for one in await host.store().ledger.charges(done.run_id)] == [1]


async def test_media_are_held_as_one_and_settled_at_the_jobs_end(tmp_path: Path) -> None:
    media = ScriptedMediaProvider([make(b"png", polls=3)])
    host = _stage(
        tmp_path,
        model=media,
        price_of=lambda *_: Price(input="0", output="0", per_medium="0.04"),
        resolve_media_surface=lambda _: "generative",
        media=FolderMediaStore(tmp_path / "media"),
    )
    host.graph({"first": asks("A tide."), "done": gives("${state.said.media[0].media_type}")})
    done = await host.walk("tool:acme/flow")
    assert done.output == "image/png"
    assert media.polls == ["job_1"] * 3
    assert host.slept_s == [1.0, 2.0, 5.0]
    assert done.total.spend_microcents == 4_000_000
    (charge,) = await host.store().ledger.charges(done.run_id)
    assert (charge.held.spend_microcents, charge.actual.spend_microcents) == (4_000_000,) * 2
    (pending,) = host.told(done.run_id, "node_pending")
    assert pending.payload["node"] == "first"


async def test_media_beyond_what_is_left_are_not_asked_for(tmp_path: Path) -> None:
    media = ScriptedMediaProvider([make(b"png")])
    host = _stage(
        tmp_path,
        model=media,
        price_of=lambda *_: Price(input="0", output="0", per_medium="0.04"),
        resolve_media_surface=lambda _: "generative",
        media=FolderMediaStore(tmp_path / "media"),
    )
    host.graph({"first": asks("A tide."), "done": gives()})
    done = await host.walk("tool:acme/flow", limits={"spend": 0.03})
    assert done.failed is not None
    assert done.failed.code == "budget_exceeded"
    assert media.media_requests == []


async def test_media_without_a_price_of_their_own_are_refused_under_a_spend_limit(
    tmp_path: Path,
) -> None:
    media = ScriptedMediaProvider([make(b"png")])
    host = _stage(
        tmp_path,
        model=media,
        resolve_media_surface=lambda _: "generative",
        media=FolderMediaStore(tmp_path / "media"),
    )
    host.graph({"first": asks("A tide."), "done": gives()})
    done = await host.walk("tool:acme/flow", limits={"spend": 5})
    assert done.failed is not None
    assert done.failed.code == "budget_exceeded"
    assert "has no price for media" in done.failed.message
    assert "per_medium" in done.failed.message
    assert media.media_requests == []
    assert done.total.spend_microcents == 0


async def test_a_request_for_media_that_is_cut_off_costs_all_that_was_held(tmp_path: Path) -> None:
    media = ScriptedMediaProvider([make()])  # never ends
    host = _stage(
        tmp_path,
        model=media,
        price_of=lambda *_: Price(input="0", output="0", per_medium="0.04"),
        resolve_media_surface=lambda _: "generative",
        media=FolderMediaStore(tmp_path / "media"),
    )
    host.graph({"first": asks("A tide.", timeout_s=0.2), "done": gives()})
    done = await host.walk("tool:acme/flow")
    assert done.failed is not None
    assert "longer than its 0.2 s" in done.failed.message
    assert done.cost.spend_microcents == done.total.spend_microcents == 4_000_000
    (charge,) = await host.store().ledger.charges(done.run_id)
    assert charge.mark == "assumed"


async def test_a_callers_cap_holds_for_who_resumes_and_for_what_is_done_again(
    tmp_path: Path,
) -> None:
    host = _stage(tmp_path, *(say(str(number), usage=USED) for number in range(9)))
    long = "word " * 120
    host.graph({"first": asks(long, "second"), "second": asks(long), "done": gives()})
    cap = Limits(spend_usd=Decimal(f"{3 * COST + COST // 2}e-8"), turns=9, duration_s=600)
    model = CallContext(capabilities=frozenset({"rye.execute.*"}))
    async with host.open() as rye:
        whole = await rye.graphs.run("tool:acme/flow", limits=cap)
        again = await rye.graphs.resume(whole.run_id, at=0)
        third = await rye.graphs.resume(again.run_id, at=0, limits={"spend": 1}, ctx=model)
        fresh = await rye.graphs.resume(again.run_id, at=0, limits={"spend": 1})
    assert whole.ended == "completed", whole.failed
    for over in (again, third):
        assert over.failed is not None
        assert over.failed.code == "budget_exceeded"
    spent = sum(one.total.spend_microcents for one in (whole, again, third))
    assert spent <= cap.spend_microcents  # type: ignore[operator]
    assert fresh.ended == "completed"
    assert fresh.total.spend_microcents == 2 * COST
    limits = (await host.store().registry.get_thread(fresh.run_id)).limits or {}
    assert limits["spend"] == 1
    assert limits["turns"] == 9 - sum(one.cost.turns for one in (whole, again, third))
    assert limits["duration_seconds"] < 600  # type: ignore[operator]


async def test_a_resumed_run_asks_models_no_more_often_than_its_caller_said(
    tmp_path: Path,
) -> None:
    host = _stage(tmp_path, *(say(str(number), usage=USED) for number in range(9)))
    host.graph({"first": asks(next_node="second"), "second": asks(), "done": gives()})
    async with host.open() as rye:
        whole = await rye.graphs.run("tool:acme/flow", limits={"turns": 3})
        again = await rye.graphs.resume(whole.run_id, at=0)
        more = await rye.graphs.resume(again.run_id, limits={"turns": 1})
    assert again.failed is not None
    assert (again.failed.code, again.cost.turns) == ("budget_exceeded", 1)
    assert (more.ended, more.output, more.cost.turns) == ("completed", "3", 1)


async def test_a_run_shows_turns_and_duration_only_where_its_caller_limits_them(
    tmp_path: Path,
) -> None:
    host = _stage(tmp_path, *(say("a", usage=USED) for _ in range(3)))
    host.graph({"first": asks(), "done": gives()})
    async with host.open() as rye:
        free = await rye.graphs.run("tool:acme/flow")
        bound = await rye.graphs.run("tool:acme/flow", limits={"turns": 9, "duration_seconds": 60})
        again = await rye.graphs.resume(bound.run_id, at=0)
        limits = [(await rye.threads.tree(run.run_id)).limits for run in (free, bound, again)]
        shown = [str(await rye.threads.show(run.run_id)) for run in (free, bound, again)]
    assert [one.turns for one in limits] == [None, 9, 8]
    assert [one.duration_s is None for one in limits] == [True, False, False]
    assert "1 turn\n" in shown[0]
    assert "1/9 turns" in shown[1]
    assert "1/8 turns" in shown[2]
