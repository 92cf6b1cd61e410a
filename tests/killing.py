"""Kill a life between any two of its writes, and have a fresh process look at what is left.

A life runs in a process that is forked for it and kills itself at a point; another one that is
forked from the same server then looks and goes on. One JSON line a point. The effects are counted
from outside: by an audit hook, by `os.write`, and by SQLite's connections.
"""

import json
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import Any, Final, Protocol

import pytest

from ryecore.errors import RyeError
from ryecore.lillux.digests import ContentStore
from ryecore.state.model import ThreadRecord
from ryecore.state.records import load_run_key
from ryecore.state.store import ThreadStore
from ryecore.state.transcript_check import verify_transcript
from ryecore.state.waiting import run_blocking
from tests.forking import ROOT, Forked

__all__ = [
    "Life",
    "append_line",
    "check_account",
    "check_transcript",
    "fast_folder",
    "forked",
    "kill_at_points",
    "lines_of",
    "main",
    "serve",
]

_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES: Final = {
    "os.rename": 2,
    "os.link": 2,
    "os.remove": 1,
    "os.mkdir": 2,
    "os.truncate": None,
    "os.rmdir": 1,
}
"""Audit events, and which of their arguments is the folder that their path is relative to."""

_OPENED: Final = "/proc/self/fd/"


class Life(Protocol):
    """A life that is killed, and how it is looked at."""

    def live(self, root: Path, how: str) -> None:
        """Run it to its end; where it has begun already, go on with it."""
        ...

    def recover(self, root: Path, how: str) -> str:
        """Look at what is left, go on with it, and say what was found."""
        ...

    def first_death(self, how: str) -> int | None:
        """Where the life ends that another one goes on with, which is killed then.

        None where one alone is killed.
        """
        ...


# The death


class Killer:
    """Counts what the life writes, and ends its process right before one of these.

    Where it tears, it counts calls of `os.write` alone, and ends the process in the middle of one.
    """

    def __init__(self, root: Path, at: int, *, torn: bool) -> None:
        self.count = 0
        self._root, self._at, self._torn = str(root), at, torn
        self._write = os.write

    def install(self) -> None:
        """Begin to count."""
        sys.addaudithook(self._audit)
        os.write = self._written  # type: ignore[assignment]
        fsync, put, point = os.fsync, ContentStore.put, self._point
        os.fsync = lambda file: (point(), fsync(file))[1]  # type: ignore[assignment]
        ContentStore.put = lambda store, content: (  # type: ignore[method-assign]
            point(),
            put(store, content),
        )[1]

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
        elif event in _CHANGES:
            path, folder = arguments[0], _CHANGES[event]
            if folder is not None and arguments[folder] >= 0:
                path = f"{_OPENED}{arguments[folder]}/{path}"
            if self._is_ours(path):
                self._point()

    def _is_ours(self, path: object) -> bool:
        text = str(path)
        if text.startswith(_OPENED):
            text = os.path.realpath(os.path.dirname(text))
        return text.startswith(self._root)

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


def check_account(store: ThreadStore, row: ThreadRecord) -> None:
    """See that an account has ended with its row, whole, with all that was charged."""
    try:
        account = run_blocking(store.ledger.account(row.thread_id))
    except RyeError:
        return  # it died before it had one
    charges = run_blocking(store.ledger.charges(row.thread_id))
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
    below = run_blocking(store.ledger.tree(row.thread_id))
    assert below.spent == account.total, (below, account)


def check_transcript(store: ThreadStore, row: ThreadRecord, user: Path) -> None:
    """See that a transcript can be proved, and that it is whole where its thread ended well.

    Args:
        store: The project's threads.
        row: The thread.
        user: The user's folder.
    """
    path = store.folder_of(row.thread_id) / "transcript.jsonl"
    if not path.exists():
        assert row.transcript_head is None
        return
    key = load_run_key(user / ".ai").public
    if row.status in ("completed", "continued"):
        report = verify_transcript(path, row.thread_id, key, row.transcript_head, ended=True)
    else:
        report = verify_transcript(path, row.thread_id, key, row.transcript_head, ended=False)
        bad = [one for one in report.turns[:-1] if one.state != "attested"]
        assert not bad, report
    assert report.ok, report


