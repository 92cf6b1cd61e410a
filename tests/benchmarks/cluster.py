"""A simulation of up to 10,000 threads at once on one PostgreSQL server: which part is full, when.

Each slot of a worker runs one thread after another: it waits for the model, then commits. A commit
takes a core of the server, some also the lock of their tree; then it waits for the next write of
the log, which takes all that are ready. What they cost is what `database` measured. The rest is
assumed:

- A model answers in about 4 s (log-normal, 1 to 30 s), and a thread has 4 turns (geometric).
- One thread of twenty is the root of a tree of 8, whose members run at once and share its lock.
- The server's cores are as fast as those of the measurement, and its disk syncs in 0.5 ms.
- Nothing else runs on it, no network is slow, and each slot always has the next thread to run.

docs/design/many-machines.md says what follows.
"""

import random
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

import simpy

from ryecore.frozen import frozen
from tests.benchmarks.harness import report

__all__ = ["Costs", "Outcome", "Server", "run", "simulate"]

_SLOTS: Final = (100, 1_000, 3_000, 10_000)
_CORES: Final = (4, 16)
_MODEL_S, _MODEL_SPREAD, _LEAST_S, _MOST_S = 4.0, 0.6, 1.0, 30.0
_MEAN_TURNS: Final = 4
_TREES, _MEMBERS = 0.05, 8


@frozen
class Costs:
    """What threads cost a server: figures of `python -m tests.benchmarks database`.

    Members of a tree reserve what they want of its root, so that two commits of each change the
    root's account; those that share it do so with each request, which is assumed of all.

    Attributes:
        thread_commits: The commits of a thread beside those of its turns.
        thread_locks: How many of them take the lock of the tree.
        thread_ms: The server's processor time for all of them.
        thread_bytes: What they write to the log.
        turn_commits: The commits of a turn.
        turn_locks: How many of them take a lock that a tree shares: the row of its budget.
        turn_ms: The server's processor time for all of them.
        turn_bytes: What they write to the log.
    """

    thread_commits: int = 5
    thread_locks: int = 2
    thread_ms: float = 2.8
    thread_bytes: int = 11_200
    turn_commits: int = 2
    turn_locks: int = 1
    turn_ms: float = 0.7
    turn_bytes: int = 3_700


@frozen
class Server:
    """A server.

    Attributes:
        cores: Its cores.
        sync_ms: How long its disk takes to write the log durably.
    """

    cores: int
    sync_ms: float = 0.5


@frozen
class Outcome:
    """What a simulation came to, after its warm-up.

    Attributes:
        turns_a_second: The turns of all threads.
        busy: The share of the time that the server's cores worked.
        log_bytes_a_second: What its log took.
        commit_ms: The median time of a commit.
        slow_commit_ms: The time that 99 of 100 commits took at most.
        lost: The share of their time that threads waited for the server.
    """

    turns_a_second: float
    busy: float
    log_bytes_a_second: float
    commit_ms: float
    slow_commit_ms: float
    lost: float


class _Database:
    """The server: its cores, and the log, which is written for many at once."""

    def __init__(self, env: simpy.Environment, server: Server) -> None:
        self.env = env
        self._server = server
        self._cores = simpy.Resource(env, server.cores)
        self._ready, self._written = env.event(), env.event()
        self.commits_s: list[float] = []
        self.busy_s = 0.0
        self.log_bytes = 0.0
        env.process(self._write_log())

    def commit(self, lock: simpy.Resource | None, work_ms: float, size: float) -> Iterator[Any]:
        """Run a transaction, which is over when the log has it."""
        began = self.env.now
        if lock is None:
            yield from self._work(work_ms, size)
        else:
            with lock.request() as locked:
                yield locked
                yield from self._work(work_ms, size)
        self.commits_s.append(self.env.now - began)

    def _work(self, work_ms: float, size: float) -> Iterator[Any]:
        with self._cores.request() as core:
            yield core
            yield self.env.timeout(work_ms / 1000)
        self.busy_s += work_ms / 1000
        self.log_bytes += size
        if not self._ready.triggered:
            self._ready.succeed()
        yield self._written

    def _write_log(self) -> Iterator[Any]:
        while True:
            yield self._ready
            self._ready = self.env.event()
            written, self._written = self._written, self.env.event()
            yield self.env.timeout(self._server.sync_ms / 1000)
            written.succeed()


