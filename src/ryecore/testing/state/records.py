"""Cases: the order, durability and proof of a thread's records."""

from contextlib import aclosing

import anyio

from ryecore.errors import InsufficientBudget, StateError
from ryecore.policy.budget import Amount
from ryecore.state.record_log import RecordStore
from ryecore.state.transcript_format import Record
from ryecore.testing.conformance.bench import check, equal
from ryecore.testing.state.bench import Place, StateCases, StateStore, raises, state_case

__all__ = ["RecordCases"]


class RecordCases(StateCases):
    """The order, durability and proof of a thread's records."""

    @state_case
    async def test_records_keep_their_order(self, store: StateStore, place: Place) -> None:
        """Committed records are read in their order, with their payloads, and no others."""
        log = await store.records.create("a")
        await log.commit()
        equal(await _read(store), [], "an empty log")
        for number in range(5):
            log.append("step", {"n": number, "text": "\ud800 é\n", "deep": [{"x": None}]})
        equal(await _read(store), [], "what isn't committed")
        await log.commit()
        log.append("late", {})
        found = await _read(store)
        equal([one.type for one in found], ["step"] * 5, "the types")
        equal([one.payload["n"] for one in found], list(range(5)), "the order")
        equal(found[0].payload["text"], "\ud800 é\n", "the text")
        check(all(one.thread_id == "a" for one in found), "A record names another thread.")
        times = [one.timestamp for one in found]
        equal(times, sorted(times), "the times")
        await log.close()
        equal((await _read(store))[-1].type, "late", "what closing has committed")
        await log.close()

    @state_case
    async def test_records_are_read_in_parts(self, store: StateStore, place: Place) -> None:
        """Reading continues behind a record, and stops where it is asked to."""
        log = await store.records.create("a")
        for number in range(4):
            log.append("step", {"n": number})
        await log.commit()
        found = await _read(store)
        equal(found[-1].end, log.offset, "the end of the last record")
        rest = [one async for one in store.records.read("a", from_offset=found[1].end)]
        equal([one.payload["n"] for one in rest], [2, 3], "the rest")
        part = [one async for one in store.records.read("a", to_offset=found[1].end)]
        equal([one.payload["n"] for one in part], [0, 1], "the part")
        await log.close()

    @state_case
    async def test_records_go_ahead_of_rows(self, store: StateStore, place: Place) -> None:
        """Records that rows depend on are written before them, or with them, and once."""
        await store.registry.register("a", "directive:acme/a")
        await store.ledger.register("a", Amount(1000, 1000))
        await store.registry.claim("a")
        log = await store.records.create("a")
        await log.write_ahead()
        for number in range(3):
            log.append("step", {"n": number})
            await log.write_ahead()
            if number % 2:
                await store.registry.set_head("a", (number, "0" * 64))
            else:
                await store.ledger.hold("a", number, 1, Amount(10, 10))
            equal([one.payload["n"] for one in await _read(store)], list(range(number + 1)), "them")
        log.append("step", {"n": 3})
        await log.write_ahead()
        await raises(InsufficientBudget, store.ledger.hold("a", 4, 1, Amount(5000, 10)))
        await log.commit()
        equal(len(await _read(store)), 4, "the records beside a hold that is refused")
        log.append("end", {})
        head = await log.checkpoint(1)
        await log.write_ahead(closes=True)
        await store.registry.settle("a", "completed", {}, head=(head.offset, head.digest))
        equal((await _read(store))[-2].type, "end", "the last record")
        await log.close()
        again, _ = await store.records.resume("a", (head.offset, head.digest))
        await again.close()

    @state_case
    async def test_records_that_can_wait(self, store: StateStore, place: Place) -> None:
        """A turn that is signed, to be written soon, is written by itself, or with the next."""
        log = await store.records.create("a")
        log.append("step", {"n": 0})
        first = await log.sign(0)
        log.append("step", {"n": 1})
        head = await log.sign(1)
        log.append("step", {"n": 2})
        await log.commit()
        equal(len(await _read(store)), 5, "three records and two checkpoints")
        report = await store.records.verify("a", (head.offset, head.digest), ended=False)
        check(report.ok, f"The log isn't proved: {report.problems}")
        check(first.offset < head.offset < log.offset, "A checkpoint covers another part.")
        log.append("step", {"n": 3})
        await log.write_soon()
        with anyio.fail_after(10):
            while len(await _read(store)) < 6:  # noqa: ASYNC110 - a store tells nobody of it
                await anyio.sleep(0.01)
        log.append("step", {"n": 4})
        last = await log.sign(2)
        await log.close()
        report = await store.records.verify("a", (last.offset, last.digest), ended=True)
        check(report.ok, f"The log isn't proved: {report.problems}")

    @state_case
    async def test_a_log_is_committed(self, store: StateStore, place: Place) -> None:
        """What is committed is there, however often there was nothing to commit."""
        log = await store.records.create("a")
        log.append("step", {"n": 0})
        await log.commit()
        await log.commit()
        await store.registry.synced()
        equal(len(await _read(store)), 1, "the records after a commit")
        await log.close()

    @state_case
    async def test_a_log_has_one_writer(self, store: StateStore, place: Place) -> None:
        """A log is made once, and resumed only after its writer has gone."""
        await raises(StateError, store.records.resume("a"))
        log = await store.records.create("a")
        await raises(StateError, store.records.create("a"))
        async with place.open() as other:
            await raises(StateError, other.records.resume("a"))
            await log.close()
            again, _ = await other.records.resume("a")
            await again.close()
        await store.records.create("b")  # of another thread

    @state_case
    async def test_checkpoints_prove_records(self, store: StateStore, place: Place) -> None:
        """Each turn is attested by a signed chain, and the registry's head must be in it."""
        log = await store.records.create("a")
        heads = []
        for turn in range(3):
            log.append("step", {"n": turn})
            heads.append(await log.checkpoint(turn))
        await log.close()
        check(len({head.digest for head in heads}) == len(heads), "Two checkpoints are the same.")
        for head in heads:
            report = await store.records.verify("a", (head.offset, head.digest), ended=True)
            check(report.ok, f"The log isn't proved: {report.problems}")
            equal({one.state for one in report.turns}, {"attested"}, "the turns")
        forged = (heads[-1].offset, "0" * 64)
        check(not (await store.records.verify("a", forged, ended=True)).ok, "A head is ignored.")
        await raises(StateError, store.records.resume("a", forged))
        check(not (await store.records.verify("b", ended=True)).ok, "A missing log is proved.")

    @state_case
    async def test_what_no_checkpoint_covers(self, store: StateStore, place: Place) -> None:
        """Records behind the last checkpoint are kept and reported, and the next one marks them."""
        log = await store.records.create("a")
        log.append("step", {"n": 0})
        head = await log.checkpoint(1)
        log.append("tail", {"n": 1})
        log.append("tail", {"n": 2})
        await log.close()
        check((await store.records.verify("a", ended=False)).ok, "A running log has a tail.")
        again, found = await store.records.resume("a", (head.offset, head.digest))
        equal((found.head, found.turn), (head, 1), "the last checkpoint")
        equal((found.tail_records, found.last_type), (2, "tail"), "the tail")
        again.append("end", {})
        await again.checkpoint(2)
        await again.close()
        report = await store.records.verify("a", ended=True)
        check(report.ok, f"The log isn't proved: {report.problems}")
        check(any(one.state == "unattested" for one in report.turns), "The tail isn't marked.")

    @state_case
    async def test_a_log_exists_from_its_beginning(self, store: StateStore, place: Place) -> None:
        """It exists before its first record, for each store; another thread's doesn't."""
        check(not await store.records.exists("a"), "A log exists before it is made.")
        log = await store.records.create("a")
        async with place.open() as other:
            check(await other.records.exists("a"), "The log is missing.")
            check(not await other.records.exists("a-2"), "A log exists that nobody made.")
        await log.close()
        check(await store.records.exists("a"), "A closed log is missing.")
        await raises(StateError, _read(store, "b"))

    @state_case
    async def test_streamed_text_comes_between_records(
        self, store: StateStore, place: Place
    ) -> None:
        """Pieces of text keep their order and their place, however the store joins them."""
        log = await store.records.create("a")
        for number in range(3):
            log.append("step", {"n": number})
            for piece in ("Tides ", "é🌊", f" rise {number}. ", "x" * 5000):
                log.append_delta(piece)
        await log.commit()
        found = await _read(store)
        equal([one.payload["n"] for one in found if one.type == "step"], [0, 1, 2], "the records")
        equal({one.type for one in found}, {"step", "token_delta"}, "the types")
        texts, number = ["", "", ""], 0
        for one in found:
            if one.type == "step":
                number = one.payload["n"]
            else:
                texts[number] += one.payload["text"]
        wanted = [f"Tides é🌊 rise {number}. " + "x" * 5000 for number in range(3)]
        equal(texts, wanted, "the text")
        log.append_delta("last")
        head = await log.checkpoint(1)
        await log.close()
        report = await store.records.verify("a", (head.offset, head.digest), ended=True)
        check(report.ok, f"Streamed text isn't proved: {report.problems}")

    @state_case
    async def test_records_are_read_with_their_proof(self, store: StateStore, place: Place) -> None:
        """All records of a proved log are read, and the end of any other one is an error."""
        log = await store.records.create("a")
        log.append("thread_started", {})
        first = await log.checkpoint(0)
        log.append("tail", {})
        await log.commit()
        at = (first.offset, first.digest)
        found = await _proved(store, at, ended=False)
        equal([one.type for one in found], ["thread_started", "checkpoint", "tail"], "the records")
        await raises(StateError, _proved(store, at, ended=True))
        await raises(StateError, _proved(store, (first.offset, "0" * 64), ended=False))
        log.append("thread_completed", {})
        head = await log.checkpoint(1)
        at = (head.offset, head.digest)
        equal(len(await _proved(store, at, ended=True)), 5, "the ended log")
        log.append("late", {})
        await log.commit()
        await raises(StateError, _proved(store, at, ended=False))
        await log.close()

    @state_case
    async def test_records_are_followed(self, store: StateStore, place: Place) -> None:
        """A reader in another store gets each record once, until the thread has ended."""
        has_ended = False

        async def ended() -> bool:
            return has_ended

        seen: list[object] = []
        arrived = anyio.Event()

        async def read(reader: RecordStore) -> None:
            async with aclosing(reader.follow("a", ended)) as records:
                async for record in records:
                    seen.append(record.payload["n"])
                    arrived.set()

        log = await store.records.create("a")
        async with place.open() as other, anyio.create_task_group() as group:
            group.start_soon(read, other.records)
            for number in range(4):
                arrived = anyio.Event()
                log.append("step", {"n": number})
                await log.commit()
                await arrived.wait()
            log.append("step", {"n": 4})
            await log.commit()
            has_ended = True
        equal(seen, list(range(5)), "the followed records")
        part = [one async for one in store.records.follow("a", ended, from_start=False)]
        equal(part, [], "what follows the end")
        await log.close()

    @state_case
    async def test_a_record_that_is_no_json(self, store: StateStore, place: Place) -> None:
        """It is refused when it is appended, and nothing of it is written."""
        log = await store.records.create("a")
        try:
            log.append("step", {"bytes": b"x"})
        except (TypeError, StateError):
            pass
        else:
            raise AssertionError("A payload that isn't JSON was taken.")
        log.append("step", {"n": 1})
        await log.close()
        equal([one.payload for one in await _read(store)], [{"n": 1}], "the records")


async def _read(store: StateStore, thread_id: str = "a") -> list[Record]:
    return [one async for one in store.records.read(thread_id)]


async def _proved(store: StateStore, head: tuple[int, str] | None, *, ended: bool) -> list[Record]:
    return [one async for one in store.records.read_proved("a", head, ended=ended)]
