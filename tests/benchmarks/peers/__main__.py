"""Run the script for each framework that is installed: one JSON line a figure.

    python -m tests.benchmarks.peers --python /path/to/a/python [--python ...] [PEER ...]

A framework is run by the first of the Pythons that has it, ryecore by this one. Each figure has a
process of its own. Runs that are kept are measured in several passes, in which the frameworks take
turns, and reported beside ryecore in process durability, in the same passes. Those that are kept on
PostgreSQL each have a durable server of their own, with the server's own `synchronous_commit`.

What is durable there, and when. The tool of the first three only reads, and is no step of DBOS, so
that pydantic-ai runs it again after a crash, as ryecore's model may. pydantic-ai writes an answer
before its calls, in a commit of its own, and no result of them; ryecore writes answer, intent,
result, the signature of the turn, its cost and the hold of the next request in one, before that
request. Of a tool with effects, both write two commits: pydantic-ai, whose tool is a step, its
result after it; ryecore the answer and the intent before it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.benchmarks.harness import report
from tests.benchmarks.peers.script import SERVER
from tests.postgres import serving_postgres

PEERS = {
    "ryecore": "ryecore_agents",
    "ryecore, governed": "ryecore_threads",
    "strands": "strands_agents",
    "langchain": "langchain_agents",
    "langgraph": "langgraph_graphs",
    "openai-agents": "openai_agents",
    "pydantic-ai": "pydantic_agents",
    "google-adk": "google_agents",
}
KEPT = {
    "ryecore, process durability": "ryecore_threads",
    "ryecore, machine durability": "ryecore_synced",
    "strands, FileSessionManager": "strands_sessions",
    "openai-agents, SQLiteSession": "openai_sessions",
    "langchain, AsyncSqliteSaver": "langchain_saver",
    "pydantic-ai, DBOS": "pydantic_dbos",
}
SHARED = {
    "ryecore, PostgreSQL": "ryecore_postgres",
    "DBOS on PostgreSQL, an empty workflow": "dbos_empty",
    "pydantic-ai, DBOS on PostgreSQL": "pydantic_postgres",
}
EFFECTS = {
    "ryecore, PostgreSQL, a tool with effects": "ryecore_effects",
    "pydantic-ai, DBOS on PostgreSQL, a tool as a step": "pydantic_effects",
}
WALKERS = {"ryecore, a graph": "ryecore_steps", "langgraph, a graph": "langgraph_steps"}
_STEPS = {"step": "one step of a graph", "kept_step": "one step and its checkpoint"}
_FIGURES = {"turn": "one turn", "delta": "one streamed delta", "runs": "1,000 concurrent runs"}
_KEPT_FIGURES = {
    "kept_turn": "one turn of a kept run of 10",
    "kept_runs": "200 kept runs of 3 turns at once",
}
_GROUPS = (
    (KEPT, "ryecore, process durability"),
    (SHARED, "ryecore, PostgreSQL"),
    (EFFECTS, "ryecore, PostgreSQL, a tool with effects"),
)
"""Runs that are kept, and whose figures are reported beside which of ours."""
_PASSES = 3
_ROOT = Path(__file__).parents[3]

Figure = dict[str, float | str]


def measured(python: str, peer: str, figure: str) -> Figure:
    """One figure of one framework; `missing` where this Python lacks it."""
    if peer not in SHARED | EFFECTS:
        return _measured(python, peer, figure, {})
    with serving_postgres(is_durable=True) as address:
        return _measured(python, peer, figure, {SERVER: address})


def _measured(python: str, peer: str, figure: str, more: Mapping[str, str]) -> Figure:
    module = (PEERS | KEPT | SHARED | EFFECTS | WALKERS)[peer]
    command = [python, "-m", "tests.benchmarks.peers.script", module, figure]
    environ = {**os.environ, **more}
    done = subprocess.run(
        command, cwd=_ROOT, capture_output=True, text=True, check=False, env=environ
    )
    if done.returncode != 0:
        raise RuntimeError(f"{peer}, {figure}: {done.stderr.strip()[-2_000:]}")
    result: Figure = json.loads(done.stdout.splitlines()[-1])
    return result


def _measured_by_any(pythons: Sequence[str], peer: str, figure: str) -> Figure | None:
    """One figure, by the first Python that has the framework; where none has, say so."""
    for python in pythons:
        got = measured(python, peer, figure)
        if "missing" not in got:
            return got
    absent = f"not installed: {got['missing']}"
    sys.stdout.write(json.dumps({"name": peer, "absent": absent}) + "\n")
    sys.stdout.flush()
    return None


def _report(what: str, peer: str, got: Figure, **more: object) -> None:
    value, unit = (got.pop("us"), "us") if "us" in got else (got.pop("runs_a_second"), "/s")
    report(f"{what}: {peer}", float(value), unit, **got, **more)


def run(pythons: Sequence[str], peers: Sequence[str]) -> None:
    """Report every figure of each framework, or that it isn't installed."""
    for peer in peers:
        for figure, what in (_STEPS if peer in WALKERS else _FIGURES).items():
            got = _measured_by_any(pythons, peer, figure)
            if got is None:
                break
            _report(what, peer, got)


def run_kept(pythons: Sequence[str], peers: Sequence[str], ours: str) -> None:
    """Report the figures of runs that are kept, beside ours, or who isn't installed."""
    present = [ours, *(peer for peer in peers if peer != ours)]
    for figure, what in _KEPT_FIGURES.items():
        passes: list[dict[str, dict[str, float]]] = []
        for _ in range(_PASSES):
            found = {peer: _measured_by_any(pythons, peer, figure) for peer in present}
            present = [peer for peer, got in found.items() if got is not None]
            passes.append({peer: _numbers(got) for peer, got in found.items() if got is not None})
        main = "us" if figure == "kept_turn" else "runs_a_second"
        for peer in present:
            got: Figure = {
                key: statistics.median(one[peer][key] for one in passes) for key in passes[0][peer]
            }
            ratios = {
                name: statistics.median(one[peer][key] / one[ours][key] for one in passes)
                for name, key in (("ratio", main), ("cpu_ratio", "cpu_us"))
            }
            _report(what, peer, got, **ratios, goal=f"beside {ours}")


def _numbers(got: Figure) -> dict[str, float]:
    return {key: float(value) for key, value in got.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.peers", description=__doc__)
    parser.add_argument("--python", action="append", help="a Python that has frameworks")
    every = [*PEERS, *KEPT, *SHARED, *EFFECTS, *WALKERS, []]
    parser.add_argument("peer", nargs="*", choices=every, help="all by default, on no server")
    asked = parser.parse_args()
    chosen = asked.peer or [*PEERS, *KEPT]
    pythons = [sys.executable, *(asked.python or ())]
    run(pythons, [peer for peer in chosen if peer in PEERS | WALKERS])
    for group, ours in _GROUPS:
        if kept := [peer for peer in chosen if peer in group]:
            run_kept(pythons, kept, ours)
