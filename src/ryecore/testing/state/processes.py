"""Cases: eight processes that race for one thread, and processes that are killed at their work."""

import random
from collections.abc import Callable

from ryecore.errors import AlreadyStarted, InsufficientBudget, LimitReached, ThreadConflict
from ryecore.policy.budget import Amount, Settlement, TreeSum
from ryecore.state.idempotency import IdempotencyKey
from ryecore.state.model import Cost, Status
from ryecore.testing.conformance.bench import check, equal
from ryecore.testing.state.bench import (
    PROCESSES,
    Place,
    StateCases,
    StateStore,
    process_case,
    raises,
)
from ryecore.testing.state.ledger import Accounts

__all__ = ["ProcessCases"]

_ITEM = "directive:acme/x"
_HELD, _SPENT = Amount(50, 7), Amount(30, 5)
_ROUNDS = 25


class ProcessCases(StateCases):
    """Eight processes that race for one thread, and processes that are killed at their work.

    Attributes:
        kills: At how many random moments a process is killed.
    """

    kills = 6

    # Races

    @process_case
    async def test_one_process_claims_a_thread(self, store: StateStore, place: Place) -> None:
        """Of eight, exactly one claims each thread; the others are refused."""
        for number in range(_ROUNDS):
            await store.registry.register(f"t-{number}", _ITEM)

        async def claim(store: StateStore, number: int) -> int:
            claimed = 0
            for one in range(_ROUNDS):
                try:
                    await store.registry.claim(f"t-{one}")
                except ThreadConflict:
                    continue
                claimed += 1
            return claimed

        equal(sum(await place.race(claim)), _ROUNDS, "the claims")

    @process_case
    async def test_one_process_starts_with_a_key(self, store: StateStore, place: Place) -> None:
        """Of eight starts with one key, one registers a thread, and all learn its id."""

        async def start(store: StateStore, number: int) -> int:
            started = 0
            for one in range(_ROUNDS):
                key = IdempotencyKey.of(f"key-{one}", _ITEM, {"n": one})
                try:
                    await store.registry.register(f"t-{one}-{number}", _ITEM, start=key)
                    # Unclaimed, it would end with this process and free its key.
                    await store.registry.claim(f"t-{one}-{number}")
                except AlreadyStarted as found:
                    check(str(found.facts["thread_id"]).startswith(f"t-{one}-"), "Another's id.")
                    continue
                started += 1
            return started

        equal(sum(await place.race(start)), _ROUNDS, "the starts")
        equal(await store.registry.count_threads(), _ROUNDS, "the threads")

    @process_case
    async def test_one_process_ends_a_thread(self, store: StateStore, place: Place) -> None:
        """Of eight ends with different results, the one that succeeds is the stored one."""
        fences = []
        for number in range(_ROUNDS):
            await store.registry.register(f"t-{number}", _ITEM)
            fences.append(await store.registry.claim(f"t-{number}"))

        async def end(store: StateStore, number: int) -> int:
            ended = 0
            for one in range(_ROUNDS):
                status: Status = "completed" if number % 2 else "error"
                try:
                    await store.registry.settle(
                        f"t-{one}", status, {"by": number}, fence=fences[one]
                    )
                except ThreadConflict:
                    continue
                found = await store.registry.get_result(f"t-{one}")
                equal(found, {"by": number}, "the result of the end that succeeded")
                ended += 1
            return ended

        equal(sum(await place.race(end)), _ROUNDS, "the ends")

    @process_case
    async def test_spawns_never_pass_their_limit(self, store: StateStore, place: Place) -> None:
        """Eight processes start exactly as many children as the limit allows."""
        await store.registry.register("r", _ITEM)

        async def spawn(store: StateStore, number: int) -> int:
            spawned = 0
            while True:
                try:
                    await store.registry.count_spawn("r", 101)
                except LimitReached:
                    return spawned
                spawned += 1

        equal(sum(await place.race(spawn)), 101, "the spawns")
        equal((await store.registry.get_thread("r")).spawn_count, 101, "the stored count")

    @process_case
    async def test_holds_never_pass_a_ceiling(self, store: StateStore, place: Place) -> None:
        """Eight processes hold exactly as often as the ceiling allows."""
        await Accounts(store).root("r", 50 * 100 + 49, 10**6)

        async def hold(store: StateStore, number: int) -> int:
            held = 0
            while True:
                try:
                    await store.ledger.hold("r", number, held, _HELD)
                except InsufficientBudget:
                    return held
                held += 1

        equal(sum(await place.race(hold)), 100, "the holds")
        account = await store.ledger.account("r")
        equal(account.held, Amount(5_000, 700), "what is held")
        equal(account.available.spend_microcents, 49, "what is left")

    @process_case
    async def test_sums_are_exact(self, store: StateStore, place: Place) -> None:
        """Eight processes spend exactly what they settle."""
        await Accounts(store).root("r", 8_000, 10**6)

        async def spend(store: StateStore, number: int) -> int:
            settled = 0
            while True:
                try:
                    await store.ledger.hold("r", number, settled, _HELD)
                except InsufficientBudget:
                    return settled
                await store.ledger.settle("r", number, settled, _SPENT)
                settled += 1

        settled = sum(await place.race(spend))
        account = await store.ledger.account("r")
        equal(account.own, Amount(30 * settled, 5 * settled), "what was spent")
        equal((account.held, len(await store.ledger.charges("r"))), (Amount(), settled), "the rest")
        # No process was refused before less than a hold for each of them was left.
        check(account.own.spend_microcents > 8_000 - PROCESSES * 50, "Too little was spent.")
        check(account.available.covers(Amount()), "More was spent than there was.")

    @process_case
    async def test_reservations_never_pass_a_ceiling(self, store: StateStore, place: Place) -> None:
        """Eight processes reserve exactly what there is."""
        await Accounts(store).root("r", 1_000, 10**6)

        async def reserve(store: StateStore, number: int) -> int:
            reserved = 0
            for turn in range(200):
                child = f"c-{number}-{turn}"
                await store.registry.register(child, _ITEM, "r")
                try:
                    granted = await store.ledger.reserve(
                        child, "r", Amount(30, 1), reserves_spend=True, reserves_tokens=False
                    )
                except InsufficientBudget:
                    break
                reserved += granted.spend_microcents
            return reserved

        equal(sum(await place.race(reserve)), 1_000, "the reservations")
        equal((await store.ledger.account("r")).available.spend_microcents, 0, "what is left")

    @process_case
    async def test_turns_beside_reservations_never_pass_a_ceiling(
        self, store: StateStore, place: Place
    ) -> None:
        """While four processes take turns, four reserve all that is left, tree by tree."""
        trees = [f"r{number}" for number in range(4)]
        for root in trees:
            await Accounts(store).root(root, 3_000, 10**6)
            for number in range(0, PROCESSES, 2):
                await store.ledger.hold(root, number * 1_000, 1, _HELD)
            for number in range(1, PROCESSES, 2):
                await store.registry.register(f"{root}-{number}", _ITEM, root)

        async def spend(store: StateStore, number: int) -> int:
            use = _reserve_the_rest if number % 2 else _take_turns
            return sum([await use(store, root, number) for root in trees])

        used, found = sum(await place.race(spend)), 0
        for root in trees:
            account = await store.ledger.account(root)
            found += (account.own + account.reserved).spend_microcents
            equal(account.held, Amount(), "what is held")
            check(account.available.covers(Amount()), "More was used than there was.")
        equal(found, used, "what was used")

    # Kills

    @process_case
    async def test_a_killed_spender_leaves_nothing_unpaid(
        self, store: StateStore, place: Place
    ) -> None:
        """Every step that returned is kept; the last hold is charged once its owner is dead."""
        for seed in range(self.kills):
            root, child = f"r{seed}", f"c{seed}"

            async def spend(
                store: StateStore, announce: Callable[[str], None], child: str = child
            ) -> None:
                await store.registry.claim(child)
                for turn in range(10_000):
                    await store.ledger.hold(child, turn, 1, _HELD, head=(turn, "ab" * 32))
                    announce(f"held {turn}")
                    await store.ledger.settle(child, turn, 1, _SPENT, snapshot=Cost(turns=turn))
                    announce(f"settled {turn}")

            await Accounts(store).root(root, 10**9, 10**9)
            await Accounts(store).child(child, root, 10**6, 10**6, reserves=(True, False))
            steps = await place.kill_during(spend, random.Random(seed).randrange(1, 60))  # noqa: S311
            ended = await store.registry.settle_abandoned(await store.registry.list_active())
            check(child in ended, "A killed thread isn't found dead.")
            charges = {one.turn: one for one in await store.ledger.charges(child)}
            for step in steps:
                what, turn = step.split()
                charge = charges[int(turn)]
                is_kept = charge.mark == "counted" or (what == "held" and charge.actual == _HELD)
                check(is_kept, f"{step} was lost: {charge}")
            assumed = sum(one.mark == "assumed" for one in charges.values())
            check(assumed <= 1, f"{assumed} holds were open at once.")
            paid = sum((one.actual for one in charges.values()), Amount())
            account = await store.ledger.account(root)
            equal((account.children, account.held), (paid, Amount()), "the parent's account")
            equal(account.reserved, Amount(), "what is reserved")
            equal(await store.ledger.tree(root), TreeSum(paid, Amount(), 2), "the sum")

    @process_case
    async def test_a_killed_writer_leaves_whole_records(
        self, store: StateStore, place: Place
    ) -> None:
        """Committed records and checkpoints are there, in order; the log is resumed and proved."""
        for seed in range(self.kills):
            name = f"t-{seed}"

            async def write(
                store: StateStore, announce: Callable[[str], None], name: str = name
            ) -> None:
                log = await store.records.create(name)
                for number in range(10_000):
                    log.append("step", {"n": number, "text": "x" * (number % 97)})
                    if number % 3:
                        await log.commit()
                        announce(f"committed {number}")
                    else:
                        head = await log.checkpoint(number)
                        announce(f"closed {number} {head.offset} {head.digest}")

            steps = await place.kill_during(write, random.Random(seed).randrange(1, 40))  # noqa: S311
            last = int(steps[-1].split()[1])
            closed = [step.split() for step in steps if step.startswith("closed")]
            head = (int(closed[-1][2]), closed[-1][3]) if closed else None
            log, found = await store.records.resume(name, head)
            check(found.turn >= (int(closed[-1][1]) if closed else 0), "A checkpoint was lost.")
            log.append("end", {})
            await log.checkpoint(last + 1)
            await log.close()
            records = [one async for one in store.records.read(name)]
            numbers = [one.payload["n"] for one in records if one.type == "step"]
            equal(numbers, list(range(len(numbers))), "the order of the records")
            check(len(numbers) > last, f"Record {last} was committed, and {len(numbers)} are left.")
            report = await store.records.verify(name, head, ended=True)
            check(report.ok, f"The log isn't proved: {report.problems}")

    @process_case
    async def test_a_killed_registrar_leaves_whole_threads(
        self, store: StateStore, place: Place
    ) -> None:
        """A start is there with its key, its count and its row, or not at all."""
        await store.registry.register("r", _ITEM)

        async def start(store: StateStore, announce: Callable[[str], None]) -> None:
            for number in range(10_000):
                name = f"c-{number}"
                key = IdempotencyKey.of(name, _ITEM, {})
                await store.registry.register(name, _ITEM, start=key)
                fence = await store.registry.claim(name)
                announce(f"claimed {name}")
                await store.registry.settle(name, "completed", {"name": name}, fence=fence)
                announce(f"ended {name}")

        steps = await place.kill_during(start, 31)
        await store.registry.settle_abandoned(await store.registry.list_active())
        for step in steps:
            what, name = step.split()
            row = await store.registry.get_thread(name)
            key = IdempotencyKey.of(name, _ITEM, {})
            await raises(AlreadyStarted, store.registry.check_start(key, None))
            check(row.status in ("completed", "error"), f"{name} is {row.status}.")
            if what == "ended":
                equal(await store.registry.get_result(name), {"name": name}, "the result")


async def _take_turns(store: StateStore, root: str, number: int) -> int:
    """Take turns until nothing is left, and return what they cost."""
    for turn in range(number * 1_000, number * 1_000 + 999):
        settled = Settlement(turn, 1, _HELD, _SPENT, "counted")
        snapshot, head = Cost(turns=turn), (turn + 1, "ab" * 32)
        _, refused = await store.ledger.settle_and_hold(
            root, [settled], turn + 1, 1, _HELD, snapshot=snapshot, head=head
        )
        if refused is not None:
            return _SPENT.spend_microcents * (turn + 1 - number * 1_000)
    raise AssertionError("More turns were taken than there was money for.")


async def _reserve_the_rest(store: StateStore, root: str, number: int) -> int:
    """Reserve all that is left for a child, once some of it is spent."""
    while (await store.ledger.account(root)).own.spend_microcents < 300:
        pass
    try:
        granted = await store.ledger.reserve(
            f"{root}-{number}", root, Amount(10**6, 1), reserves_spend=True, reserves_tokens=False
        )
    except InsufficientBudget:
        return 0
    return granted.spend_microcents
