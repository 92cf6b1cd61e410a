"""Each limit trips with its code and a clear text, in parents and children; money is exact."""

import json
from decimal import localcontext
from pathlib import Path
from typing import Any

import anyio
import pytest

from ryecore.errors import ThreadFailed, ToolFailed
from ryecore.llm.cost import Price
from ryecore.llm.request import Capabilities
from ryecore.llm.result import Usage
from ryecore.results import ThreadResult
from ryecore.state.records import load_run_key
from ryecore.state.transcript_check import verify_transcript
from ryecore.testing import FunctionProvider, call, hang, say
from ryecore.tools import tool
from tests.scripted_host import ScriptedHost

pytestmark = pytest.mark.anyio

MAY = "<execute><directive>acme/*</directive><tool>host/*</tool></execute>"


def fork(item: str, **more: Any) -> Any:
    return call("rye_execute", {"item_id": f"directive:{item}", "thread": "fork", **more})


def results(request: Any) -> list[Any]:
    """What the last calls came to, read as JSON where it is."""
    said = []
    for part in request.messages[-1].parts:
        try:
            said.append(json.loads(part.text))
        except ValueError:
            said.append(part.text)
    return said


def bounded(most: int = 1000, **more: Any) -> Capabilities:
    return Capabilities(max_output_tokens=most, **more)


# Each trips by its code


def endless(request: Any) -> Any:
    return call("add", {"a": 1, "b": len(request.messages)}, usage=Usage(200, 100))


@pytest.mark.parametrize("in_child", [False, True])
@pytest.mark.parametrize(
    ("limit", "code", "words"),
    [
        ('turns="2"', "turns_exceeded", "turns"),
        ('tokens="6000"', "tokens_exceeded", "token"),
        ('spend="0.02"', "spend_exceeded", "$"),
    ],
)
async def test_a_counted_limit_ends_a_thread(
    tmp_path: Path, limit: str, code: str, words: str, in_child: bool
) -> None:
    seen: list[Any] = []

    def model(request: Any) -> Any:
        if "I am the boss" not in request.messages[0].text:
            return endless(request)
        if len(request.messages) == 1:
            return fork("acme/x")
        seen.extend(results(request))
        return say("ok")

    provider = FunctionProvider(model, provider_id="scripted", capabilities=bounded())
    host = ScriptedHost(tmp_path, model=provider, price_of=lambda *_: Price("5", "5"))
    ref = host.write("acme/x", limits=limit)
    if in_child:
        ref = host.write("acme/boss", "I am the boss.", permissions=MAY, limits='spend="1"')
    done = await host.run(ref)
    if in_child:
        assert done.ended == "completed"
        (said,) = seen
        state, found, text = said["state"], said["error_code"], said["error"]
        thread_id = said["thread_id"]
    else:
        state, found, text, thread_id = done.ended, done.code, done.error, done.thread_id
    assert (state, found) == ("error", code)
    assert words in text, text
    (record,) = host.records(thread_id, "limit_reached")
    assert record.payload["limit_code"] == code
    account = await host.store().ledger.account(thread_id)
    assert account.ceiling.covers(account.total)


@pytest.mark.parametrize(
    ("limit", "step"),
    [('turns="2"', "--limit turns=..."), ('spend="0.02"', "with at least --limit spend=")],
)
async def test_a_failed_threads_exception_names_the_directive_and_the_next_step(
    tmp_path: Path, limit: str, step: str
) -> None:
    provider = FunctionProvider(endless, provider_id="scripted", capabilities=bounded())
    host = ScriptedHost(tmp_path, model=provider, price_of=lambda *_: Price("5", "5"))
    ref = host.write("acme/x", limits=limit)
    async with host.open() as rye:
        done = await rye.execute(ref, thread="fork")
        assert isinstance(done, ThreadResult)
        kept = await (await rye.threads.thread(done.thread_id)).result()
    for result in (done, kept):
        with pytest.raises(ThreadFailed) as failure:
            result.raise_for_status()
        error = failure.value
        assert isinstance(error, ToolFailed)
        assert error.message.startswith("directive:acme/x failed: ")
        assert step in error.next_step
        assert step not in error.message
        assert str(error) == f"directive:acme/x failed: {result.error}"
        assert (error.code, error.thread_id) == (done.code, done.thread_id)
        assert error.item_id == ref
    assert done.to_dict()["next_step"] == kept.next_step