class _Threads:
    """The threads of all workers."""

    def __init__(self, database: _Database, costs: Costs, chance: random.Random) -> None:
        self._database = database
        self._env = database.env
        self._costs = costs
        self._chance = chance
        self.turns = 0
        self.waited_s = self.answered_s = 0.0

    def slot(self) -> Iterator[Any]:
        """Run one thread after another; the first begins within the time of some answers."""
        yield self._env.timeout(self._chance.uniform(0, _MODEL_S * _MEAN_TURNS))
        while True:
            members = _MEMBERS if self._chance.random() < _TREES else 1
            lock = simpy.Resource(self._env)
            # The members of a tree run beside the slots, so there are more threads than slots.
            yield self._env.all_of([self._env.process(self._run(lock)) for _ in range(members)])

    def _run(self, lock: simpy.Resource) -> Iterator[Any]:
        costs = self._costs
        begin = costs.thread_commits // 2
        for place in range(costs.thread_commits):
            if place == begin:
                yield from self._turns(lock)
            own = lock if place < costs.thread_locks else None
            share = 1 / costs.thread_commits
            yield from self._commit(own, costs.thread_ms * share, costs.thread_bytes * share)

    def _turns(self, lock: simpy.Resource) -> Iterator[Any]:
        costs = self._costs
        share = 1 / costs.turn_commits
        while True:
            answer_s = self._answer_s()
            yield self._env.timeout(answer_s)
            self.answered_s += answer_s
            for place in range(costs.turn_commits):
                own = lock if place < costs.turn_locks else None
                yield from self._commit(own, costs.turn_ms * share, costs.turn_bytes * share)
            self.turns += 1
            if self._chance.random() < 1 / _MEAN_TURNS:
                return

    def _commit(self, lock: simpy.Resource | None, work_ms: float, size: float) -> Iterator[Any]:
        began = self._env.now
        yield from self._database.commit(lock, work_ms, size)
        self.waited_s += self._env.now - began

    def _answer_s(self) -> float:
        drawn = self._chance.lognormvariate(0, _MODEL_SPREAD) * _MODEL_S
        return min(max(drawn, _LEAST_S), _MOST_S)


def simulate(
    slots: int,
    server: Server,
    costs: Costs,
    *,
    warm_s: float = 30,
    over_s: float = 30,
    seed: int = 1,
) -> Outcome:
    """Simulate workers on a server.

    Args:
        slots: How many threads they run at once, besides the members of trees.
        server: The server.
        costs: What threads cost it.
        warm_s: The seconds that aren't counted.
        over_s: The seconds that are.
        seed: The seed of what is left to chance.
    """
    env = simpy.Environment()
    database = _Database(env, server)
    threads = _Threads(database, costs, random.Random(seed))
    for _ in range(slots):
        env.process(threads.slot())

    def counted() -> tuple[float, ...]:
        waited_s, answered_s = threads.waited_s, threads.answered_s
        return threads.turns, database.busy_s, database.log_bytes, waited_s, answered_s

    env.run(warm_s)
    before = counted()
    database.commits_s.clear()
    env.run(warm_s + over_s)
    turns, busy_s, log_bytes, waited_s, answered_s = (
        (late - early) / over_s for early, late in zip(before, counted(), strict=True)
    )
    times = statistics.quantiles(database.commits_s, n=100)
    return Outcome(
        turns_a_second=turns,
        busy=busy_s / server.cores,
        log_bytes_a_second=log_bytes,
        commit_ms=times[49] * 1000,
        slow_commit_ms=times[98] * 1000,
        lost=waited_s / (waited_s + answered_s),
    )


def run() -> None:
    """Simulate up to 10,000 threads at once, on a small and on a large server."""
    for cores in _CORES:
        for slots in _SLOTS:
            began = time.perf_counter()
            came = simulate(slots, Server(cores), Costs())
            report(
                f"{slots:,} threads at once on {cores} cores, simulated",
                came.turns_a_second,
                "turns/s",
                busy=round(came.busy, 3),
                log_mb_a_second=round(came.log_bytes_a_second / 1e6, 2),
                commit_ms=round(came.commit_ms, 2),
                slow_commit_ms=round(came.slow_commit_ms, 1),
                lost=round(came.lost, 4),
                took_s=round(time.perf_counter() - began, 1),
                goal="where the server is full",
            )
            sys.stdout.flush()
