"""Hosts of warm tools, each a process of its own, and a look at what they leave behind.

A host is forked from a server that has everything imported; `python -m tests.warm_hosts` is that.
"""

import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import anyio

from ryecore import ExecutionResult, Rye, SyncRye
from ryecore.items.spaces import built_in_space
from ryecore.lillux.processes import TemplateStats
from tests.forking import end_at_once
from tests.interpreter import PYTHON
from tests.killing import lines_of
from tests.workspace import Workspace, events

__all__ = [
    "EFFECTS",
    "MARK",
    "Host",
    "Hosts",
    "Say",
    "calls",
    "children",
    "effects",
    "furnish",
    "has_starting",
    "is_alive",
    "is_spare",
    "none_left",
    "open_rye",
    "open_sync",
    "processes_of",
    "right_calls",
    "spares_of",
    "start_of",
    "stats_of",
    "templates_of",
    "warm_up",
    "wrap_python",
]

Say = Callable[[object], None]

ROOT: Final = Path(__file__).parents[1]
EFFECTS: Final = "effects"
MARK: Final = "tool:a/mark"
_MARK: Final = """\
import os
def stay(path):
    with open(path + ".begun", "w") as begun:
        begun.write(str(os.getpid()))
    open(path).read()
def execute(params, project_path):
    if "mute" not in params:
        effects = os.open("effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(effects, b"%d\\n" % params["id"])
        os.close(effects)
    if "end" in params:
        import atexit
        atexit.register(stay, params["end"])
    if "wait" in params:
        stay(params["wait"])
    if "eat" in params:
        eaten = b"x" * params["eat"]
    return {
        "id": params["id"],
        "pid": os.getpid(),
        "parent": os.getppid(),
        "niceness": os.nice(0),
        "cpus": len(os.sched_getaffinity(0)),
    }
"""


def furnish(root: Path) -> Workspace:
    """A workspace with a tool that leaves a line with its `id` in `effects`, unless it is `mute`.

    With `wait` it stays at that pipe, with `end` it does so at its exit; where it has come there,
    its number stands in the file beside the pipe that ends in `.begun`.
    """
    workspace = Workspace(root)
    workspace.python("a/mark", _MARK)
    return workspace


def wrap_python(workspace: Workspace, script: str) -> None:
    """Have tools run by a shell script; `$real` in it is the interpreter, `$template` is 1 or 0."""
    wrapped = workspace.root / "bin/python3"
    wrapped.parent.mkdir()
    lines = ["#!/bin/sh", f"real={PYTHON}", "template=0"]
    lines += ['case "$*" in *"read(3, "*) template=1;; esac', script, 'exec "$real" "$@"', ""]
    wrapped.write_text("\n".join(lines))
    wrapped.chmod(0o755)


def effects(root: Path) -> list[int]:
    """The ids of the calls whose tool ran, in order."""
    return [int(line) for line in lines_of(root / "project" / EFFECTS)]


# Inside a host


