"""A graph's run that is killed between any two of its writes, and what is found afterwards.

`python -m tests.graph_crashing TEMPLATE WORK HOW=STEP ...` serves it; see `tests.killing`.

Each tool leaves a line that can't be taken back. Whoever finds the dead run reads in the journal
what had begun, looks whether it was done, and says so: then each thing is done exactly once.
"""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any, Final

import anyio
from attrs import define, field

from ryecore import AgentRunnerDeps, Rye
from ryecore.errors import StateError
from ryecore.graph.result import GraphResult
from ryecore.llm.cost import Price
from ryecore.llm.request import LlmRequest
from ryecore.llm.result import Usage
from ryecore.state.model import ThreadRecord
from ryecore.state.store import ThreadStore
from ryecore.state.transcript_check import read_records
from ryecore.state.waiting import run_blocking
from ryecore.testing import FunctionProvider, Turn, call, say
from ryecore.testing.scripted import EVERYTHING
from ryecore.tools import ToolRegistry, tool
from tests.graphs import ALL_OF_ACME, graph
from tests.killing import append_line, check_account, check_transcript, lines_of, main
from tests.workspace import Workspace

__all__ = [
    "FLOW",
    "LIMITS",
    "MARK",
    "NODES",
    "OFTEN",
    "ONCE",
    "comparable",
    "furnish",
    "marks",
    "open_rye",
]

FLOW: Final = "tool:acme/flow"
EFFECTS: Final = "effects"
ASKED: Final = "asked"
FIRST_DEATHS: Final = {"again": 68, "later": 92}
"""Within the foreach that goes in order; within the one that does several at once."""
REPEATED: Final = "repeated"
"""What may have been done already, and was done again because somebody said so."""
_USED: Final = Usage(100, 10)
_SAID: Final = "That is all."
_BIG: Final = 20_000
"""A result of so many characters stands in the content store, and not in the journal."""

MARK: Final = 'said=$(cat); echo "$said" >> "$1/../effects"'
"""Leaves a mark that can't be taken back."""

TOOLS: Final = {
    "acme/mark": 'echo "{\\"got\\": $said}"',
    "acme/big": f"printf '\"%0{_BIG}d\"' 0",
    "acme/bad": "exit 3",
    "acme/flaky": 'test -e "$1/../tried" || { : > "$1/../tried"; exit 4; }; echo 7',
}


def _marks(label: str, name: str = "mark") -> dict[str, Any]:
    return {"action": {"item_id": f"tool:acme/{name}", "params": {"n": label}}}


def _each(over: str, following: str, **more: Any) -> dict[str, Any]:
    said = _marks(f"{over}-${{one}}")
    many = {"type": "foreach", "over": f"${{state.{over}}}", "as": "one", "collect": f"did_{over}"}
    return {**said, **many, "next": following, **more}


NODES: Final[dict[str, Any]] = {
    "load": {**_marks("load", "big"), "assign": {"big": "${result}"}, "next": "each"},
    "each": _each("three", "flaky"),
    "flaky": {
        **_marks("flaky", "flaky"),
        "retry": {"max": 3, "base_s": 0.001, "cap_s": 0.002},
        "assign": {"flaky": "${result}"},
        "next": "fan",
    },
    "fan": _each("six", "bad", parallel=True, max_concurrency=3),
    "bad": {**_marks("bad", "bad"), "on_error": "mend", "next": "end"},
    "mend": {**_marks("mend"), "next": "again"},
    "again": _each("two", "check", parallel=True, retry=2),
    "check": {
        "type": "gate",
        "assign": {"checked": True},
        "next": [
            {"to": "end", "when": {"path": "state.flaky", "op": "lt", "value": 7}},
            {"to": "ask"},
        ],
    },
    "ask": {
        "type": "agent",
        "agent_ref": "writer",
        "prompt_template": "Write.",
        "assign": {"said": "${result}"},
        "next": "cached",
    },
    "cached": {
        **_marks("cached"),
        "cache_result": True,
        "assign": {"cached": "${result.got.n}"},
        "next": "end",
    },
    "end": {
        "type": "return",
        "output": {
            "said": "${state.said}",
            "six": "${state.did_six}",
            "cached": "${state.cached}",
            "failed": "${state._last_error.node}",
        },
    },
}
STATE: Final[dict[str, Any]] = {
    "three": [0, 1, 2],
    "six": [0, 1, 2, 3, 4, 5],
    "two": [0, 1],
    **dict.fromkeys(("big", "flaky", "said", "cached", "checked")),
    **{f"did_{one}": [] for one in ("three", "six", "two")},
}
ONCE: Final = frozenset(
    {"load", "bad", "mend", "asked"}
    | {f"three-{index}" for index in range(3)}
    | {f"six-{index}" for index in range(6)}
)
OFTEN: Final = {"flaky": 2, "two-0": 1, "two-1": 1, "cached": 1}
"""What its author lets be done again, and how often it is done where nothing is killed."""


