"""A thread's life that is killed between any two of its writes, and what is found afterwards.

`python -m tests.crashing TEMPLATE WORK HOW=STEP ...` serves it; see `tests.killing`.
"""

import json
import os
from pathlib import Path
from typing import Any, Final

import anyio
from attrs import evolve

from ryecore import AgentRunnerDeps, Rye
from ryecore.errors import StateError
from ryecore.llm.cost import Price
from ryecore.llm.parts import ToolResultPart
from ryecore.llm.request import LlmRequest
from ryecore.llm.result import Usage
from ryecore.state.model import ThreadRecord
from ryecore.state.store import ThreadStore
from ryecore.state.transcript_check import read_records
from ryecore.testing import FunctionProvider, Turn, call
from ryecore.testing.scripted import EVERYTHING
from ryecore.tools import ToolRegistry, tool
from tests.killing import append_line, check_account, check_transcript, lines_of, main
from tests.scripted_host import TOTAL, directive
from tests.workspace import Workspace

__all__ = ["ASKED", "EFFECTS", "PARENT", "agent_of", "furnish"]

PARENT: Final = "directive:acme/parent"
EFFECTS: Final = "effects"
ASKED: Final = "asked"
STEPS: Final = (
    ("one", "mark", {"text": "one"}),
    ("child", "rye_execute", {"item_id": "directive:acme/child", "thread": "fork"}),
    ("two", "mark", {"text": "two"}),
    ("three", "mark", {"text": "three"}),
    ("end", "rye_directive_return", {"total": 7}),
)
CHILD_STEPS: Final = (
    ("inner", "mark", {"text": "inner"}),
    ("end", "rye_directive_return", {"total": 5}),
)
_FIRST_DEATH: Final = 75
"""While the child runs."""

_NOT_RUN: Final = "not run"


def furnish(root: Path) -> None:
    """Make the workspace that each life runs in a copy of."""
    workspace = Workspace(root)
    workspace.write(
        "directives/acme/child.md",
        directive("child", "I am the child.", outputs=TOTAL, limits='spend="1" turns="9"'),
    )
    permits = "<execute><directive>acme/*</directive><tool>host/mark</tool></execute>"
    workspace.write(
        "directives/acme/parent.md",
        directive(
            "parent",
            "I am the parent.",
            outputs=TOTAL,
            permissions=permits,
            limits='turns="12" depth="2" spend="5" tokens="900000"',
        ),
    )


# The life


def agent_of(root: Path) -> AgentRunnerDeps:
    """The model and the tool of both directives."""

    @tool
    async def mark(text: str) -> str:
        """Leave a mark that can't be taken back."""
        append_line(root / EFFECTS, text)
        return f"marked {text}"

    def model(request: LlmRequest) -> Turn:
        said = "\n".join(message.text for message in request.messages)
        append_line(root / ASKED, "asked")
        steps = CHILD_STEPS if "I am the child." in said else STEPS
        came: dict[str, str] = {}
        for message in request.messages:
            for part in message.parts:
                if isinstance(part, ToolResultPart):
                    came[part.call_id] = part.text
        for name, called, arguments in steps:
            if name not in came or name == "end" or _NOT_RUN in came[name]:
                # A full context behind the third step: another thread goes on from there.
                read = 11_000 if name == "two" else 1000
                return call(called, arguments, call_id=name, usage=Usage(read, 50))
        raise AssertionError("the last step ends the thread")

    provider = FunctionProvider(
        model, provider_id="scripted", capabilities=evolve(EVERYTHING, context_tokens=12_000)
    )
    return AgentRunnerDeps(
        resolve_provider={"scripted": provider}.get,
        key_for=lambda _: "sk-crash-0123456789abcdef",
        registry=ToolRegistry([mark]),
        price_of=lambda _provider, _model: Price("1", "5"),
    )


def _open(root: Path) -> Rye:
    return Rye.open(
        root / "project",
        user_space=root / "user",
        environ={"PATH": os.environ["PATH"], "HOME": str(root)},
        agent=agent_of(root),
    )


async def _live(root: Path) -> Any:
    async with _open(root) as rye:
        rows = await rye.threads.list(all=True)
        return await _go_on(rye, rows)


# What is found


async def _recover(root: Path) -> dict[str, Any]:
    store = ThreadStore.open(root / "project/.ai", root / "user/.ai")
    rows = await store.look_at_all(lambda registry: registry.list_threads(limit=100))
    states = [(row.thread_id, row.status) for row in rows]
    for row in rows:
        assert row.ended, states
        check_account(store, row)
        check_transcript(store, row, root / "user")
    paid = sum([len(await store.ledger.charges(row.thread_id)) for row in rows])
    asked = lines_of(root / ASKED)
    assert len(asked) <= paid, "a request left, and nothing stands for it"
    before = lines_of(root / EFFECTS)
    assert len(before) == len(set(before)), before
    unknown = _in_flight(store, rows)
    async with _open(root) as rye:
        done = await _go_on(rye, rows)
    after = lines_of(root / EFFECTS)
    assert len(after) == len(set(after)), f"a tool ran twice: {before} then {after}"
    if done is not None:  # None: it had come to its end
        assert (done.ended, done.outputs) == ("completed", {"total": 7}), done
    wanted = {"one", "two", "three", "inner"}
    lost = wanted - set(after)
    if "child" in unknown:  # the child died with its parent, and nobody starts it again
        lost.discard("inner")
    assert lost <= unknown, f"{lost} never ran, and only {unknown} were in flight"
    rows = await store.look_at_all(lambda registry: registry.list_threads(limit=100))
    for row in rows:
        assert row.ended
        check_account(store, row)
    store.close()
    return {"found": states, "unknown": sorted(unknown)}


async def _go_on(rye: Rye, rows: tuple[ThreadRecord, ...]) -> Any:
    """Resume the newest thread that has begun; where none has, begin anew."""
    for row in rows:
        if row.item_id != PARENT:
            continue
        if row.status == "completed":
            return None
        try:
            return await rye.threads.resume(row.thread_id)
        except StateError as error:
            if "has left nothing to continue from" not in str(error):
                raise
    return await rye.execute(PARENT, thread="fork")


def _in_flight(store: ThreadStore, rows: tuple[ThreadRecord, ...]) -> set[str]:
    """The calls that had begun and have no result."""
    found: set[str] = set()
    for row in rows:
        path = store.folder_of(row.thread_id) / "transcript.jsonl"
        if path.exists():
            begun, ended = set(), set()
            for record in read_records(path):
                if record.type == "tool_call_start":
                    begun.add(record.payload["call_id"])
                elif record.type == "tool_call_result":
                    ended.add(record.payload["call_id"])
            found |= begun - ended
    return found


class _Life:
    def live(self, root: Path, how: str) -> None:
        result = anyio.run(_live, root)
        assert result.outputs == {"total": 7}, result

    def recover(self, root: Path, how: str) -> str:
        return json.dumps(anyio.run(_recover, root))

    def first_death(self, how: str) -> int | None:
        return _FIRST_DEATH if how == "again" else None


if __name__ == "__main__":
    main(_Life())