def _options(root: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    wrapped = root / "bin/python3"
    environ = {
        "PATH": f"{Path(PYTHON).parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(root / "user"),
        "LANG": "C.UTF-8",
        "RYE_PYTHON": str(wrapped) if wrapped.exists() else PYTHON,
    }
    ours = {"user_space": root / "user", "environ": environ, "system_spaces": (built_in_space(),)}
    return ours | dict(options)


def open_rye(root: Path, **options: Any) -> Rye:
    """Open a Rye in a workspace that another process has furnished."""
    return Rye.open(root / "project", **_options(root, options))


def open_sync(root: Path, **options: Any) -> SyncRye:
    """The same for hosts that block."""
    return SyncRye.open(root / "project", **_options(root, options))


def start_of(done: ExecutionResult) -> object:
    """How a call was started."""
    return events(done.trace, "execute")[0]["start"]


def stats_of(rye: Rye | SyncRye) -> tuple[TemplateStats, ...]:
    """How the templates of a Rye stand."""
    inner = rye._target if isinstance(rye, SyncRye) else rye
    pool = inner._parts._executor._pool
    return () if pool is None else pool.stats()


def has_starting(rye: Rye | SyncRye) -> bool:
    """Whether a template starts: until it is there, another call would start cold, which is dear.

    That costs fifty times what it costs to look again.
    """
    return any(one.state == "starting" for one in stats_of(rye))


async def warm_up(rye: Rye, ref: str = MARK, **parameters: object) -> ExecutionResult:
    """Call until a call starts warm; its ids are negative."""
    number = -1
    with anyio.fail_after(60):
        while True:
            done = await rye.execute(ref, {"id": number, **parameters}, trace=True)
            assert done.success, done.error
            if start_of(done) == "warm":
                return done
            number -= 1
            while has_starting(rye):
                await anyio.sleep(0.005)


async def calls(rye: Rye, ids: range, at_once: int = 16) -> list[ExecutionResult]:
    """Call once for each id."""
    ended: list[ExecutionResult] = []
    waiting = iter(ids)

    async def caller() -> None:
        for number in waiting:
            ended.append(await rye.execute(MARK, {"id": number}, trace=True))

    async with anyio.create_task_group() as group:
        for _ in range(at_once):
            group.start_soon(caller)
    return ended


async def right_calls(rye: Rye, ids: range, at_once: int = 16) -> int:
    """The same, and each answers right; how many were warm."""
    ended = await calls(rye, ids, at_once)
    assert all(one.success for one in ended), [one.error for one in ended if not one.success]
    found = [one.data["id"] for one in ended if isinstance(one.data, dict)]
    assert sorted(found) == list(ids)
    return sum(start_of(one) == "warm" for one in ended)


# Looks from outside


def children(pid: int | str = "self") -> set[int]:
    """The children of a process, whichever of its threads started them; the dead ones too."""
    found: set[int] = set()
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found.update(map(int, listing.read_text().split()))
    return found


def is_alive(pid: int) -> bool:
    """Whether a process has this number and is no zombie."""
    return state_of(pid) not in "ZX"


def state_of(pid: int) -> str:
    """The letter of a process's state; X where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def processes_of(root: Path) -> set[int]:
    """All processes started by a Rye of this workspace: each was given its folder.

    Its hosts have not; a zombie has nothing.
    """
    mark, found = os.fsencode(root) + b"/", set[int]()
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                given = Path(f"/proc/{entry}/environ").read_bytes()
                given += Path(f"/proc/{entry}/cmdline").read_bytes()
            except OSError:
                continue
            if mark in given:
                found.add(int(entry))
    return found


def spares_of(root: Path) -> set[int]:
    """Who stands before its go, of a workspace's processes."""
    return {pid for pid in processes_of(root) if is_spare(pid)}


def is_spare(pid: int) -> bool:
    """Whether it reads its go from its third descriptor: in a call that may be an output."""
    try:
        flags = Path(f"/proc/{pid}/fdinfo/3").read_text().partition("flags:")[2].split()[0]
    except (OSError, IndexError):
        return False
    is_read = int(flags, 8) & os.O_ACCMODE == os.O_RDONLY
    return is_read and _kind_of_third(pid) == "pipe"


def templates_of(root: Path) -> set[int]:
    """The templates of a workspace."""
    return {pid for pid in processes_of(root) if _kind_of_third(pid) == "socket"}


def _kind_of_third(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/fd/3").partition(":")[0]
    except OSError:
        return ""


def none_left(root: Path, within_s: float = 1.0) -> bool:
    """Whether every process of a workspace ends within that time."""
    end = time.monotonic() + within_s
    while left := processes_of(root):
        held = []
        for pid in left:
            with suppress(ProcessLookupError):  # it ends meanwhile
                held.append(os.pidfd_open(pid))
        wait_s = end - time.monotonic()
        if wait_s <= 0:
            return False
        for descriptor in held:
            select.select([descriptor], [], [], max(0, end - time.monotonic()))
            os.close(descriptor)
    return True


# Hosts and their server


class Host:
    """A host that runs.

    Attributes:
        pid: Its number.
        root: Its workspace.
    """

    def __init__(self, server: "Hosts", pid: int, root: Path, said: int) -> None:
        self.pid, self.root = pid, root
        self._server, self._said, self._rest = server, said, b""
        self._code: int | None = None

    def hear(self, within_s: float = 60) -> Any:
        """What it says next."""
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._said], [], [], within_s)
            assert ready, f"the host says nothing within {within_s} s"
            chunk = os.read(self._said, 65536)
            assert chunk, f"the host ended: {self._rest.decode()}"
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        word = json.loads(line)
        if isinstance(word, dict) and "failed" in word:
            raise AssertionError(word["failed"])
        return word

    def says(self, within_s: float) -> bool:
        """Whether it says something within that time."""
        return bool(self._rest or select.select([self._said], [], [], within_s)[0])

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send it a signal, if it is there."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def wait(self) -> int:
        """Its exit code, or minus the signal that ended it."""
        if self._code is None:
            self._code = self._server.reap(self.pid)
        return self._code

    def end(self) -> None:
        """Have it hear its last word, and see that it ends well and leaves nothing."""
        assert self.wait() == 0
        assert none_left(self.root)

    def close(self) -> None:
        """End it, and whatever it has left."""
        if self._code is None:
            self.kill()
            self.wait()
        os.close(self._said)
        for pid in processes_of(self.root):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Hosts:
    """A server that forks hosts.

    Args:
        modules: Where their lives are.
        below: A command that starts the server.
    """

    def __init__(self, *modules: str, below: Sequence[str] = ()) -> None:
        # From 3.12 on Python warns of forks beside threads, which some hosts do on purpose.
        warnings = ["-Werror", "-Wignore:This process:DeprecationWarning"]
        command = [*below, sys.executable, *warnings, "-m", "tests.warm_hosts", *modules]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )

    def close(self) -> None:
        """End the server."""
        self._process.communicate()

    def _ask(self, **asked: object) -> int:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def reap(self, pid: int) -> int:
        """Wait for a host's end."""
        return self._ask(wait=pid)

    @contextmanager
    def start(self, life: Callable[..., None], root: Path, *args: object) -> Iterator[Host]:
        """A host that lives `life(root, say, *args)`, a function of a module."""
        fifo = root / f"said-{time.monotonic_ns()}"
        os.mkfifo(fifo)
        said = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        name = [life.__module__, life.__name__]
        host = Host(
            self, self._ask(life=name, root=str(root), args=args, fifo=str(fifo)), root, said
        )
        try:
            yield host
        finally:
            host.close()

    def run(
        self, life: Callable[..., None], root: Path, *args: object, within_s: float = 60
    ) -> Any:
        """The one word of a host that ends well, and leaves nothing."""
        with self.start(life, root, *args) as host:
            word = host.hear(within_s)
            host.end()
        return word


def _live(asked: dict[str, Any]) -> None:
    out = os.open(asked["fifo"], os.O_WRONLY)

    def say(word: object) -> None:
        os.write(out, json.dumps(word).encode() + b"\n")

    module, name = asked["life"]
    try:
        getattr(importlib.import_module(module), name)(Path(asked["root"]), say, *asked["args"])
    except SystemExit:
        raise
    except BaseException:
        say({"failed": traceback.format_exc()})
        os._exit(1)


def main() -> None:
    """Fork a host for each line that asks for one, and reap those that are asked for."""
    for module in sys.argv[1:]:
        importlib.import_module(module)
    gc.freeze()  # so that the hosts share its memory
    while line := os.read(0, 65536):
        asked = json.loads(line)
        if "wait" in asked:
            answer = os.waitstatus_to_exitcode(os.waitpid(asked["wait"], 0)[1])
        elif (answer := os.fork()) == 0:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 0)
            os.dup2(2, 1)
            os.close(null)
            _live(asked)
            end_at_once()
        os.write(1, b"%d\n" % answer)


if __name__ == "__main__":
    main()
