"""Calls of a thread that wait for a person, who answers from anywhere."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import evolve

from ryecore.errors import InputError
from ryecore.llm import Usage
from ryecore.rye import Rye
from ryecore.state.approvals import ThreadApproval
from ryecore.testing import call, say
from ryecore.tools import tool
from tests.scripted_host import ScriptedHost

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


class Shop:
    """A host whose tool needs an approval."""

    def __init__(self, root: Path, *script: Any) -> None:
        self.ordered: list[str] = []

        @tool(needs_approval=True)
        async def order(item: str) -> str:
            """Order something."""
            self.ordered.append(item)
            return f"{item} ordered"

        self.host = ScriptedHost(root, *script, tools=[order])
        self.ref = self.host.write("acme/shop")


async def waiting(rye: Rye, thread_id: str, but: str = "") -> ThreadApproval:
    """The call that waits, as soon as there is one with another id."""
    store = rye.threads._store()
    assert store is not None
    async with store.watch(thread_id) as watched:
        with anyio.fail_after(10):
            while True:
                for one in await rye.threads.approvals():
                    if one.id != but:
                        return one
                await watched.changed(1)


async def it_is_seen_to_wait(rye: Rye, one: ThreadApproval) -> None:
    said = f"waits for approval of order: rye threads approve {one.thread_id}"
    (listed,) = found = await rye.threads.list()
    assert (listed.status, listed.approvals) == ("running", (one,))
    assert said in str(found)
    assert listed.to_dict()["approvals"] == [one.to_dict()]
    report = await rye.threads.show(one.thread_id)
    assert said.removeprefix("waits ") in str(report)
    assert report.to_dict()["approvals"] == [one.to_dict()]
    tree = await rye.threads.tree(one.thread_id)
    assert said.split(": ", maxsplit=1)[1] in str(tree)
    assert tree.to_dict()["approvals"] == [one.to_dict()]
    assert "waits for approval of order" in tree._repr_html_()


@pytest.mark.parametrize("approve", [True, False])
async def test_a_thread_waits_and_is_answered_through_another_rye(
    tmp_path: Path, approve: bool
) -> None:
    shop = Shop(tmp_path, call("order", {"item": "tea"}), say("done"))
    async with shop.host.open() as rye, shop.host.workspace.open() as other:
        started = await rye.start(shop.ref)
        one = await waiting(rye, started.thread_id)
        assert (one.tool_name, dict(one.arguments)) == ("order", {"item": "tea"})
        assert shop.ordered == []
        await it_is_seen_to_wait(other, one)
        answer = other.threads.approve if approve else other.threads.deny
        await answer(started.thread_id, reason="we have some")
        done = await started.result()
        assert done.success, done
        with pytest.raises(InputError, match="waits for an approval"):
            await answer(started.thread_id)
        assert await rye.threads.approvals() == ()
    assert shop.ordered == (["tea"] if approve else [])
    records = shop.host.records(started.thread_id, "approval_requested", "approval_resolved")
    assert [one.type for one in records] == ["approval_requested", "approval_resolved"]
    if not approve:
        results = shop.host.records(started.thread_id, "tool_call_result")
        assert "was not approved: we have some" in str(results[0])


async def test_the_cost_of_the_answer_is_settled_while_its_call_waits(tmp_path: Path) -> None:
    """A process that died in the wait was charged all that had been held: the thread's limit."""
    order = call("order", {"item": "tea"}, usage=Usage(400, 20))
    shop = Shop(tmp_path, order, say("done"))
    async with shop.host.open() as rye:
        started = await rye.start(shop.ref)
        await waiting(rye, started.thread_id)
        (charge,) = await rye.threads.charges(started.thread_id)
        assert (charge.actual.tokens, charge.mark) == (420, "counted")
        assert " 420/" in str(await rye.threads.tree(started.thread_id))
        await rye.threads.approve(started.thread_id)
        assert (await started.result()).success


async def test_two_calls_wait_each_for_its_own_answer(tmp_path: Path) -> None:
    tea = call("order", {"item": "tea"})
    shop = Shop(tmp_path, tea + tea, say("done"))
    async with shop.host.open() as rye:
        started = await rye.start(shop.ref)
        one = await waiting(rye, started.thread_id)
        await rye.threads.approve(started.thread_id, one.id)
        other = await waiting(rye, started.thread_id, but=one.id)
        await rye.threads.deny(started.thread_id, other.call_id)
        assert (await started.result()).success
    assert shop.ordered == ["tea"]


async def test_an_answer_is_used_once_and_for_the_same_call_alone(tmp_path: Path) -> None:
    shop = Shop(tmp_path, say("done"))
    done = await shop.host.run(shop.ref)
    store, thread_id = shop.host.store(), done.thread_id
    asked = ThreadApproval("", thread_id, "c1", "order", {"item": "tea"}, "", "digest")
    stored = await store.approvals.request(asked)
    await store.approvals.answer(thread_id, None, True, "")

    again = await store.approvals.request(asked)
    assert (again.id, again.approved) == (stored.id, True)
    for changed in ({"arguments": {"item": "gin"}}, {"tool_digest": "other"}):
        assert (await store.approvals.request(evolve(asked, **changed))).approved is None
    assert await store.approvals.use(stored.id)
    assert not await store.approvals.use(stored.id)
    fresh = await store.approvals.request(asked)
    assert (fresh.id != stored.id, fresh.approved) == (True, None)
    store.close()


async def test_a_thread_that_waits_ends_with_its_deadline(tmp_path: Path) -> None:
    shop = Shop(tmp_path, call("order", {"item": "tea"}), say("done"))
    async with shop.host.open() as rye:
        done = await rye.execute(shop.ref, thread="fork", limits={"duration_seconds": 0.3})
        assert not done.success
        assert await rye.threads.approvals() == ()
    assert shop.ordered == []


async def test_a_resumed_thread_finds_the_answer_to_the_call_that_it_makes_again(
    tmp_path: Path,
) -> None:
    tea = call("order", {"item": "tea"})
    shop = Shop(tmp_path, tea, tea, say("done"))
    async with shop.host.open() as rye:
        started = await rye.start(shop.ref)
        await waiting(rye, started.thread_id)
        await rye.threads.kill(started.thread_id, grace_s=0.1)
        await started.result()
        assert await rye.threads.approvals() == ()
        await rye.threads.approve(started.thread_id)
        done = await rye.threads.resume(started.thread_id)
        assert done.success, done
    assert shop.ordered == ["tea"]
