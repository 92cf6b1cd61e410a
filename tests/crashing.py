"""A thread's life that is killed between any two of its writes, and what is found afterwards.

`python -m tests.crashing TEMPLATE WORK POINTS` reads as a server: for each point it forks a process
that runs the life in a copy of the template and kills itself there, and then a fresh one that looks
at what is left and goes on. One JSON line a point. The effects are counted from outside: by an
audit hook, by `os.write`, and by SQLite's connections.
"""

import json
import os
import shutil
import signal
import sqlite3
import sys
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
from attrs import evolve

from ryecore import AgentRunnerDeps, Rye
from ryecore.errors import RyeError, StateError
from ryecore.llm.cost import Price
from ryecore.llm.parts import ToolResultPart
from ryecore.llm.request import LlmRequest
from ryecore.llm.result import Usage
from ryecore.state.model import ThreadRecord
from ryecore.state.records import load_run_key
from ryecore.state.store import ThreadStore
from ryecore.state.transcript_check import read_records, verify_transcript
from ryecore.testing import FunctionProvider, Turn, call
from ryecore.testing.scripted import EVERYTHING
from ryecore.tools import ToolRegistry, tool
from tests.house import House
from tests.stage import TOTAL, directive

__all__ = ["furnish", "main"]

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
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES: Final = ("os.rename", "os.link", "os.remove", "os.mkdir", "os.truncate", "os.rmdir")
_FIRST_DEATH: Final = 75
"""While the child runs."""

_NOT_RUN: Final = "not run"


