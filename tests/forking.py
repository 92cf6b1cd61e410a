"""Programs as real processes that are forked where their modules are imported already.

Importing takes most of the time of a short program. Here it is done once for all that a test run
starts: each is a process of its own with its own streams, folder, environment and end, begun where
`python -m NAME` has imported what it needs.
"""

import atexit
import fcntl
import gc
import importlib
import os
import runpy
import select
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import threading
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).parents[1]
COMMAND = (
    "anyio._backends._asyncio",
    "anyio._core._signals",
    "cattrs.gen.typeddicts",
    "cattrs.v",
    "encodings.ascii",
    "genai_prices.data",
    "importlib.metadata",
    "pwd",
    "ruamel.yaml",
    "ryecore.actions.dispatch",
    "ryecore.actions.graphs",
    "ryecore.actions.pruning",
    "ryecore.actions.remotes",
    "ryecore.cli.commands",
    "ryecore.cli.env",
    "ryecore.cli.execute",
    "ryecore.cli.graphs",
    "ryecore.cli.items",
    "ryecore.cli.keys",
    "ryecore.cli.mcp",
    "ryecore.cli.projects",
    "ryecore.cli.remote",
    "ryecore.cli.threads",
    "ryecore.cli.trace",
    "ryecore.graph.live",
    "ryecore.display",
    "ryecore.graph.result_cache",
    "ryecore.host_factory",
    "ryecore.items.yaml_loader",
    "ryecore.lillux.mailbox",
    "ryecore.remote.calls",
    "ryecore.search.walk",
    "ryecore.state.registry",
    "ryecore.testing",
    "ryecore.threads.service",
    "ryecore.graph_worker",
    "sqlite3",
    "tomllib",
)
"""What `rye` imports, at once or when it needs it."""
SERVERS = (
    *COMMAND,
    "mcp.server.mcpserver",
    "nacl.bindings",
    "pkgutil",
    "httpcore2",
    "ryecore.mcp_client.connector",
    "ryecore.mcp_client.session",
    "ryecore.mcp_server.http",
    "ryecore.mcp_server.server",
    "ryecore.mcp_server.stdio",
    "ryecore.cli.node",
    "ryecore.node.serve",
    "starlette.routing",
    "uvicorn.lifespan.off",
    "uvicorn.protocols.http.httptools_impl",
)
"""What servers of MCP, and connectors to them, import besides."""
WORKERS = (
    *COMMAND,
    "dbos._sys_db_postgres",
    "psycopg",
    "ryecore.actions.cluster",
    "ryecore.cli.node",
    "ryecore.node.work",
    "ryecore.remote.queued",
    "ryecore.state.postgres.store",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.sqlite",
    "tests.thread_host",
)
"""What workers of queues import besides; it needs the extra dbos."""


def can_fork(env: Mapping[str, str]) -> bool:
    """Whether the environment tells the interpreter nothing that it reads only when it starts."""
    return not any(name.startswith("PYTHON") and name != "PYTHONPATH" for name in env)


class Forked(subprocess.Popen[bytes]):
    """`python -m MODULE ARGS`, forked; else what `subprocess` makes of it.

    Args:
        command: The module, or the path of a script, and its arguments.
        imported: What is imported already: `COMMAND`, `SERVERS` or `WORKERS`.
        options: As for `subprocess.Popen`; `env` is needed. `executable` becomes `sys.executable`
            of the process, for what it starts itself.
    """

    def __init__(
        self, command: Sequence[str], *, imported: tuple[str, ...] = COMMAND, **options: Any
    ) -> None:
        self._imported = imported
        super().__init__(command, **options)

    def _execute_child(  # type: ignore[override]
        self, args: Sequence[str], executable: object, preexec_fn: object, close_fds: object,
        pass_fds: object, cwd: Any, env: Mapping[str, str], startupinfo: object,
        creationflags: object, shell: object, p2cread: int, p2cwrite: int, c2pread: int,
        c2pwrite: int, errread: int, errwrite: int, *_: object,
    ) -> None:  # fmt: skip
        given = [own if theirs == -1 else theirs
                 for own, theirs in enumerate((p2cread, c2pwrite, errwrite))]  # fmt: skip
        self._status = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        preload = env.get("LD_PRELOAD", "")
        self._status.connect(address_of(self._imported, preload).replace("@", "\0"))
        program = None if executable is None else str(executable)
        ask(self._status, given, list(args), str(cwd or os.getcwd()), env, program)
        self.pid = int(self._status.recv(64))
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if wait_flags & os.WNOHANG and not select.select([self._status], [], [], 0)[0]:
            return 0, 0
        code = self._status.recv(64)
        self._status.close()
        return self.pid, int(code)

    def _internal_poll(self, *_: object, **__: object) -> int | None:
        with self._waitpid_lock:
            if self.returncode is None:
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self._handle_exitstatus(status)
        return self.returncode