def append_line(path: Path, line: str) -> None:
    """Append a line in one write."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


def lines_of(path: Path) -> list[str]:
    """A file's lines; none where there is no file."""
    return path.read_text().splitlines() if path.exists() else []


# The server


def main(life: Life) -> None:
    """Serve with the arguments of the command line; see `kill_at_points`."""
    template, work, *ways = sys.argv[1:]
    for way in ways:
        how, _, step = way.partition("=")
        begin = 1 + sum(map(ord, how)) % int(step)
        serve(life, Path(template), Path(work, how), begin, int(step), how)


def serve(life: Life, template: Path, work: Path, begin: int, step: int, how: str) -> None:
    """Kill a life at each point from `begin` on, every `step`-th; the last line tells of the end.

    Args:
        life: The life.
        template: The furnished workspace.
        work: Where copies are made.
        begin: The first point, from 1.
        step: How far the next one is.
        how: `between` writes; `torn`, in the middle of one; what else there is, and which life
            goes on with one that was killed already, its own module says.
    """
    work.mkdir()
    warm = work / "warm"
    shutil.copytree(template, warm, symlinks=True)
    life.live(warm, how)  # what it imports need not be imported again for each point
    at, ended, first = begin, False, life.first_death(how)
    while not ended:
        root = work / str(at)
        shutil.copytree(template, root, symlinks=True)
        if first is not None:  # in each copy: state that is copied is nobody's
            code, said = forked(partial(_doomed, life, root, first, how))
            assert code == -signal.SIGKILL, said
        code, said = forked(partial(_doomed, life, root, at, how))
        ended = code != -signal.SIGKILL
        ok = not ended or code == 0
        told = {"at": at, "ended": ended, "life": said}
        if ok:
            code, said = forked(partial(life.recover, root, how))
            ok = code == 0
        print(json.dumps(told | {"how": how, "ok": ok, "said": said}))
        sys.stdout.flush()
        if ok:
            shutil.rmtree(root)
        at += step


def _doomed(life: Life, root: Path, at: int, how: str) -> str:
    killer = Killer(root, at, torn=how == "torn")
    killer.install()
    life.live(root, how)
    return str(killer.count)


def forked(function: Callable[[], str]) -> tuple[int, str]:
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


# The test


@contextmanager
def fast_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where there is one: a killed process needs no disk to be found dead."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="ryecore-") as folder:
        yield Path(folder)


def kill_at_points(
    module: str,
    furnish: Callable[[Path], None],
    tmp_path: Path,
    every: Mapping[str, int],
    least: Mapping[str, int],
) -> None:
    """Have a module's life killed at its points, and see that each of them was survived.

    Args:
        module: `MODULE TEMPLATE WORK HOW=STEP ...` serves; see `main`.
        furnish: Makes the workspace that each life runs in a copy of.
        tmp_path: A folder.
        every: For each way to kill (see `serve`), how many points lie between two that are tried.
        least: How many points there are at least for each way: that none is counted any more would
            else not be seen.
    """
    with fast_folder(tmp_path) as folder:
        template, work = folder / "template", folder / "work"
        template.mkdir()
        work.mkdir()
        furnish(template)
        command = [module, str(template), str(work)]
        command += [f"{how}={step}" for how, step in every.items()]
        with Forked(command, cwd=ROOT, env={**os.environ}, stdout=PIPE, stderr=PIPE) as server:
            said, problems = server.communicate()
    assert server.returncode == 0, problems.decode()
    points: list[dict[str, Any]] = [json.loads(line) for line in said.splitlines()]
    failed = [
        f"{one['how']}, point {one['at']}: {one['life']}\n{one['said']}"
        for one in points
        if not one["ok"]
    ]
    if failed:
        pytest.fail(f"{len(failed)} of {len(points)} points:\n" + "\n".join(failed[:3]))
    for how in every:
        own = [one for one in points if one["how"] == how]
        assert own[-1]["ended"]
        print(f"{how}: killed at {len(own) - 1} of {own[-1]['life']} points")
        assert int(own[-1]["life"]) >= least[how]