@pytest.mark.parametrize("in_child", [False, True])
async def test_a_hanging_model_meets_the_limit_of_time(tmp_path: Path, in_child: bool) -> None:
    def model(request: Any) -> Any:
        boss = "I am the boss" in request.messages[0].text and len(request.messages) == 1
        return fork("acme/x") if boss else hang()

    host = ScriptedHost(tmp_path, model=model)
    limits = 'duration_seconds="0.3"'
    ref = host.write("acme/x", limits="" if in_child else limits)
    if in_child:  # the child has as much time as its parent
        ref = host.write("acme/boss", "I am the boss.", permissions=MAY, limits=limits)
    with anyio.fail_after(20):
        done = await host.run(ref)
    assert (done.ended, done.code) == ("error", "duration_exceeded")
    assert "duration" in done.error
    rows = await host.store().registry.list_threads()
    assert {one.status for one in rows} <= {"error", "cancelled"}
    assert host.model.open_streams == 0
    for row in rows:
        assert (await host.store().ledger.tree(row.thread_id)).held.tokens == 0


async def test_a_hanging_tool_meets_the_limit_of_time(tmp_path: Path) -> None:
    @tool
    async def sleep_on() -> str:
        """Sleep."""
        await anyio.sleep_forever()
        raise AssertionError

    host = ScriptedHost(tmp_path, call("sleep_on"), say("ok"), tools=[sleep_on])
    with anyio.fail_after(20):
        done = await host.run(host.write("acme/x", limits='duration_seconds="1"'))
    assert (done.ended, done.code) == ("error", "duration_exceeded")
    (result,) = host.records(done.thread_id, "tool_call_result")
    assert "not known" in result.payload["content"][0]["text"]


async def test_spawns_and_depth_are_told_to_the_model(tmp_path: Path) -> None:
    seen: list[Any] = []

    def model(request: Any) -> Any:
        text = request.messages[0].text
        if "I am the boss" in text:
            if len(request.messages) == 1:
                return fork("acme/deep") + fork("acme/deep") + fork("acme/deep")
            seen.extend(results(request))
            return say("ok")
        if "I am deep" in text and len(request.messages) == 1:
            return fork("acme/deep")
        if "I am deep" in text:
            seen.extend(results(request))
        return say("done")

    host = ScriptedHost(tmp_path, model=model)
    host.write("acme/deep", "I am deep.", permissions=MAY)
    ref = host.write("acme/boss", "I am the boss.", permissions=MAY, limits='depth="1" spawns="2"')
    await host.run(ref)
    deep = [one for one in seen if "depth" in str(one)]
    assert len(deep) == 2  # each of the two children was refused one of its own
    (wide,) = (one for one in seen if "children" in str(one))
    assert "2" in wide
    rows = await host.store().registry.list_threads()
    assert sorted(one.status for one in rows).count("completed") == 3


# Many children at once


