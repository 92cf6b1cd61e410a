"""Cases: calls that wait for an approval, answers that are given once, and used once."""

from collections.abc import Callable

from attrs import evolve

from ryecore.errors import InputError
from ryecore.state.approvals import ThreadApproval
from ryecore.state.model import Predecessor
from ryecore.testing.conformance.bench import check, equal
from ryecore.testing.state.bench import (
    Place,
    StateCases,
    StateStore,
    process_case,
    raises,
    state_case,
)

__all__ = ["ApprovalCases"]

_ITEM = "directive:acme/x"
_ASKED = ThreadApproval("", "a", "c1", "order", {"item": "tea", "n": 2}, "It asks.", "sha256:1")
_ROUNDS = 10


class ApprovalCases(StateCases):
    """Calls that wait for an approval, answers that are given once, and used once."""

    @state_case
    async def test_a_request_waits_until_it_is_answered(
        self, store: StateStore, place: Place
    ) -> None:
        """It holds what is asked, is listed, and another opening of the store answers it."""
        await _running(store, "a")
        asked = await store.approvals.request(_ASKED)
        check(bool(asked.id), "A request has no id.")
        stored = evolve(_ASKED, id=asked.id, requested_at=asked.requested_at)
        equal(asked, stored, "the request")
        equal(await store.approvals.get(asked.id), asked, "the stored request")
        equal(await store.approvals.pending(), (asked,), "what waits")
        async with place.open() as other:
            answered = await other.approvals.answer("a", None, True, "as agreed")
        equal(answered, evolve(asked, approved=True, answer_reason="as agreed"), "the answer")
        equal(await store.approvals.get(asked.id), answered, "the stored answer")
        equal(await store.approvals.pending(), (), "what waits after the answer")
        equal(await store.approvals.get("none"), None, "an unknown request")

    @state_case
    async def test_requests_are_listed_in_their_order_until_their_thread_ends(
        self, store: StateStore, place: Place
    ) -> None:
        """Those of ended threads aren't listed; an answer to them still counts for a resumption."""
        for name in ("a", "b"):
            await _running(store, name)
        b = await store.approvals.request(evolve(_ASKED, thread_id="b"))
        a = await store.approvals.request(_ASKED)
        equal(await store.approvals.pending(), (b, a), "what waits")
        await _end(store, "b")
        equal(await store.approvals.pending(), (a,), "what waits after an end")
        equal((await store.approvals.answer("b", b.id, False, "")).approved, False, "the answer")

    @state_case
    async def test_an_answer_is_given_once(self, store: StateStore, place: Place) -> None:
        """A second answer, one to an unknown call, and one that could mean two are refused."""
        await _running(store, "a")
        await raises(InputError, store.approvals.answer("a", None, True, ""))
        one = await store.approvals.request(_ASKED)
        other = await store.approvals.request(evolve(_ASKED, call_id="c2"))
        check(one.id != other.id, "Two calls of one answer share a request.")
        refused = await raises(InputError, store.approvals.answer("a", None, True, ""))
        check(one.id in str(refused) and other.id in str(refused), "The refusal names no ids.")
        await raises(InputError, store.approvals.answer("a", "c3", True, ""))
        await store.approvals.answer("a", "c2", False, "no")
        await raises(InputError, store.approvals.answer("a", other.id, True, ""))
        equal(
            (await store.approvals.answer("a", None, True, "")).id, one.id, "the one that is left"
        )

    @state_case
    async def test_an_answer_is_used_once(self, store: StateStore, place: Place) -> None:
        """Only an answer can be used; after it, the same call asks anew."""
        await _running(store, "a")
        one = await store.approvals.request(_ASKED)
        equal(await store.approvals.use(one.id), False, "the use of no answer")
        await store.approvals.answer("a", None, True, "")
        equal((await store.approvals.request(_ASKED)).id, one.id, "the same call before its use")
        equal(await store.approvals.use(one.id), True, "the first use")
        equal(await store.approvals.use(one.id), False, "the second use")
        fresh = await store.approvals.request(_ASKED)
        check(fresh.id != one.id and fresh.approved is None, "A used answer counts again.")

    @state_case
    async def test_an_answer_holds_for_exactly_its_call(
        self, store: StateStore, place: Place
    ) -> None:
        """Other arguments, another tool, and a tool that was changed ask anew."""
        await _running(store, "a")
        await store.approvals.request(_ASKED)
        await store.approvals.answer("a", None, True, "")
        for changed in (
            evolve(_ASKED, arguments={"item": "gin", "n": 2}),
            evolve(_ASKED, arguments={"item": "tea", "n": "2"}),
            evolve(_ASKED, arguments={"item": "tea", "n": 2.0}),
            evolve(_ASKED, tool_name="refund"),
            evolve(_ASKED, tool_digest="sha256:2"),
        ):
            equal((await store.approvals.request(changed)).approved, None, "another call's answer")
        same = evolve(_ASKED, arguments={"n": 2, "item": "tea"})
        equal((await store.approvals.request(same)).approved, True, "the order of arguments")

    @state_case
    async def test_a_thread_that_continues_finds_the_answer(
        self, store: StateStore, place: Place
    ) -> None:
        """The answer to a thread that died counts in the one that continues it, in no other."""
        await _running(store, "a")
        one = await store.approvals.request(_ASKED)
        await store.approvals.answer("a", None, True, "yes")
        await _end(store, "a")
        await _running(store, "stranger")
        again = evolve(_ASKED, thread_id="stranger")
        equal((await store.approvals.request(again)).approved, None, "a stranger's answer")
        await store.registry.register("a-2", _ITEM, follows=Predecessor("a", "a"))
        await store.registry.claim("a-2")
        found = await store.approvals.request(evolve(_ASKED, thread_id="a-2", call_id="c9"))
        equal((found.id, found.approved, found.thread_id), (one.id, True, "a-2"), "the answer")
        equal(await store.approvals.use(one.id), True, "its use")

    @process_case
    async def test_one_process_answers_and_one_uses(self, store: StateStore, place: Place) -> None:
        """Of eight that answer a call, one does; of eight that use the answer, one does."""
        await _running(store, "a")
        asked = [
            await store.approvals.request(evolve(_ASKED, call_id=f"c{number}"))
            for number in range(_ROUNDS)
        ]

        async def answer(store: StateStore, number: int) -> int:
            answered = 0
            for one in asked:
                try:
                    await store.approvals.answer("a", one.id, number % 2 == 0, f"by {number}")
                except InputError:
                    continue
                answered += 1
            return answered

        async def use(store: StateStore, number: int) -> int:
            return sum([await store.approvals.use(one.id) for one in asked])

        equal(sum(await place.race(answer)), _ROUNDS, "the answers")
        equal(sum(await place.race(use)), _ROUNDS, "the uses")

    @process_case
    async def test_an_answer_survives_a_kill(self, store: StateStore, place: Place) -> None:
        """What a process has answered or used before it was killed stays so."""
        await _running(store, "a")
        one = await store.approvals.request(_ASKED)

        async def answer(store: StateStore, announce: Callable[[str], None]) -> None:
            await store.approvals.answer("a", one.id, True, "yes")
            announce("answered")
            await store.approvals.use(one.id)
            announce("used")

        steps = await place.kill_during(answer, 1)
        found = await store.approvals.get(one.id)
        check(found is not None and found.approved is True, "An answer was lost.")
        if "used" in steps:
            equal(await store.approvals.use(one.id), False, "a use that was lost")


async def _running(store: StateStore, thread_id: str) -> None:
    await store.registry.register(thread_id, _ITEM)
    await store.registry.claim(thread_id)


async def _end(store: StateStore, thread_id: str) -> None:
    await store.registry.settle(thread_id, "killed", {})
