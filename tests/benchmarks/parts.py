"""The parts of a governed turn, each alone in a tight loop, in processor time.

`python -m tests.benchmarks parts`. Together they bound a turn from below: the whole also records,
holds and settles by the policy of a thread, and its code and data leave the processor's caches
between two uses. Each part stands beside the turn by hand that `governed` has as its floor.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ryecore import SigningKey
from ryecore.policy.budget import Amount, Settlement
from ryecore.state.database import Database
from ryecore.state.model import Cost
from ryecore.state.schema import MIGRATIONS
from ryecore.state.sqlite_ledger import SqliteLedger
from ryecore.state.sqlite_registry import SqliteRegistry
from ryecore.state.transcript import Transcript
from ryecore.state.waiting import run_blocking
from tests.benchmarks.floor import turns as floor
from tests.benchmarks.harness import report
from tests.benchmarks.turns import add, runner

_TURNS: Final = 12
_ROUNDS: Final = 60
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
        _measure(Path(folder), loop)


def _measure(folder: Path, loop: asyncio.Runner) -> None:
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
    times: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(_ROUNDS + 1):
        for name, part in parts.items():
            begun = time.process_time()
            part()
            times[name].append((time.process_time() - begun) / (_TURNS + 1) * 1e6)
    kept.close()
    base = times.pop("by hand")[1:]
    times["all of them"] = [sum(each) for each in zip(*times.values(), strict=True)]
    for name, each in times.items():
        pairs = zip(each[1:], base, strict=True)
        report(
            f"parts of a governed turn: {name}",
            statistics.median(each[1:]),
            "us",
            least=min(each[1:]),
            floor=statistics.median(base),
            least_floor=min(base),
            ratio=statistics.median(ours / other for ours, other in pairs),
            goal="a bound: what a turn takes at least",
        )


def _settle_and_hold(folder: Path) -> Callable[[], None]:
    database = Database(folder / "threads.db", MIGRATIONS)
    registry, ledger = SqliteRegistry(database), SqliteLedger(database)
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