def forked_script(folder: Path, text: str, *args: object, **streams: Any) -> Forked:
    """Start a Python script with arguments as a forked process.

    Args:
        folder: Where the script is written, and the process runs.
        streams: As for `subprocess.Popen`.
    """
    path = folder / f"script-{zlib.crc32(text.encode()):x}.py"
    if not path.exists():  # one that was started before may be reading it
        path.write_text(text)
    return Forked([str(path), *map(str, args)], cwd=folder, env=dict(os.environ), **streams)


def ask(
    status: socket.socket, streams: Sequence[int], args: Sequence[str], cwd: str,
    env: Mapping[str, str], executable: str | None = None,
) -> None:  # fmt: skip
    """Ask for a process. Its id comes back, and its status when it has ended.

    Whoever closes `status` before that kills it.
    """
    variables = [f"{name}={value}" for name, value in env.items()]
    head = [cwd, executable or "-", "", str(len(args))]
    wish = os.memfd_create("wish")
    with open(os.dup(wish), "wb") as file:
        for text in (*head, *args, str(len(variables)), *variables):
            file.write(os.fsencode(text) + b"\0")
    socket.send_fds(status, [b"."], [*streams, wish])
    os.close(wish)


def address_of(imported: tuple[str, ...], preload: str = "") -> str:
    """Return where processes with these modules can be had, until this one ends; see `share`.

    Args:
        imported: The modules.
        preload: What is in their LD_PRELOAD.
    """
    return _serving(imported, preload)


_OWNER: list[int] = []
"""The process with whose end the servers end, where it is another than starts them."""


def share(owner: int) -> None:
    """Share the servers that fork with other processes, until their parent `owner` ends."""
    _OWNER.append(owner)


@cache
def _serving(imported: tuple[str, ...], preload: str) -> str:
    owner = next(iter(_OWNER), os.getpid())
    address = f"@rye-tests-{owner}-{zlib.crc32(' '.join((preload, *imported)).encode()):x}"
    preloaded = {"LD_PRELOAD": preload} if preload else {}
    lock = ROOT / ".build" / "forking.lock"
    lock.parent.mkdir(exist_ok=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not _is_served(address):
            subprocess.run(
                [sys.executable, "-m", "tests.forking", address, str(owner), *imported],
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **preloaded},
                check=True,
            )
    return address