def furnish(root: Path) -> None:
    """Make the workspace that each life runs in a copy of."""
    workspace = Workspace(root)
    for name, script in TOOLS.items():
        workspace.shell(name, f"{MARK}\n{script}")
    writer = {"provider": "scripted", "model": "m-1", "tools": ["mark"]}
    permissions = (ALL_OF_ACME, "rye.execute.tool.host.mark")
    graph(workspace, NODES, state=STATE, agents={"writer": writer}, permissions=permissions)


def marks(root: Path) -> Counter[str]:
    """What was done, and how often."""
    return Counter(json.loads(line)["n"] for line in lines_of(root / EFFECTS))


# The life


def _deps(root: Path) -> AgentRunnerDeps:
    @tool
    async def mark(n: str) -> str:
        """Leave a mark that can't be taken back."""
        append_line(root / EFFECTS, json.dumps({"n": n}))
        return f"marked {n}"

    def model(request: LlmRequest) -> Turn:
        append_line(root / ASKED, "asked")
        if len(request.messages) == 1:
            return call("mark", {"n": "asked"}, usage=_USED)
        return say(_SAID, usage=_USED)

    provider = FunctionProvider(model, provider_id="scripted", capabilities=EVERYTHING)
    return AgentRunnerDeps(
        resolve_provider={"scripted": provider}.get,
        key_for=lambda _: "sk-crash-0123456789abcdef",
        registry=ToolRegistry([mark]),
        price_of=lambda _provider, _model: Price("1", "5"),
    )


def open_rye(root: Path, how: str = "between") -> Rye:
    """Open a Rye in a workspace that `furnish` made."""
    return Rye.open(
        root / "project",
        user_space=root / "user",
        environ={"PATH": os.environ["PATH"], "HOME": str(root)},
        agent=_deps(root),
        durability="machine" if how == "machine" else "process",
    )


LIMITS: Final = {"spend": 5, "tokens": 900_000}


def comparable(done: GraphResult) -> dict[str, Any]:
    """What of a result doesn't depend on what happened on the way."""
    said = {"ended": done.ended, "output": done.output, "state": dict(done.state)}
    return {**said, "steps": done.steps, "errors": done.errors}


# What is found


@define
class _Found:
    """What was found of a dead run, and what was said of it.

    Attributes:
        unknown: What had begun in it and has no end, as labels of their marks, by members.
    """

    unknown: dict[str, tuple[str, int | None]] = field(factory=dict)


_LABELS: Final = {"each": "three", "fan": "six", "again": "two", "ask": "asked"}


def _in_flight(store: ThreadStore, row: ThreadRecord) -> dict[str, tuple[str, int | None]]:
    """What had begun and has no end: labels of marks, with their nodes and members.

    Read from the journal's lines alone, and not as the library does.
    """
    begun: dict[str, tuple[str, int | None]] = {}
    for record in read_records(store.folder_of(row.thread_id) / "transcript.jsonl"):
        node, index = record.payload.get("node"), record.payload.get("index")
        if record.type in ("node_started", "item_started"):
            label = _LABELS.get(str(node), str(node))
            if record.type == "item_started":
                begun[f"{label}-{index}"] = (str(node), index)
            elif label not in ("three", "six", "two"):
                begun[label] = (str(node), None)
        elif record.type in ("node_completed", "item_completed", "node_retry", "item_retry"):
            begun = {key: one for key, one in begun.items() if one != (node, index)}
            if record.type == "node_completed":
                begun = {key: one for key, one in begun.items() if one[0] != node}
    return begun


def _answer(label: str) -> object:
    """What came of something that was done."""
    return {"load": "0" * _BIG, "asked": _SAID}.get(label, {"got": {"n": label}})


