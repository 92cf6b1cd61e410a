"""Run the script for each framework that is installed: one JSON line a figure.

    python -m tests.benchmarks.peers --python /path/to/a/python [--python ...] [PEER ...]

A framework is run by the first of the Pythons that has it, ryecore by this one. Each figure has a
process of its own.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from tests.benchmarks.harness import report

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
WALKERS = {"ryecore, a graph": "ryecore_steps", "langgraph, a graph": "langgraph_steps"}
_STEPS = {"step": "one step of a graph", "kept_step": "one step and its checkpoint"}
_FIGURES = {"turn": "one turn", "delta": "one streamed delta", "runs": "1,000 concurrent runs"}
_ROOT = Path(__file__).parents[3]


def measured(python: str, peer: str, figure: str) -> dict[str, float | str]:
    """One figure of one framework; `missing` where this Python lacks it."""
    module = (PEERS | WALKERS)[peer]
    command = [python, "-m", "tests.benchmarks.peers.script", module, figure]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{peer}, {figure}: {done.stderr.strip()[-2_000:]}")
    result: dict[str, float | str] = json.loads(done.stdout.splitlines()[-1])
    return result


def run(pythons: list[str], peers: list[str]) -> None:
    """Report every figure of each framework, or that it isn't installed."""
    for peer in peers:
        for figure, what in (_STEPS if peer in WALKERS else _FIGURES).items():
            for python in pythons:
                got = measured(python, peer, figure)
                if "missing" not in got:
                    break
            else:
                sys.stdout.write(json.dumps({"name": peer, "absent": "not installed"}) + "\n")
                break
            value, unit = (got.pop("us"), "us") if "us" in got else (got.pop("runs_a_second"), "/s")
            report(f"{what}: {peer}", float(value), unit, **got)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.peers", description=__doc__)
    parser.add_argument("--python", action="append", help="a Python that has frameworks")
    parser.add_argument("peer", nargs="*", choices=[*PEERS, *WALKERS, []], help="all by default")
    asked = parser.parse_args()
    run([sys.executable, *(asked.python or ())], asked.peer or list(PEERS))