def furnish(root: Path) -> None:
    """Make the house that each life runs in a copy of."""
    house = House(root)
    house.write(
        "directives/acme/child.md",
        directive("child", "I am the child.", outputs=TOTAL, limits='spend="1" turns="9"'),
    )
    permits = "<execute><directive>acme/*</directive><tool>host/mark</tool></execute>"
    house.write(
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


def _deps(root: Path) -> AgentRunnerDeps:
    @tool
    async def mark(text: str) -> str:
        """Leave a mark that can't be taken back."""
        _append(root / EFFECTS, text)
        return f"marked {text}"

    def model(request: LlmRequest) -> Turn:
        said = "\n".join(message.text for message in request.messages)
        _append(root / ASKED, "asked")
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


def _append(path: Path, line: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


def _open(root: Path) -> Rye:
    return Rye.open(
        root / "project",
        user_space=root / "user",
        environ={"PATH": os.environ["PATH"], "HOME": str(root)},
        agent=_deps(root),
    )


async def _live(root: Path) -> Any:
    async with _open(root) as rye:
        rows = await rye.threads.list(all=True)
        return await _go_on(rye, rows)


# The death


class _Killer:
    """Counts what the life writes, and ends its process right before one of these.

    Where it tears, it counts calls of `os.write` alone, and ends the process in the middle of one.
    """

    def __init__(self, root: Path, at: int, *, torn: bool) -> None:
        self.count = 0
        self._root, self._at, self._torn = str(root), at, torn
        self._write = os.write

    def install(self) -> None:
        sys.addaudithook(self._audit)
        os.write = self._written  # type: ignore[assignment]
        fsync = os.fsync
        os.fsync = lambda file: (self._point(), fsync(file))[1]  # type: ignore[assignment]
        point = self._point

        class Connection(sqlite3.Connection):
            def execute(self, statement: str, *more: Any) -> sqlite3.Cursor:
                if statement == "COMMIT":
                    point()
                return super().execute(statement, *more)

        sqlite3.connect = partial(sqlite3.connect, factory=Connection)  # type: ignore[assignment]

    def _point(self) -> None:
        if not self._torn:
            self.count += 1
            if self.count == self._at:
                os.kill(os.getpid(), signal.SIGKILL)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, (str, Path)) and flags & _WRITING and self._is_ours(path):
                self._point()
        elif event in _CHANGES and self._is_ours(arguments[0]):
            self._point()

    def _is_ours(self, path: object) -> bool:
        return str(path).startswith(self._root)

    def _written(self, descriptor: int, data: bytes) -> int:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if self._is_ours(path):
            self._point()
            if self._torn and "/.ai/" in path:  # a tool's own file is not ours to keep whole
                self.count += 1
                if self.count == self._at:
                    self._write(descriptor, data[: len(data) // 2])
                    os.kill(os.getpid(), signal.SIGKILL)
        return self._write(descriptor, data)


# What is found


async def _recover(root: Path) -> dict[str, Any]:
    store = ThreadStore.open(root / "project/.ai", root / "user/.ai")
    rows = store.look_at_all(lambda registry: registry.list_threads(limit=100))
    states = [(row.thread_id, row.status) for row in rows]
    for row in rows:
        assert row.ended, states
        _check_account(store, row)
        _check_transcript(store, row, root)
    paid = sum(len(store.ledger.charges(row.thread_id)) for row in rows)
    asked = _lines(root / ASKED)
    assert len(asked) <= paid, "a request left, and nothing stands for it"
    before = _lines(root / EFFECTS)
    assert len(before) == len(set(before)), before
    unknown = _in_flight(store, rows)
    async with _open(root) as rye:
        done = await _go_on(rye, rows)
    after = _lines(root / EFFECTS)
    assert len(after) == len(set(after)), f"a tool ran twice: {before} then {after}"
    if done is not None:  # None: it had come to its end
        assert (done.state, done.outputs) == ("completed", {"total": 7}), done
    wanted = {"one", "two", "three", "inner"}
    lost = wanted - set(after)
    if "child" in unknown:  # the child died with its parent, and nobody starts it again
        lost.discard("inner")
    assert lost <= unknown, f"{lost} never ran, and only {unknown} were in flight"
    rows = store.look_at_all(lambda registry: registry.list_threads(limit=100))
    for row in rows:
        assert row.ended
        _check_account(store, row)
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
            if "has left nothing to go on from" not in str(error):
                raise
    return await rye.execute(PARENT, thread="fork")


def _check_account(store: ThreadStore, row: ThreadRecord) -> None:
    try:
        account = store.ledger.account(row.thread_id)
    except RyeError:
        return  # it died before it had one
    charges = store.ledger.charges(row.thread_id)
    own = sum(one.actual.spend_microcents for one in charges)
    tokens = sum(one.actual.tokens for one in charges)
    # An account that was handed over is closed before its thread is.
    assert account.state in (row.status, "continued"), (account, row)
    assert (account.own.spend_microcents, account.own.tokens) == (own, tokens), row.thread_id
    assert account.held.spend_microcents == account.held.tokens == 0, account
    assert account.reserved.spend_microcents == account.reserved.tokens == 0, account
    assert not [one for one in charges if one.mark in ("held", "freed")], charges
    assert account.total.spend_microcents <= account.ceiling.spend_microcents, account
    assert account.total.tokens <= account.ceiling.tokens, account
    below = store.ledger.tree(row.thread_id)
    assert below.spent == account.total, (below, account)


def _check_transcript(store: ThreadStore, row: ThreadRecord, root: Path) -> None:
    path = store.folder_of(row.thread_id) / "transcript.jsonl"
    if not path.exists():
        assert row.transcript_head is None
        return
    key = load_run_key(root / "user/.ai").public
    if row.status in ("completed", "continued"):
        report = verify_transcript(path, row.thread_id, key, row.transcript_head, ended=True)
    else:
        report = verify_transcript(path, row.thread_id, key, row.transcript_head, ended=False)
        bad = [one for one in report.turns[:-1] if one.state != "attested"]
        assert not bad, report
    assert report.ok, report


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


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


# The server


def main(template: Path, work: Path, first: int, step: int, how: str) -> None:
    """Kill a life at each point from `first` on, every `step`-th; the last line tells of the end.

    Args:
        template: The furnished house.
        work: Where copies are made.
        first: The first point, from 1.
        step: How far the next one is.
        how: `between` writes; `torn`, in the middle of one; `again`, between the writes of a life
            that goes on with one that was killed already.
    """
    torn = how == "torn"
    warm = work / "warm"
    shutil.copytree(template, warm, symlinks=True)
    anyio.run(_live, warm)  # what it imports need not be imported again for each point
    at, ended = first, False
    while not ended:
        root = work / str(at)
        shutil.copytree(template, root, symlinks=True)
        if how == "again":  # in each copy: state that is copied is nobody's
            code, said = _forked(partial(_doomed, root, _FIRST_DEATH, torn=False))
            assert code == -signal.SIGKILL, said
        code, said = _forked(partial(_doomed, root, at, torn=torn))
        ended = code != -signal.SIGKILL
        ok = not ended or code == 0
        told = {"at": at, "ended": ended, "life": said}
        if ok:
            code, said = _forked(partial(_found, root))
            ok = code == 0
        print(json.dumps(told | {"ok": ok, "said": said}))
        sys.stdout.flush()
        if ok:
            shutil.rmtree(root)
        at += step


def _doomed(root: Path, at: int, *, torn: bool) -> str:
    killer = _Killer(root, at, torn=torn)
    killer.install()
    result = anyio.run(_live, root)
    assert result.outputs == {"total": 7}, result
    return str(killer.count)


def _found(root: Path) -> str:
    return json.dumps(anyio.run(_recover, root))


def _forked(function: Callable[[], str]) -> tuple[int, str]:
    """Run a function in a process of its own: its exit status, and what it said."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reading)
            warnings.simplefilter("error")
            said = function()
            code = 0
        except BaseException:
            said = traceback.format_exc()
        os.write(writing, said.encode())
        os._exit(code)
    os.close(writing)
    with open(reading, "rb") as file:
        said = file.read().decode()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said


if __name__ == "__main__":
    main(
        Path(sys.argv[1]),
        Path(sys.argv[2]),
        int(sys.argv[3]),
        int(sys.argv[4]),
        sys.argv[5],
    )