def _said_of(unknown: dict[str, tuple[str, int | None]], done: set[str]) -> dict[str, Any]:
    """What is said to whoever asks what came of that which had begun."""
    how: dict[str, Any] = {"rerun": len(done) < len(unknown) or "bad" in done}
    for label in done - {"bad"}:  # that it has failed can't be said
        _, index = unknown[label]
        if index is None:
            how["result"] = _answer(label)
        else:
            how.setdefault("members", {})[index] = _answer(label)
    return how


async def _go_on(rye: Rye, store: ThreadStore, root: Path, found: _Found) -> GraphResult | None:
    """Go on with the newest run that has begun; where none has, begin anew.

    Returns:
        What came of it; None where it had come to its end.
    """
    rows = await store.look_at_all(lambda registry: registry.list_threads(limit=100))
    for row in rows:
        if row.status == "completed":
            return None
        try:
            return await rye.graphs.resume(row.thread_id, limits=LIMITS)
        except StateError as error:
            if "left nothing to resume from" in error.message:
                continue
            if "is unknown" not in error.message:
                raise
            said, members = error.message, error.members
        found.unknown = unknown = _in_flight(store, row)
        for node, index in unknown.values():
            assert f"'{node}'" in said, (said, unknown)
            assert index is None or index in members, (members, unknown)
        how = _said_of(unknown, {one for one in unknown if marks(root)[one]})
        if "bad" in unknown:
            append_line(root / REPEATED, "bad")
        return await rye.graphs.resume(row.thread_id, limits=LIMITS, **how)
    return await rye.graphs.run(FLOW, limits=LIMITS)


def _check(store: ThreadStore, root: Path, rows: tuple[ThreadRecord, ...]) -> None:
    for row in rows:
        assert row.ended, [(row.thread_id, row.status) for row in rows]
        check_account(store, row)
        check_transcript(store, row, root / "user")
    charges = [one for row in rows for one in run_blocking(store.ledger.charges(row.thread_id))]
    asked = len(lines_of(root / ASKED))
    assert asked <= len(charges), "a request left, and nothing stands for it"
    spent = sum(one.actual.tokens for one in charges)
    assert spent >= asked * _USED.total_tokens, (spent, asked)


async def _recover(root: Path, how: str, expected: dict[str, Any]) -> dict[str, Any]:
    store = ThreadStore.open(root / "project/.ai", root / "user/.ai")
    rows = await store.look_at_all(lambda registry: registry.list_threads(limit=100))
    states = [(row.thread_id, row.status) for row in rows]
    _check(store, root, rows)
    found = _Found()
    async with open_rye(root, how) as rye:
        done = await _go_on(rye, store, root, found)
    if done is None:
        (ended,) = [row for row in rows if row.status == "completed"]
        kept = await store.registry.get_result(ended.thread_id)
        assert isinstance(kept, dict)
        assert kept["data"]["output"] == expected["output"], kept
    else:
        assert comparable(done) == expected
    did = marks(root)
    repeated = lines_of(root / REPEATED)
    deaths = 2 if how in FIRST_DEATHS else 1
    assert set(did) == ONCE | set(OFTEN), (did, found)
    for label in ONCE:
        most = 1 + repeated.count(label)
        assert 1 <= did[label] <= most, (label, did, found)
    for label, least in OFTEN.items():
        assert least <= did[label] <= least + deaths, (label, did, found)
    rows = await store.look_at_all(lambda registry: registry.list_threads(limit=100))
    _check(store, root, rows)
    store.close()
    return {"found": states, "unknown": sorted(found.unknown)}


class _Life:
    def __init__(self) -> None:
        self._expected: dict[str, Any] = {}

    def live(self, root: Path, how: str) -> None:
        """Run it; where a run has died, go on with that."""
        done = anyio.run(self._live, root, how)
        assert done is not None
        self._expected = self._expected or comparable(done)
        assert comparable(done) == self._expected

    async def _live(self, root: Path, how: str) -> GraphResult | None:
        async with open_rye(root, how) as rye:
            if not (root / "project/.ai/state").exists():
                return await rye.graphs.run(FLOW, limits=LIMITS)
            store = ThreadStore.open(root / "project/.ai", root / "user/.ai")
            found = _Found()
            done = await _go_on(rye, store, root, found)
            store.close()
            return done

    def recover(self, root: Path, how: str) -> str:
        return json.dumps(anyio.run(_recover, root, how, self._expected))

    def first_death(self, how: str) -> int | None:
        return FIRST_DEATHS.get(how)


if __name__ == "__main__":
    main(_Life())
