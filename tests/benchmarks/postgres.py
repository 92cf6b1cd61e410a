"""State on PostgreSQL beside SQL by hand on the same server, in one run.

`python -m tests.benchmarks postgres`. The floor is psycopg with the rows that the contract of a
thread demands, in as few transactions and round trips: see `floor/postgres_threads.py`. Until
commit 4b0ee80c it had neither fences nor notices, and waited for each of its statements.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import psycopg

from ryecore.agent.settlements import Unwritten
from ryecore.items.signature import utc_now
from ryecore.policy.budget import Amount, Settlement
from ryecore.state.model import Cost
from ryecore.state.store import ThreadStore
from ryecore.state.thread_file import ThreadFile
from ryecore.state.waiting import run_blocking
from tests.benchmarks.database import processor_ms
from tests.benchmarks.floor.postgres_threads import BareThreads
from tests.benchmarks.harness import compare, report
from tests.postgres import serving_postgres

_PROCESSES = 8
_KINDS = ("bare", "trees", "parent")
_PASSES, _SECONDS = 6, 1.0
_ROUNDS, _THREADS = 6, 100
_GOAL = "at most 2 times the SQL by hand"
_ITEM = "directive:acme/research"
_CEILING = Amount(2**52, 2**52)
_HELD, _SPENT = Amount(50, 20), Amount(30, 10)
_HEAD = (4096, "a" * 64)
_LIMITS = {"turns": 8, "tokens": 100_000, "depth": 5, "duration_seconds": 3600}
_RESULT = {"status": "success", "text": "x" * 300}
_TURN = {"turn": 1, "role": "assistant", "text": "x" * 300}


class _Ours:
    """A store on the server, without what plans and runs threads."""

    def __init__(self, folder: Path, state: str) -> None:
        self.store = ThreadStore.open(folder / "project/.ai", folder / "user/.ai", state=state)
        now = utc_now()
        self._file = (_ITEM, "acme/research", "a" * 64, "running", now, now, "fake/m", _LIMITS, ())

    async def open(self, thread_id: str, parent: str | None = None) -> None:
        registry, ledger = self.store.registry, self.store.ledger
        await registry.register(thread_id, _ITEM, parent)
        if parent is None:
            await ledger.register(thread_id, _CEILING)
        else:
            await ledger.reserve(
                thread_id, parent, Amount(2**40, 2**40), reserves_spend=True, reserves_tokens=True
            )
        await registry.claim(thread_id)

    async def hold(self, thread_id: str, turn: int) -> None:
        await self.store.ledger.hold(thread_id, turn, 1, _HELD, head=_HEAD)

    async def settle(self, thread_id: str, turn: int) -> None:
        cost = Cost(turn, 5, 5, 30)
        await self.store.ledger.settle(thread_id, turn, 1, _SPENT, snapshot=cost)

    async def turn(self, thread_id: str, turn: int) -> None:
        """Settle a turn and hold for the next, as an agent's loop does."""
        settled = Settlement(turn, 1, _HELD, _SPENT, "counted")
        _, refused = await self.store.ledger.settle_and_hold(
            thread_id, [settled], turn + 1, 1, _HELD, snapshot=Cost(turn, 5, 5, 30), head=_HEAD
        )
        assert refused is None

    async def thread(self, thread_id: str, parent: str | None = None) -> None:
        """Write what a thread of one turn leaves, as its lifecycle does."""
        store = self.store
        registry, ledger = store.registry, store.ledger

        async def claim() -> int:
            if parent is None:
                await ledger.register(thread_id, Amount(2**40, 2**40))
            else:
                await ledger.reserve(
                    thread_id, parent, Amount(10**6, 10**6), reserves_spend=True,
                    reserves_tokens=True,
                )  # fmt: skip
            return await registry.claim(thread_id, limits=_LIMITS, model="fake/m")

        await registry.register(thread_id, _ITEM, parent)
        fence = await registry.together(claim, tree=thread_id)
        file = ThreadFile(thread_id, *self._file)
        log = await store.open_log(file)
        log.append("thread_started", file.to_dict())
        await log.write_ahead()
        await log.write_soon()
        log.append("cognition_in", _TURN)
        begun = await log.sign(0)
        log.append("model_call", _TURN)
        await log.write_ahead()
        await ledger.hold(thread_id, 1, 1, _HELD, head=(begun.offset, begun.digest))
        log.append("model_call_end", _TURN)
        log.append("cognition_out", _TURN)
        await log.sign(1)
        account = await ledger.account(thread_id)
        assert not account.has_running_children
        log.append("thread_completed", {})
        head = await log.sign(1)
        await log.write_ahead(closes=True)
        cost = Cost(1, 5, 5, 30)
        unwritten = Unwritten(
            thread_id, cost, (Settlement(1, 1, _HELD, _SPENT, "counted"),), account.own
        )
        await store.settle(
            thread_id, "completed", _RESULT, fence, head=(head.offset, head.digest),
            snapshot=cost, charge=lambda: unwritten.write(ledger),
            file=file.ended("completed", cost, utc_now()),
        )  # fmt: skip
        await log.close()


