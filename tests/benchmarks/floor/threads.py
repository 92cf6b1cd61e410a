"""The floor of a governed thread: its SQLite statements, files, lines and signatures, by hand.

What a thread leaves is written as it is left: whole files in one step each, and the transcript's
lines with as many writes. Each file and line that a real thread signs is signed as it is written,
with Ed25519 by PyNaCl. Nothing is verified, rendered, checked or told.
"""

import os
import sqlite3
from pathlib import Path
from typing import Final

from nacl.signing import SigningKey

from ryecore._native import exchange_files
from ryecore.state.model import Durability

__all__ = ["FILES", "Left", "by_hand"]

FILES: Final = ("thread.json", "capabilities.md", "thread.json", "export.md")
"""What is written whole, in order; `thread.json` as it begins and as it ends."""

_SIGNED: Final = b"rye:signed:"
"""What stands in each file and line that a real thread has signed."""

_SCHEMA: Final = (
    "CREATE TABLE threads (id TEXT PRIMARY KEY, status TEXT, lease REAL, cost INTEGER) STRICT",
    "CREATE TABLE accounts (id TEXT PRIMARY KEY, held INTEGER, spent INTEGER) STRICT",
    "CREATE TABLE charges (id TEXT, turn INTEGER, held INTEGER, spent INTEGER,"
    " PRIMARY KEY (id, turn)) STRICT, WITHOUT ROWID",
    "CREATE TABLE results (id TEXT PRIMARY KEY, body TEXT) STRICT",
)


class Left:
    """A database and folders in which threads are run by hand.

    Args:
        folder: Where.
        files: What each of `FILES` holds.
        lines: The lines of the transcript, by the writes that bring them.
        turns: How often the model is asked.
        durability: What each write survives.

    Attributes:
        signatures: How many signatures a thread makes.
    """

    def __init__(
        self,
        folder: Path,
        files: tuple[bytes, ...],
        lines: tuple[bytes, ...],
        turns: int,
        durability: Durability = "process",
    ) -> None:
        self._folder = str(folder)
        self._files = tuple(zip(FILES, files, strict=True))
        self._lines = lines
        self._signed = frozenset(one for one in (*files, *lines) if _SIGNED in one)
        self.signatures = sum(one in self._signed for one in (*files, *lines))
        self._key = SigningKey.generate()
        self._turns = turns
        self._is_synced = durability == "machine"
        self._made = 0
        self._database = sqlite3.connect(folder / "floor.db", isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute(f"PRAGMA synchronous = {'FULL' if self._is_synced else 'NORMAL'}")
        for statement in _SCHEMA:
            self._database.execute(statement)

    def run(self) -> None:
        """Run one thread."""
        self._made += 1
        name = f"thread-{self._made}"
        folder = os.path.join(self._folder, name)
        self._write(
            ("INSERT INTO threads VALUES (?, 'running', 0, 0)", (name,)),
            ("INSERT INTO accounts VALUES (?, 0, 0)", (name,)),
        )
        os.mkdir(folder)
        for file, content in self._files[:2]:
            self._replace(os.path.join(folder, file), content)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        transcript = os.open(os.path.join(folder, "transcript.jsonl"), flags, 0o600)
        for turn in range(self._turns):
            self._write(
                ("INSERT INTO charges VALUES (?, ?, 50, 0)", (name, turn)),
                ("UPDATE accounts SET held = held + 50 WHERE id = ?", (name,)),
            )
            self._write(
                ("UPDATE charges SET held = 0, spent = 30 WHERE id = ? AND turn = ?", (name, turn)),
                ("UPDATE accounts SET held = held - 50, spent = spent + 30 WHERE id = ?", (name,)),
            )
        for line in self._lines:
            self._sign(line)
            os.write(transcript, line)
            if self._is_synced:
                os.fdatasync(transcript)
        os.close(transcript)
        for file, content in self._files[2:]:
            self._replace(os.path.join(folder, file), content)
        self._write(
            ("UPDATE threads SET status = 'completed', cost = 30 WHERE id = ?", (name,)),
            ("INSERT INTO results VALUES (?, ?)", (name, "{}")),
        )

    def _sign(self, content: bytes) -> None:
        if content in self._signed:
            self._key.sign(content)

    def _write(self, *statements: tuple[str, tuple[object, ...]]) -> None:
        run = self._database.execute
        run("BEGIN IMMEDIATE")
        for statement, values in statements:
            run(statement, values)
        run("COMMIT")

    def _replace(self, path: str, content: bytes) -> None:
        self._sign(content)
        descriptor = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(descriptor, content)
        if self._is_synced:
            os.fsync(descriptor)
        os.close(descriptor)
        if self._is_synced or not exchange_files(f"{path}.new", path):
            os.replace(f"{path}.new", path)
        else:  # ext4 writes a file to the disk at once when it is renamed over another one
            os.unlink(f"{path}.new")


def by_hand(folder: Path, left: Path, export: Path, turns: int, durability: Durability) -> Left:
    """Threads by hand that leave what a real one has left.

    Args:
        folder: Where they run.
        left: The folder of a real thread that has ended.
        export: Its conversation as knowledge.
        turns: How often its model was asked.
        durability: What each write survives.
    """
    paths = {name: left / name for name in FILES} | {"export.md": export}
    lines = (left / "transcript.jsonl").read_bytes().splitlines(keepends=True)
    files = tuple(paths[name].read_bytes() for name in FILES)
    return Left(folder, files, tuple(lines), turns, durability)
