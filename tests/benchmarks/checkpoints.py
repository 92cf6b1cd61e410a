"""A checkpoint of a graph's run, beside the same bytes written by hand.

`python -m tests.benchmarks.checkpoints`. The floor writes prebuilt bytes: an object under its
digest, a record and a signed line, and the head into SQLite, with the syncs that the durability
needs. It encodes nothing but a large value that changed, as JSON.
"""

import hashlib
import itertools
import json
import os
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, get_args

from ryecore import SigningKey
from ryecore.graph.journal.journal import Journal
from ryecore.graph.journal.positions import PositionStore
from ryecore.graph.schedule import Position
from ryecore.state.database import Database
from ryecore.state.model import Durability
from ryecore.state.objects import FolderRunObjects
from ryecore.state.schema import MIGRATIONS
from ryecore.state.sql_registry import SqlRegistry
from ryecore.state.transcript_format import Head
from ryecore.state.transcript_store import FileRecordStore
from ryecore.state.waiting import run_blocking
from ryecore.state.write_ahead import WriteAhead
from tests.benchmarks.harness import compare

_RUN: Final = "acme/flow/flow-1739820456"
_LARGE: Final = "x" * (1024 * 1024)
_OBJECT: Final = b'{"position":{"node":"load","step":1},"state":{"count":{"value":1}}' + b" " * 60
_LINES: Final = b'{"timestamp":1763796896.104512,"thread_id":"acme/flow/flow-1"' + b" " * 680
_SIGNED: Final = b"rye-record-v1\ncheckpoint\n" + b"x" * 90
_SYNCHRONOUS: Final = {"process": "NORMAL", "machine": "FULL"}
_ROUNDS: Final = {"process": (30, 100), "machine": (30, 5)}
_LARGE_CALLS: Final = 5


def run() -> None:
    """Print the figures."""
    for durability in get_args(Durability):
        with tempfile.TemporaryDirectory() as folder:
            _measure(Path(folder), durability)


class _Bare:
    """A checkpoint by hand."""

    def __init__(self, folder: Path, durability: Durability, key: SigningKey) -> None:
        self._objects = folder / "bare"
        for number in range(256):
            (self._objects / f"{number:02x}").mkdir(parents=True)
        self._shards = [
            os.open(self._objects / f"{number:02x}", os.O_RDONLY) for number in range(256)
        ]
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._log = os.open(folder / "bare.jsonl", flags, 0o600)
        self._is_synced = durability == "machine"
        self._key = key
        self._database = sqlite3.connect(folder / "bare.db", isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[durability]}")
        self._database.execute("CREATE TABLE runs (run_id TEXT PRIMARY KEY, at INTEGER, hex TEXT)")
        self._database.execute("INSERT INTO runs VALUES (?, 0, '')", (_RUN,))

    def put(self, content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        temporary = f"{self._objects}/{digest}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)
        os.write(descriptor, content)
        if self._is_synced:
            os.fdatasync(descriptor)
        os.close(descriptor)
        os.rename(temporary, f"{self._objects}/{digest[:2]}/{digest}")
        if self._is_synced:
            os.fsync(self._shards[int(digest[:2], 16)])
        return digest

    def checkpoint(self, content: bytes) -> None:
        digest = self.put(content)
        hashlib.sha256(_LINES).hexdigest()
        os.write(self._log, _LINES + self._key.sign(_SIGNED))
        if self._is_synced:
            os.fdatasync(self._log)
        run = self._database.execute
        run("BEGIN IMMEDIATE")
        run("UPDATE runs SET at = at + 1, hex = ? WHERE run_id = ?", (digest, _RUN))
        run("COMMIT")

    def close(self) -> None:
        self._database.close()
        for descriptor in (*self._shards, self._log):
            os.close(descriptor)


def _measure(folder: Path, durability: Durability) -> None:
    key = SigningKey.generate()
    database = Database(folder / "threads.db", MIGRATIONS, durability=durability)
    registry = SqlRegistry(database)
    run_blocking(registry.register(_RUN, "tool:acme/flow"))
    bare = _Bare(folder, durability, key)

    async def set_head(head: Head) -> None:
        await registry.set_head(_RUN, (head.offset, head.digest))

    ahead = WriteAhead(database, str(folder), lambda _: str(folder))
    records = FileRecordStore(
        lambda _: folder,
        lambda _: str(folder),
        lambda: key,
        ahead if durability == "machine" else None,
    )
    positions = PositionStore(FolderRunObjects(folder, durability), _RUN)
    journal = run_blocking(Journal.create(records, positions, _RUN, set_head=set_head))

    async def kept(position: Position) -> None:
        await journal.checkpoint(position)
        await journal.commit()

    steps, numbers = itertools.count(1), itertools.count()

    def ours(state: Callable[[int], dict[str, object]]) -> Callable[[], None]:
        def keep() -> None:
            step = next(steps)
            run_blocking(kept(Position("load", step, state(step))))

        return keep

    def small(step: int) -> dict[str, object]:
        return {"count": step, "name": "a name", "rows": [1, 2, 3]}

    def by_hand() -> None:
        bare.checkpoint(_OBJECT + b"%d" % next(numbers))

    rounds, calls = _ROUNDS[durability]
    said = f"checkpoint, {durability} durability"
    for _ in range(256):  # every folder of the store is there, as it is by then in any long run
        ours(small)()
    goal = "<= 1.5 times the floor"
    compare(f"{said}, small state", ours(small), by_hand, goal=goal, rounds=rounds, calls=calls)
    compare(
        f"{said}, 1 MiB that did not change",
        ours(lambda step: small(step) | {"large": _LARGE}),
        by_hand,
        goal=goal,
        rounds=rounds,
        calls=calls,
    )
    changed = [f"{number:08}{_LARGE[8:]}" for number in range((rounds + 1) * _LARGE_CALLS + 1)]
    texts = iter(changed)
    bodies = iter(changed)

    def large_by_hand() -> None:
        bare.put(json.dumps(next(bodies)).encode())
        by_hand()

    compare(
        f"{said}, 1 MiB that changed",
        ours(lambda step: small(step) | {"large": next(texts)}),
        large_by_hand,
        goal=goal,
        rounds=rounds,
        calls=_LARGE_CALLS,
    )
    run_blocking(journal.close())
    bare.close()
    database.close()


if __name__ == "__main__":
    run()