def _is_served(address: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
        try:
            asking.connect(address.replace("@", "\0"))
        except ConnectionRefusedError:
            return False
    return True


def relay_command(imported: tuple[str, ...], executable: str = "-", preload: str = "") -> list[str]:
    """Return what stands before a module or script, and its arguments, to run it forked.

    Args:
        imported: What is imported already: `COMMAND` or `SERVERS`.
        executable: `sys.executable` of the process; `-` for the usual one.
        preload: What is in its LD_PRELOAD.
    """
    return [str(_relay()), address_of(imported, preload), executable]


@cache
def _relay() -> Path:
    """Compile `forked.c` where it hasn't been since it was changed."""
    source = Path(__file__).with_name("forked.c")
    program = ROOT / ".build" / f"forked-{zlib.crc32(source.read_bytes()):x}"
    if not program.exists():
        program.parent.mkdir(exist_ok=True)
        own = program.with_name(f"{program.name}.{os.getpid()}")
        subprocess.run(["cc", "-O1", "-o", str(own), str(source)], check=True)
        own.rename(program)
    return program


def forking_python(
    folder: Path,
    option: str = "-PXutf8",
    imported: tuple[str, ...] = COMMAND,
    preload: str = "",
) -> str:
    """Write a program that stands in for this interpreter where ryecore starts itself.

    What is started with one option is forked with its modules imported, and so is a launched
    call (`-P -m`). Everything else runs in the real interpreter.

    Args:
        folder: Where the program is written.
        option: What the first argument is: `-PXutf8` of walkers, `-EP` of MCP connectors, the
            name of a script, or several with `|` between them.
        imported: What is imported already: `COMMAND` or `SERVERS`.
        preload: What is in LD_PRELOAD of these processes.

    Returns:
        Its path, for `sys.executable`.
    """
    relay = relay_command(imported, preload=preload)
    program = folder / "python"
    program.write_text(
        "#!/bin/sh\n"
        f'case "$1" in {option}) exec {shlex.join(relay)} "$@";; esac\n'
        f'test "$1 $2" = "-P -m" && exec {shlex.join(relay)} "$@"\n'
        f'exec {shlex.quote(sys.executable)} "$@"\n'
    )
    program.chmod(0o755)
    return str(program)


def _serve(listener: socket.socket, owner: int) -> dict[str, Any]:
    """Fork for each wish, until the process of a descriptor ends.

    Returns in the new process, with what is wished.
    """
    selector = selectors.PollSelector()  # which is no descriptor, for a fork to inherit
    selector.register(listener, selectors.EVENT_READ)
    selector.register(owner, selectors.EVENT_READ)
    statuses: dict[int, tuple[int, socket.socket]] = {}
    while True:
        # Who was killed and is started again finds its port and its files free.
        for key, _ in sorted(selector.select(), key=lambda found: found[0].fileobj is listener):
            source: Any = key.fileobj
            if source == owner:
                for watched in statuses:
                    signal.pidfd_send_signal(watched, signal.SIGKILL)
                os._exit(0)
            elif source is listener:
                status, _ = listener.accept()
                if not _is_ours(status):
                    status.close()
                    continue
                _, descriptors, _, _ = socket.recv_fds(status, 1, 4)
                if not descriptors:  # it asked whether anybody is here, or was killed
                    status.close()
                    continue
                pid = os.fork()
                if pid == 0:
                    for held in (listener, status, *(one for _, one in statuses.values())):
                        held.detach()
                    return _begin(descriptors)
                for descriptor in descriptors:
                    os.close(descriptor)
                watched = os.pidfd_open(pid)
                statuses[watched] = pid, status
                selector.register(watched, selectors.EVENT_READ)
                selector.register(status, selectors.EVENT_READ, watched)
                with suppress(OSError):
                    status.send(str(pid).encode())
            elif key.data is not None:  # nobody waits for it any more
                if source.fileno() == -1:  # it has ended meanwhile
                    continue
                selector.unregister(source)
                if key.data in statuses:
                    signal.pidfd_send_signal(key.data, signal.SIGKILL)
                    os.waitid(os.P_PIDFD, key.data, os.WEXITED | os.WNOWAIT)
            else:
                pid, status = statuses.pop(source)
                selector.unregister(source)
                os.close(source)
                code = os.waitpid(pid, 0)[1]
                if status in selector.get_map():
                    selector.unregister(status)
                    with suppress(OSError):
                        status.send(str(code).encode())
                status.close()


def _is_ours(status: socket.socket) -> bool:
    """Whether this user asks: anybody on this machine can reach such an address."""
    said = status.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(said[4:8], sys.byteorder) == os.getuid()


def _begin(descriptors: Sequence[int]) -> dict[str, Any]:
    with open(descriptors[3], "rb", closefd=False) as file:
        file.seek(0)
        texts = iter([os.fsdecode(text) for text in file.read().split(b"\0")])
    wish: dict[str, Any] = {
        "cwd": next(texts),
        "executable": next(texts),
        "leads_group": bool(next(texts)),
        "args": [next(texts) for _ in range(int(next(texts)))],
        "env": dict(next(texts).split("=", 1) for _ in range(int(next(texts)))),
    }
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    os.closerange(3, 4096)
    return wish


def _main(address: str, owner: int, imported: Sequence[str]) -> None:
    watched = os.pidfd_open(owner)
    for name in imported:
        importlib.import_module(name)
    found = [one for one in sys.path if one and Path(one) != ROOT]
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(address.replace("@", "\0"))
    listener.listen(100)
    if os.fork():
        os._exit(0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    gc.freeze()  # so that the processes share its memory
    wish = _serve(listener, watched)
    if wish["leads_group"]:
        os.setpgid(0, 0)
    if wish["executable"] != "-":
        sys.executable = wish["executable"]
    os.environ.clear()
    os.environ.update(wish["env"])
    os.chdir(wish["cwd"])
    more = [one for one in wish["env"].get("PYTHONPATH", "").split(":") if one]
    sys.path[:] = [wish["cwd"], *more, *found]
    program, *sys.argv[1:] = wish["args"]
    try:
        if "/" in program or program.endswith(".py"):
            sys.argv[0] = program
            runpy.run_path(program, run_name="__main__")
        else:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
    except SystemExit as ending:
        if ending.code is not None and not isinstance(ending.code, int):
            raise
        end_at_once(ending.code or 0)
    end_at_once()


def end_at_once(code: int = 0) -> NoReturn:
    """End this forked process as the interpreter would, but leave its modules as they are.

    To take apart what was imported costs more than most forked programs do, because its memory is
    shared until it is written.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, ValueError):  # it was closed, or is None
            pass
        except OSError:
            code = 120
    os._exit(code & 0xFF)


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