def _alone(folder: Path, address: str) -> None:
    ours, bare = _Ours(folder, f"{address}&schema=ours"), BareThreads(address, "bare")
    bare.set_up()
    run_blocking(ours.open("root"))
    bare.open("root")
    done = {"ours": 0, "bare": 0, "turn": 0}
    run_blocking(ours.open("turns"))
    run_blocking(ours.hold("turns", 1))

    def next_of(name: str) -> int:
        done[name] += 1
        return done[name]

    def our_pair() -> None:
        number = next_of("ours")
        run_blocking(ours.hold("root", number))
        run_blocking(ours.settle("root", number))

    def bare_pair() -> None:
        number = next_of("bare")
        bare.hold("root", number)
        bare.settle("root", number)

    compare("postgres: hold and settle", our_pair, bare_pair, goal=_GOAL, calls=20)
    compare(
        "postgres: a turn, which settles and holds", lambda: run_blocking(
            ours.turn("turns", next_of("turn"))), bare_pair, goal=_GOAL, calls=20,
    )  # fmt: skip
    compare(
        "postgres: a thread of one turn, from start to end",
        lambda: run_blocking(ours.thread(f"t{next_of('ours')}")),
        lambda: bare.thread(f"t{next_of('bare')}"),
        goal=_GOAL,
        calls=10,
    )
    ours.store.close()


def _processors(folder: Path, address: str) -> None:
    """Processor time of a thread of one turn, of client and server: other programs don't count."""
    ours, bare = _Ours(folder, f"{address}&schema=ours"), BareThreads(address, "bare")
    numbers = count(1)
    ways: dict[str, Callable[[], object]] = {
        "ours": lambda: run_blocking(ours.thread(f"p{next(numbers)}")),
        "bare": lambda: bare.thread(f"p{next(numbers)}"),
    }
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    with psycopg.connect(address, autocommit=True) as server:
        for _ in range(_ROUNDS + 1):
            for name, thread in ways.items():
                before = (time.process_time() * 1e3, processor_ms(server))
                for _ in range(_THREADS):
                    thread()
                after = (time.process_time() * 1e3, processor_ms(server))
                spent[name].append(
                    ((after[0] - before[0]) / _THREADS, (after[1] - before[1]) / _THREADS)
                )
    for name, place in (("client", 0), ("server", 1)):
        mine, base = ([one[place] for one in spent[way][1:]] for way in ("ours", "bare"))
        report(
            f"postgres: processor time of a thread of one turn, {name}",
            statistics.median(mine),
            "ms",
            least=min(mine),
            floor=statistics.median(base),
            least_floor=min(base),
            ratio=statistics.median(one / other for one, other in zip(mine, base, strict=True)),
            goal=_GOAL,
        )
    ours.store.close()


def _at_once(folder: Path, address: str) -> None:
    """Threads from start to end, by eight processes at once, each kind in turn."""
    ours = _Ours(folder, f"{address}&schema=ours")
    run_blocking(ours.open("parent"))
    command = [sys.executable, "-m", __spec__.name, str(folder), address]
    workers = [
        subprocess.Popen(
            [*command, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for number in range(_PROCESSES)
    ]
    for worker in workers:
        _answer_of(worker)  # it is ready
    rates: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    worst_ms = dict.fromkeys(_KINDS, 0.0)
    threads = _PROCESSES  # each has warmed up with one of each kind
    for _ in range(_PASSES):
        for kind in _KINDS:
            for worker in workers:
                assert worker.stdin is not None
                worker.stdin.write(f"{kind}\n")
                worker.stdin.flush()
            told = [json.loads(_answer_of(worker)) for worker in workers]
            count = sum(one["count"] for one in told)
            threads += count * (kind == "parent")
            rates[kind].append(count / _SECONDS)
            worst_ms[kind] = max(worst_ms[kind], *(one["worst_ms"] for one in told))
    for worker in workers:
        worker.communicate(timeout=60)
    for kind in _KINDS:
        pairs = [bare / one for bare, one in zip(rates["bare"], rates[kind], strict=True)]
        report(
            f"postgres: threads of eight processes, {kind}",
            statistics.median(rates[kind]),
            "threads/s",
            best=max(rates[kind]),
            worst_ms=worst_ms[kind],
            ratio=statistics.median(pairs),
            ratio_of_bests=max(rates["bare"]) / max(rates[kind]),
            goal=_GOAL,
        )
    account = run_blocking(ours.store.ledger.account("parent"))
    assert account.children == Amount(30 * threads, 10 * threads), "not exact"
    assert (account.held, account.reserved) == (Amount(), Amount())
    ours.store.close()


def _answer_of(worker: "subprocess.Popen[str]") -> str:
    assert worker.stdout is not None
    return worker.stdout.readline()


def _work(folder: Path, address: str, number: int) -> None:
    """One of the eight: as many threads as it gets through, of the kinds that it is told."""
    ours, bare = _Ours(folder, f"{address}&schema=ours"), BareThreads(address, "bare")
    ways: dict[str, Callable[[str], object]] = {
        "bare": bare.thread,
        "trees": lambda thread_id: run_blocking(ours.thread(thread_id)),
        "parent": lambda thread_id: run_blocking(ours.thread(thread_id, "parent")),
    }
    for kind, thread in ways.items():
        thread(f"{kind}-{number}-first")
    print("ready", flush=True)
    numbers = count(1)
    for line in sys.stdin:
        kind = line.strip()
        done, worst, begun = 0, 0.0, time.perf_counter()
        before = begun
        while before - begun < _SECONDS:
            done += 1
            ways[kind](f"{kind}-{number}-{next(numbers)}")
            now = time.perf_counter()
            worst, before = max(worst, now - before), now
        print(json.dumps({"count": done, "worst_ms": worst * 1e3}), flush=True)
    ours.store.close()


def run() -> None:
    """Print the figures."""
    with serving_postgres() as address, tempfile.TemporaryDirectory() as folder:
        _alone(Path(folder), address)
        _processors(Path(folder), address)
        _at_once(Path(folder), address)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _work(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    else:
        run()