@pytest.mark.parametrize(
    "usage",
    [Usage(0, 0), None, Usage(50, 50), Usage(900, 900)],
    ids=["zero", "none", "some", "much"],
)
async def test_children_at_once_never_pass_a_count_or_a_hold(
    tmp_path: Path, usage: Usage | None
) -> None:
    async def model(request: Any) -> Any:
        text = request.messages[0].text
        if "I am the boss" in text:
            if len(request.messages) == 1:
                calls = fork("acme/work", **{"async": True})
                for _ in range(11):
                    calls += fork("acme/work", **{"async": True})
                return calls
            return say("ok", usage=Usage(10, 10))
        await anyio.sleep(0)
        return call("add", {"a": 1, "b": len(request.messages)}, usage=usage)

    provider = FunctionProvider(model, provider_id="scripted", capabilities=bounded(200))
    host = ScriptedHost(tmp_path, model=provider, price_of=lambda *_: Price("10", "10"))
    host.write("acme/work", "I work.", limits='turns="6"')
    ref = host.write(
        "acme/boss", "I am the boss.", permissions=MAY,
        limits='spawns="8" tokens="30000" spend="0.25" turns="4"',
    )  # fmt: skip
    done = await host.run(ref)
    store = host.store()
    rows = [one for one in await store.registry.list_threads() if one.parent_id == done.thread_id]
    started = [one for one in rows if await store.ledger.charges(one.thread_id)]
    assert (await store.registry.get_thread(done.thread_id)).spawn_count == 8
    assert len(started) <= 8
    account, tree = (
        await store.ledger.account(done.thread_id),
        await store.ledger.tree(done.thread_id),
    )
    assert account.ceiling.covers(tree.spent), (account, tree)
    assert account.total == tree.spent
    assert (tree.held.tokens, account.held.tokens, account.reserved.tokens) == (0, 0, 0)
    for row in rows:
        assert row.cost.turns <= 4  # the boss's own limit caps them
        assert row.ended


@pytest.mark.parametrize("usage", [Usage(0, 0), None], ids=["zero", "none"])
async def test_who_counts_nothing_is_charged_an_estimate(
    tmp_path: Path, usage: Usage | None
) -> None:
    answers = (call("add", {"a": 1, "b": n}, usage=usage) for n in range(50))
    provider = FunctionProvider(
        lambda _: next(answers), provider_id="scripted", capabilities=bounded(500)
    )
    host = ScriptedHost(tmp_path, model=provider, price_of=lambda *_: Price("10", "10"))
    done = await host.run(host.write("acme/x", limits='tokens="4000"'))
    assert (done.ended, done.code) == ("error", "tokens_exceeded")
    *charges, last = await host.store().ledger.charges(done.thread_id)
    assert {one.mark for one in charges} == {"estimated"}
    assert last.mark in ("estimated", "freed")
    assert all(one.held.covers(one.actual) and one.actual.tokens for one in charges)
    assert done.cost.spend_microcents == sum(one.actual.spend_microcents for one in charges) + (
        last.actual.spend_microcents
    )


async def test_one_that_says_it_used_more_than_was_held_stops_its_subtree(tmp_path: Path) -> None:
    def model(request: Any) -> Any:
        text = request.messages[0].text
        if "I am the boss" in text:
            return fork("acme/work") if len(request.messages) == 1 else say("ok")
        if len(request.messages) == 1:
            return call("add", {"a": 1, "b": 1}, usage=Usage(5_000, 90_000))
        return say("never asked")

    provider = FunctionProvider(model, provider_id="scripted", capabilities=bounded(500))
    host = ScriptedHost(tmp_path, model=provider, price_of=lambda *_: Price("1", "2"))
    host.write("acme/work", "I work.", limits='spend="0.05"')
    ref = host.write("acme/boss", "I am the boss.", permissions=MAY, limits='spend="1"')
    done = await host.run(ref)
    assert done.ended == "completed"  # what is above goes on
    store = host.store()
    (child,) = await store.registry.list_children(done.thread_id)
    assert child.status == "error"
    (event,) = host.records(child.thread_id, "budget_overspent")
    assert event.payload["spent"] == {"spend_microcents": 18_500_000, "tokens": 95_000}
    account = await store.ledger.account(child.thread_id)
    assert (account.own.spend_microcents, account.stopped) == (18_500_000, True)
    assert not (await store.ledger.account(done.thread_id)).stopped
    assert (await store.ledger.account(done.thread_id)).total == (
        await store.ledger.tree(done.thread_id)
    ).spent
    assert len([one for one in provider.requests if "I work" in one.messages[0].text]) == 1


# Money


