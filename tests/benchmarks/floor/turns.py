"""The floors of an agent's turns: the same work, by hand, with nothing around it.

`bare` is a loop over dicts. `told` adds an event of attrs for each token, call, result and cost,
stamped with run, time and number. `Kept` adds what threads will: a hold and its settling in SQLite
before and after each model call, and a line of JSON in a transcript for each event but a token.
"""

import json
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from time import time
from typing import Any, TypeAlias

from attrs import asdict, frozen

__all__ = [
    "Call",
    "Cost",
    "Kept",
    "Model",
    "Result",
    "Token",
    "bare",
    "call_model",
    "text_model",
    "told",
]

Model: TypeAlias = Callable[[list[dict[str, Any]]], AsyncIterator[dict[str, Any]]]
Tools: TypeAlias = Mapping[str, Callable[..., Any]]

_CALL: dict[str, Any] = {"type": "call", "id": "c", "name": "add", "arguments": '{"a": 1, "b": 1}'}
_END: dict[str, Any] = {"type": "end", "input": 1, "output": 1}


def call_model(turns: int) -> Model:
    """A model that calls a tool in each of its turns, and then answers."""

    async def ask(messages: list[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
        yield _CALL if len(messages) // 2 < turns else {"type": "text", "text": "done"}
        yield _END

    return ask


def text_model(deltas: int) -> Model:
    """A model that answers in so many pieces."""
    piece = {"type": "text", "text": "word "}

    async def ask(messages: list[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
        for _ in range(deltas):
            yield piece
        yield _END

    return ask


async def bare(model: Model, tools: Tools) -> str:
    """Ask, call, ask again, until it answers."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Add."}]
    while True:
        text: list[str] = []
        calls: list[dict[str, Any]] = []
        async for chunk in model(messages):
            if chunk["type"] == "text":
                text.append(chunk["text"])
            elif chunk["type"] == "call":
                calls.append(chunk)
        if not calls:
            return "".join(text)
        messages.append({"role": "assistant", "content": "".join(text), "calls": calls})
        for call in calls:
            result = tools[call["name"]](**json.loads(call["arguments"]))
            messages.append({"role": "tool", "id": call["id"], "content": json.dumps(result)})


@frozen
class Token:
    """A token."""

    run: str
    time: float
    number: int
    node: str
    text: str
    model: str


@frozen
class Call:
    """A call."""

    run: str
    time: float
    number: int
    node: str
    model: str
    name: str
    arguments: Mapping[str, Any]


@frozen
class Result:
    """A result."""

    run: str
    time: float
    number: int
    node: str
    name: str
    success: bool
    summary: str


@frozen
class Cost:
    """A cost."""

    run: str
    time: float
    number: int
    node: str
    model: str
    input: int
    output: int
    microcents: int
    total_microcents: int


async def told(
    model: Model,
    tools: Tools,
    emit: Callable[[object], object],
    kept: "Kept | None" = None,
    grant: frozenset[str] = frozenset({"add"}),
) -> str:
    """The same, with events, and, where something is kept, ledger and transcript."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Add."}]
    total = number = 0
    while True:
        text: list[str] = []
        calls: list[dict[str, Any]] = []
        usage = _END
        if kept:
            kept.hold(1_000)
        async for chunk in model(messages):
            kind = chunk["type"]
            if kind == "text":
                text.append(chunk["text"])
                number += 1
                emit(Token("run", time(), number, "node", chunk["text"], "m"))
            elif kind == "call":
                calls.append(chunk)
            else:
                usage = chunk
        cost = usage["input"] * 300 + usage["output"] * 1_500
        total += cost
        number += 1
        event: Any = Cost(
            "run", time(), number, "node", "m", usage["input"], usage["output"], cost, total
        )
        emit(event)
        if kept:
            kept.settle(1_000, cost)
            kept.write(event)
        if not calls:
            return "".join(text)
        messages.append({"role": "assistant", "content": "".join(text), "calls": calls})
        for call in calls:
            if call["name"] not in grant:
                raise PermissionError(call["name"])
            arguments = json.loads(call["arguments"])
            number += 1
            event = Call("run", time(), number, "node", "m", call["name"], arguments)
            emit(event)
            if kept:
                kept.write(event)
            content = json.dumps(tools[call["name"]](**arguments))
            number += 1
            event = Result("run", time(), number, "node", call["name"], True, content)
            emit(event)
            if kept:
                kept.write(event)
            messages.append({"role": "tool", "id": call["id"], "content": content})


class Kept:
    """A ledger of one row, and a transcript.

    Args:
        folder: Where they are.
        is_synced: Whether each change survives the loss of power, and not only the process's death.
    """

    def __init__(self, folder: Path, *, is_synced: bool = False) -> None:
        self._is_synced = is_synced
        self._database = sqlite3.connect(folder / "ledger.db", isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute(f"PRAGMA synchronous = {'FULL' if is_synced else 'NORMAL'}")
        self._database.execute("CREATE TABLE ledger (id INTEGER PRIMARY KEY, held, spent)")
        self._database.execute("INSERT INTO ledger VALUES (1, 0, 0)")
        self._transcript = (folder / "transcript.jsonl").open("a")

    def hold(self, microcents: int) -> None:
        """Hold what a call may cost at most."""
        self._database.execute("UPDATE ledger SET held = held + ? WHERE id = 1", (microcents,))

    def settle(self, held: int, spent: int) -> None:
        """Settle what it did cost."""
        self._database.execute(
            "UPDATE ledger SET held = held - ?, spent = spent + ? WHERE id = 1", (held, spent)
        )

    def write(self, event: Any) -> None:
        """Write an event, so that it survives the process."""
        self._transcript.write(json.dumps(asdict(event)) + "\n")
        self._transcript.flush()
        if self._is_synced:
            os.fdatasync(self._transcript.fileno())

    def close(self) -> None:
        """Close both."""
        self._database.close()
        self._transcript.close()
