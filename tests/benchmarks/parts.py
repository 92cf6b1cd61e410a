"""The parts of a governed turn and of a thread, each alone in a tight loop, in processor time.

`python -m tests.benchmarks parts`. Together they bound a turn, or a thread of one turn, from below:
the whole also plans, records, holds and settles by the policy of a thread, and its code and data
leave the processor's caches between two uses. Each part stands beside the same by hand that
`governed` has as its floor.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from attrs import evolve

from ryecore import SigningKey
from ryecore.items.signature import utc_now
from ryecore.policy.budget import Amount, Settlement
from ryecore.state.database import Database
from ryecore.state.exports import export_path
from ryecore.state.model import Cost
from ryecore.state.schema import MIGRATIONS
from ryecore.state.sql_ledger import SqlLedger
from ryecore.state.sql_registry import SqlRegistry
from ryecore.state.store import ThreadStore
from ryecore.state.thread_file import ThreadFile
from ryecore.state.transcript import Transcript
from ryecore.state.waiting import run_blocking
from tests.benchmarks.floor import turns as floor
from tests.benchmarks.floor.threads import by_hand as left_by_hand
from tests.benchmarks.harness import report
from tests.benchmarks.turns import add, runner

_TURNS: Final = 12
_ROUNDS: Final = 60
_THREADS: Final = 300
_THREAD: Final = "acme/add/add-1739820456-1a2b3c4d"
_HELD: Final = Amount(0, 17_000)
_HEAD: Final = (4096, "a" * 64)
_CALL: Final = {
    "turn": 1, "attempt": 1, "provider": "scripted", "model": "x",
    "held_spend_microcents": 0, "held_tokens": 17_000, "messages": 3,
}  # fmt: skip
_CALL_END: Final = {
    "turn": 1, "attempt": 1, "outcome": "success", "kind": None, "input_tokens": 1,
    "output_tokens": 1, "spend_microcents": 0, "mark": "counted",
}  # fmt: skip
_PART: Final = {"type": "tool_call", "call_id": "c", "name": "add", "arguments_json": '{"a": 1}'}
_ANSWER: Final = {
    "turn": 1, "provider": "scripted", "model": "x", "parts": [_PART], "stop_reason": "tool_use",
}  # fmt: skip
_START: Final = {"turn": 1, "call_id": "c", "tool": "add", "input": {"a": 1, "b": 1}}
_RESULT: Final = {
    "turn": 1, "call_id": "c", "tool": "add", "content": [{"type": "text", "text": "2"}],
    "is_error": False, "untrusted": True,
}  # fmt: skip


def run() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as loop:
        _measure_turn(Path(folder), loop)
    with tempfile.TemporaryDirectory() as folder:
        _measure_thread(Path(folder))


def _measure_turn(folder: Path, loop: asyncio.Runner) -> None:
    kept = floor.Kept(folder)
    agent, model = runner(_TURNS), floor.call_model(_TURNS)

    async def asked() -> None:
        await agent()

    async def by_hand() -> None:
        await floor.told(model, {"add": add}, [].append, kept)

    parts: dict[str, Callable[[], object]] = {
        "by hand": lambda: loop.run(by_hand()),
        "an agent's loop without a thread": lambda: loop.run(asked()),
        "settle and hold": _settle_and_hold(folder),
        "a transcript's five records and checkpoint": _records(folder),
    }
    _report("a governed turn", parts, _ROUNDS, _TURNS + 1)
    kept.close()


def _report(
    whole: str, parts: dict[str, Callable[[], object]], rounds: int, times_each: int
) -> None:
    """Run parts in turn, of which each does its work so many times, and report them."""
    times: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(rounds + 1):
        for name, part in parts.items():
            begun = time.process_time()
            part()
            times[name].append((time.process_time() - begun) / times_each * 1e6)
    base = times.pop("by hand")[1:]
    times["all of them"] = [sum(each) for each in zip(*times.values(), strict=True)]
    for name, each in times.items():
        pairs = zip(each[1:], base, strict=True)
        report(
            f"parts of {whole}: {name}",
            statistics.median(each[1:]),
            "us",
            least=min(each[1:]),
            floor=statistics.median(base),
            least_floor=min(base),
            ratio=statistics.median(ours / other for ours, other in pairs),
            goal="a bound: what the whole takes at least",
        )


def _settle_and_hold(folder: Path) -> Callable[[], None]:
    database = Database(folder / "threads.db", MIGRATIONS)
    registry, ledger = SqlRegistry(database), SqlLedger(database)
    run_blocking(registry.register(_THREAD, "directive:acme/add"))
    run_blocking(registry.claim(_THREAD))
    run_blocking(ledger.register(_THREAD, Amount(0, 2**40)))
    run_blocking(ledger.hold(_THREAD, 1, 1, _HELD, head=_HEAD))
    turn = 1

    async def again() -> None:
        nonlocal turn
        settled = (Settlement(turn, 1, _HELD, Amount(0, 2), "counted"),)
        turn += 1
        cost = Cost(turn, turn, turn, 0)
        await ledger.settle_and_hold(_THREAD, settled, turn, 1, _HELD, snapshot=cost, head=_HEAD)

    def part() -> None:
        for _ in range(_TURNS + 1):
            run_blocking(again())

    return part


def _records(folder: Path) -> Callable[[], None]:
    key = SigningKey.generate()
    transcript = Transcript.create(folder / "records.jsonl", _THREAD, key)

    def part() -> None:
        for turn in range(_TURNS + 1):
            transcript.record("model_call", _CALL)  # before the request
            transcript.append("model_call_end", _CALL_END)
            transcript.append("cognition_out", _ANSWER)
            transcript.record("tool_call_start", _START)  # before the call
            transcript.append("tool_call_result", _RESULT)
            transcript.checkpoint(turn)

    return part


class _Bare:
    """A store in which threads of one turn begin and end, with nothing that plans or runs them."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project/.ai"
        self._store = ThreadStore.open(self.project, folder / "user/.ai")
        self._key = SigningKey.generate()
        self._made = 0
        now = utc_now()
        limits = {"turns": 2, "tokens": 100_000_000, "depth": 5, "duration_seconds": 3600}
        self._limits = limits
        self._file = ThreadFile(
            _THREAD, "directive:acme/add", "acme/add", "a" * 64, "running", now, now,
            "scripted/x", limits, (),
        )  # fmt: skip

    def _next(self) -> str:
        self._made += 1
        return f"{_THREAD}{self._made}"

    async def write_rows(self) -> None:
        """Register, claim, hold, settle and end, as a thread does."""
        registry, ledger, thread_id = self._store.registry, self._store.ledger, self._next()

        async def claim() -> int:
            await ledger.register(thread_id, Amount(0, 2**40))
            return await registry.claim(thread_id, limits=self._limits, model="scripted/x")

        async def end() -> None:
            await ledger.settle(thread_id, 1, 1, Amount(0, 2))
            await ledger.report_actual(thread_id, Amount(0, 2))
            cost = Cost(1, 1, 1, 0)
            await registry.settle(
                thread_id, "completed", _RESULT, fence=fence, head=_HEAD, snapshot=cost
            )

        await registry.register(thread_id, "directive:acme/add")
        fence = await registry.together(claim)
        await ledger.hold(thread_id, 1, 1, _HELD, head=_HEAD)
        await registry.list_children(thread_id)
        await ledger.account(thread_id)
        await registry.together(end)

    async def write_files(self) -> str:
        """Make a thread's folder, write its four signed files, and return its id."""
        store, thread_id = self._store, self._next()
        await store.prepare(thread_id)
        file = evolve(self._file, thread_id=thread_id)
        await store.write_file(file)
        await store.write_capabilities(thread_id, "x" * 150)
        ended = file.ended("completed", Cost(1, 1, 1, 0), file.updated_at)
        await store.leave_files(ended, "x" * 700)
        return thread_id

    def write_transcript(self, folder: Path) -> None:
        """Write a thread's eight lines, two of them signed, in four writes."""
        path = folder / f"transcript-{self._made}.jsonl"
        self._made += 1
        transcript = Transcript.create(path, _THREAD, self._key)
        transcript.record("thread_started", self._file.to_dict())
        transcript.append("cognition_in", {"role": "user", "text": "x" * 100})
        transcript.record("model_call", _CALL)
        transcript.append("model_call_end", _CALL_END)
        transcript.append("cognition_out", _ANSWER)
        transcript.checkpoint(1)
        transcript.append("thread_completed", {"cost": Cost(1, 1, 1, 0).to_dict()})
        transcript.checkpoint(1)
        transcript.close()


def _measure_thread(folder: Path) -> None:
    bare, by_hand_in, logs = _Bare(folder), folder / "by_hand", folder / "logs"
    by_hand_in.mkdir()
    logs.mkdir()
    thread_id = run_blocking(bare.write_files())
    left = bare.project / "state/threads" / thread_id
    bare.write_transcript(left)
    next(left.glob("transcript-*")).rename(left / "transcript.jsonl")
    by_hand = left_by_hand(by_hand_in, left, export_path(bare.project, thread_id), 1, "process")
    parts: dict[str, Callable[[], object]] = {
        "by hand": by_hand.run,
        "its rows": lambda: run_blocking(bare.write_rows()),
        "its folder and four signed files": lambda: run_blocking(bare.write_files()),
        "its transcript of eight lines": lambda: bare.write_transcript(logs),
    }
    _report("a thread of one turn", parts, _THREADS, 1)