async def test_money_is_exact_to_the_microcent(tmp_path: Path) -> None:
    usages = [Usage(1_001, 77), Usage(1_234, 5), Usage(2_001, 333)]
    host = ScriptedHost(
        tmp_path,
        call("add", {"a": 1, "b": 1}, usage=usages[0]),
        call("add", {"a": 1, "b": 2}, usage=usages[1]),
        say("done", usage=usages[2]),
        price_of=lambda *_: Price("0.15", "0.6"),
    )
    done = await host.run(host.write("acme/x", "Many words. " * 800))
    # 0.15 USD per million tokens is 15 microcents a token; 0.6 is 60.
    by_hand = [1_001 * 15 + 77 * 60, 1_234 * 15 + 5 * 60, 2_001 * 15 + 333 * 60]
    store = host.store()
    assert [
        one.actual.spend_microcents for one in await store.ledger.charges(done.thread_id)
    ] == by_hand
    assert done.cost.spend_microcents == sum(by_hand) == done.total.spend_microcents
    ends = host.records(done.thread_id, "model_call_end")
    assert [one.payload["spend_microcents"] for one in ends] == by_hand
    assert done.to_dict()["cost"]["spend"] == sum(by_hand) / 10**8


async def test_a_child_spends_of_its_parents_money(tmp_path: Path) -> None:
    def model(request: Any) -> Any:
        if "I work" in request.messages[0].text:
            return say("done", usage=Usage(100, 50))
        if len(request.messages) == 1:
            return fork("acme/work") + fork("acme/work", limit_overrides={"spend": 0.5})
        return say("ok", usage=Usage(300, 20))

    host = ScriptedHost(tmp_path, model=model, price_of=lambda *_: Price("1", "3"))
    host.model._usage = Usage(200, 10)
    host.workspace.write("config/agent/resilience.yaml", {"loop": {"nudges": 0}})
    host.write("acme/work", "I work. " * 60)
    ref = host.write("acme/boss", "I am the boss. " * 60, permissions=MAY, limits='spend="2"')
    done = await host.run(ref)
    a_child = 100 * 100 + 50 * 300
    own = (200 * 100 + 10 * 300) + (300 * 100 + 20 * 300)
    assert done.cost.spend_microcents == own
    assert done.total.spend_microcents == own + 2 * a_child
    store = host.store()
    for child in await store.registry.list_children(done.thread_id):
        assert child.cost.spend_microcents == a_child
    account = await store.ledger.account(done.thread_id)
    assert (account.reserved.spend_microcents, account.held.spend_microcents) == (0, 0)


async def test_without_a_price_only_what_the_host_names_is_asked(tmp_path: Path) -> None:
    def prices(_: str, model: str) -> Price | None:
        return Price("1", "1") if model == "priced" else None

    host = ScriptedHost(
        tmp_path, say("ok"), say("ok"), price_of=prices, unpriced_models=frozenset()
    )
    free = host.write("acme/x")
    priced = host.write("acme/y", model='<model id="priced" provider="scripted"/>')
    refused = await host.run(free)
    assert refused.ended == "error"
    assert "has no price" in refused.error
    assert "AgentRunnerDeps.price_of" in refused.error
    assert host.model.requests == []
    assert (await host.run(priced)).ended == "completed"


async def test_a_transcript_tells_each_limit_and_verifies(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, *(call("add", {"a": 1, "b": n}) for n in range(4)))
    done = await host.run(host.write("acme/x", limits='turns="2"'))
    store = host.store()
    row = await store.registry.get_thread(done.thread_id)
    report = verify_transcript(
        store.folder_of(done.thread_id) / "transcript.jsonl", done.thread_id,
        load_run_key(host.workspace.user / ".ai").public, row.transcript_head, ended=True,
    )  # fmt: skip
    assert report.ok, report


async def test_a_limit_of_money_is_exact_whatever_the_host_rounds_to(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, say("Done."))
    ref = host.write("acme/x", permissions="", limits='spend="1.23456789"')
    with localcontext() as rounding:
        rounding.prec = 3
        done = await host.run(ref)
    assert (
        await host.store().ledger.account(done.thread_id)
    ).ceiling.spend_microcents == 123_456_789
    assert (await host.store().registry.get_thread(done.thread_id)).limits["spend"] == 1.23456789
