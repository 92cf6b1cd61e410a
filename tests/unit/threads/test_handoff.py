"""A thread is handed off: the next one keeps its parent, its chain and its budget."""

import json
from pathlib import Path

import pytest
from attrs import evolve

from ryecore.llm.request import LlmRequest
from ryecore.llm.result import Usage
from ryecore.state.waiting import run_blocking
from ryecore.testing import FunctionProvider, Turn, call, say
from ryecore.testing.scripted import EVERYTHING
from tests.scripted_host import ScriptedHost

pytestmark = pytest.mark.anyio

CONTEXT = evolve(EVERYTHING, context_tokens=1000, max_output_tokens=1500)
PERMITS = "<execute><directive>acme/*</directive><tool>host/*</tool></execute>"


def filling(request: LlmRequest) -> Turn:
    """A child fills its context with one call and then is done; its parent starts it, and waits."""
    said = "\n".join(message.text for message in request.messages)
    results = [
        one for message in request.messages if message.role == "tool" for one in message.parts
    ]
    if "I am the child." in said:
        if not results:
            return call("add", {"a": 1, "b": 2}, usage=Usage(950, 10))
        return say("Three.", usage=Usage(100, 10))
    if not results:
        fork = {"item_id": "directive:acme/child", "thread": "fork"}
        return call("rye_execute", fork, usage=Usage(100, 10))
    return say(results[-1].text, usage=Usage(100, 10))  # type: ignore[union-attr]


async def test_a_child_with_a_full_context_goes_on_below_the_same_parent(tmp_path: Path) -> None:
    host = ScriptedHost(
        tmp_path, model=FunctionProvider(filling, provider_id="scripted", capabilities=CONTEXT)
    )
    host.write("acme/child", "I am the child.", limits='tokens="20000" turns="5"')
    ref = host.write(
        "acme/parent", permissions=PERMITS, limits='tokens="50000" turns="5" spawns="1" depth="1"'
    )
    done = await host.run(ref)
    assert done.ended == "completed"
    came = json.loads(done.text)
    assert came["result"] == "Three."  # the answer of the last thread is the child's answer

    store = host.store()
    first, second = await store.registry.list_children(done.thread_id)
    assert (first.status, second.status) == ("continued", "completed")
    assert came["thread_id"] == second.thread_id
    assert first.continuation_thread_id == second.thread_id
    assert (second.continuation_of, second.chain_root_id) == (first.thread_id, first.thread_id)
    assert second.parent_id == done.thread_id
    assert (
        await store.registry.get_thread(done.thread_id)
    ).spawn_count == 1  # it takes the first's place

    old, new = (
        await store.ledger.account(first.thread_id),
        await store.ledger.account(second.thread_id),
    )
    assert old.ceiling.tokens == 20000
    assert new.ceiling.tokens == 20000 - 960
    root = await store.ledger.account(done.thread_id)
    assert root.children.tokens == old.own.tokens + new.own.tokens == 960 + 110
    assert root.held.tokens == root.reserved.tokens == 0
    assert (await store.ledger.tree(done.thread_id)).spent == root.total
    kinds = [one.type for one in host.records(first.thread_id)]
    assert "context_limit_reached" in kinds
    assert kinds.index("thread_handoff") < kinds.index("thread_continued")
    (resumed,) = host.records(second.thread_id, "thread_resumed")
    assert resumed.payload["kind"] == "handoff"


async def test_a_chain_ends_where_its_budget_does(tmp_path: Path) -> None:
    model = FunctionProvider(
        lambda _: call("add", {"a": 1, "b": 2}, usage=Usage(950, 10)),
        provider_id="scripted",
        capabilities=CONTEXT,
    )
    host = ScriptedHost(tmp_path, model=model)
    done = await host.run(host.write("acme/x", limits='tokens="9000"'))
    assert done.ended == "error"
    store = host.store()
    rows = tuple(reversed(await store.registry.list_threads()))
    assert {one.status for one in rows[:-1]} == {"continued"}
    assert {one.chain_root_id for one in rows[1:]} == {rows[0].thread_id}
    spent = sum([(await store.ledger.account(one.thread_id)).own.tokens for one in rows])
    assert spent <= 9000
    ceilings = [(await store.ledger.account(one.thread_id)).ceiling.tokens for one in rows]
    assert ceilings == sorted(ceilings, reverse=True)


async def test_a_wish_from_elsewhere_is_seen_at_the_next_turn(tmp_path: Path) -> None:
    host: ScriptedHost

    def wishing(request: LlmRequest) -> Turn:
        store = host.store()
        rows = run_blocking(store.registry.list_active())
        if len(request.messages) == 1:
            run_blocking(store.hand_off(rows[-1].thread_id))  # as another process does
            store.close()
            return call("add", {"a": 1, "b": 2})
        store.close()
        return say("Three.")

    host = ScriptedHost(tmp_path, model=wishing)
    done = await host.run(host.write("acme/x", limits='turns="4"'))
    assert (done.ended, done.text) == ("completed", "Three.")
    last, first = await host.store().registry.list_threads()
    assert (first.status, last.status) == ("continued", "completed")
    assert not last.handoff_requested
    assert len(host.records(first.thread_id, "tool_call_result")) == 1
    assert host.records(last.thread_id, "tool_call_result") == []  # nothing is done twice


async def test_a_handle_counts_what_goes_on_with_its_thread(tmp_path: Path) -> None:
    host = ScriptedHost(
        tmp_path, model=FunctionProvider(filling, provider_id="scripted", capabilities=CONTEXT)
    )
    ref = host.write("acme/child", "I am the child.")
    async with host.open() as rye:
        thread = await rye.start(ref)
        done = await thread.result()
        assert done.thread_id != thread.thread_id
        assert (await thread.cost()).tokens == 960 + 110


async def test_a_thread_with_an_idempotency_key_is_handed_off_and_found(tmp_path: Path) -> None:
    def model(request: LlmRequest) -> Turn:
        if len(request.messages) == 1:
            return call("add", {"a": 1, "b": 2}, usage=Usage(950, 10))
        return say("Three.", usage=Usage(100, 10))

    provider = FunctionProvider(model, provider_id="scripted", capabilities=CONTEXT)
    host = ScriptedHost(tmp_path, model=provider)
    ref = host.write("acme/x", limits='turns="4"')
    options = {"thread": "fork", "idempotency_key": "order-17"}
    async with host.open() as rye:
        done = await rye.execute(ref, **options)
        again = await rye.execute(ref, **options)
        started = (await rye.execute(ref, async_=True, **options)).to_dict()
    assert (done.ended, done.text) == ("completed", "Three.")
    assert (again.thread_id, again.text) == (done.thread_id, "Three.")
    assert (started["state"], started["result"]["thread_id"]) == ("completed", done.thread_id)
    last, first = await host.store().registry.list_threads()
    assert (first.status, last.status) == ("continued", "completed")
    assert len(provider.requests) == 2
