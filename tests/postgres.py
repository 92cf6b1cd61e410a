"""A PostgreSQL server of the tests' own, in a temporary folder."""

import os
import pwd
import secrets
import select
import shutil
import signal
import socket
import socketserver
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.matrix import IS_SOAK

OPTIONS = ("max_connections=200",)
NOT_DURABLE = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")
HBA = "local all guarded scram-sha-256\nlocal all all trust\n"


def find_binaries() -> Path | None:
    """The folder with PostgreSQL's server; Debian keeps it off the PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)
    on_path = shutil.which("initdb")
    candidates = [*([Path(on_path).resolve()] if on_path else []), *found]
    return next((one.parent for one in candidates if (one.parent / "postgres").exists()), None)


needs_server = pytest.mark.skipif(
    find_binaries() is None or find_spec("psycopg") is None,
    reason="needs PostgreSQL's server (apt-get install postgresql) and the extra postgres",
)


needs_dbos = pytest.mark.skipif(find_spec("dbos") is None, reason="needs the extra dbos")


class PostgresServer:
    """A server in a temporary folder, which takes connections on a socket in that folder.

    The user `guarded` needs a password.
    """

    def __init__(self, *, is_durable: bool, options: Sequence[str]) -> None:
        binaries = find_binaries()
        assert binaries is not None
        self._binaries = binaries
        in_memory = not (is_durable or IS_SOAK) and os.access("/dev/shm", os.W_OK)
        memory = "/dev/shm" if in_memory else None
        self.folder = Path(tempfile.mkdtemp(prefix="rye-pg-", dir=memory))
        user = None
        if os.getuid() == 0:  # the server refuses to run as root
            nobody = pwd.getpwnam("nobody")
            os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)
            user = nobody.pw_name
        data = self.folder / "data"
        self._quiet = {"stdout": subprocess.DEVNULL, "cwd": self.folder, "user": user}
        initdb = (binaries / "initdb", "-D", data, "-U", "tester", "-A", "trust", "--no-sync")
        subprocess.run(initdb, check=True, stderr=subprocess.PIPE, **self._quiet)  # type: ignore[call-overload]
        (data / "pg_hba.conf").write_text(HBA)
        settings = (*OPTIONS, *(() if is_durable else NOT_DURABLE), *options)
        said = [part for one in settings for part in ("-c", one)]
        command = (binaries / "postgres", "-D", data, "-k", self.folder, "-h", "", *said)
        # It ends with this process, even if that is killed.
        follows = ("setpriv", "--pdeathsig", "INT") if shutil.which("setpriv") else ()
        self._command = (*follows, *command)
        self._parent = ThreadPoolExecutor(1)  # with the thread that starts it, to be exact

    @property
    def address(self) -> str:
        """The address of its database."""
        return f"postgresql://tester@/postgres?host={self.folder}"

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        self._parent.submit(self._start).result()

    def _start(self) -> None:
        log = self.folder / "log"
        with log.open("ab") as told:
            self._server = subprocess.Popen(self._command, stderr=told, **self._quiet)  # type: ignore[call-overload]
        ready = (self._binaries / "pg_isready", "-q", "-h", self.folder)
        while subprocess.run(ready, check=False).returncode:
            assert self._server.poll() is None, log.read_text()
            time.sleep(0.05)

    def stop(self, *, crash: bool = False) -> None:
        """End it, and with it every connection; or crash, so that its start has to recover."""
        self._server.send_signal(signal.SIGQUIT if crash else signal.SIGINT)
        self._server.wait()

    def remove(self) -> None:
        """Remove its folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def running_postgres(
    *, is_durable: bool = False, options: Sequence[str] = ()
) -> Iterator[PostgresServer]:
    """Run a server of one's own until the block ends; see `serving_postgres`."""
    server = PostgresServer(is_durable=is_durable, options=options)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        server.remove()


@contextmanager
def serving_postgres(*, is_durable: bool = False, options: Sequence[str] = ()) -> Iterator[str]:
    """Run a server until the block ends, and yield the address of its database.

    Args:
        is_durable: Whether its commits are on a disk, as they are on a real server.
        options: More settings, such as `work_mem=8MB`.
    """
    with running_postgres(is_durable=is_durable, options=options) as server:
        yield server.address


def own_schema(address: str) -> str:
    """Return the address of a schema of a database that nobody has used.

    The name of a test's folder would be no name for it: once a test has passed, the next one whose
    name begins alike has the same folder.
    """
    return f"{address}&schema=t_{secrets.token_hex(8)}"


_SOCKET = ".s.PGSQL.5432"
"""The name of a server's socket in its folder."""


class _SocketServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


@contextmanager
def _standing_between(
    folder: Path, handler: type[socketserver.BaseRequestHandler]
) -> Iterator[None]:
    """Serve a socket that is named like a server's, in a folder that is made."""
    folder.mkdir()
    with _SocketServer(str(folder / _SOCKET), handler) as between:
        threading.Thread(target=between.serve_forever, daemon=True).start()
        yield
        between.shutdown()


@contextmanager
def losing_answers(server: Path, folder: Path) -> Iterator[Callable[[bool], None]]:
    """Stand between clients and a server's socket, in another folder.

    What is yielded sets whether the connections break as the server answers: it has done what it
    was asked to, and the client doesn't learn of it.
    """
    losing = threading.Event()

    class Between(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.socket(socket.AF_UNIX) as answering:
                answering.connect(str(server / _SOCKET))
                while True:
                    ready, _, _ = select.select([self.request, answering], [], [])
                    for one in ready:
                        data = one.recv(65536)
                        if not data or (one is answering and losing.is_set()):
                            return
                        (answering if one is self.request else self.request).sendall(data)

    with _standing_between(folder, Between):
        yield lambda loses: losing.set() if loses else losing.clear()


@contextmanager
def cutting(server: Path, folder: Path) -> Iterator[threading.Event]:
    """Stand between clients and a server's socket, in another folder.

    While what is yielded is set, nothing comes through in either direction, as where a network
    drops everything; no connection ends.
    """
    cut = threading.Event()

    class Between(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.socket(socket.AF_UNIX) as answering:
                answering.connect(str(server / _SOCKET))
                while True:
                    ready, _, _ = select.select([self.request, answering], [], [], 0.1)
                    for one in () if cut.is_set() else ready:
                        data = one.recv(65536)
                        if not data:
                            return
                        (answering if one is self.request else self.request).sendall(data)

    with _standing_between(folder, Between):
        yield cut


class Killer:
    """Kills a process at a message of its to the server.

    Attributes:
        pid: The process.
        at: The number of the message, from 1; 0 for none.
        is_done: Whether the server has done what the message asks for; its answer doesn't arrive.
        count: The number of messages so far.
    """

    def __init__(self) -> None:
        self.pid, self.at, self.is_done, self.count = 0, 0, False, 0


@contextmanager
def killing(server: Path, folder: Path) -> Iterator[Killer]:
    """Stand between a process and a server's socket, in another folder; see `Killer`."""
    killer, counting = Killer(), threading.Lock()

    class Between(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):  # as its process is killed
                self._pass_on()

        def _pass_on(self) -> None:
            is_last = False
            with socket.socket(socket.AF_UNIX) as answering:
                answering.connect(str(server / _SOCKET))
                while True:
                    ready, _, _ = select.select([self.request, answering], [], [])
                    for one in ready:
                        data = one.recv(65536)
                        if not data:
                            return
                        if one is self.request:
                            with counting:
                                killer.count += 1
                                is_last = is_last or killer.count == killer.at
                        # A part of a message has no answer: then the rest goes on.
                        if is_last and (one is answering or not killer.is_done):
                            os.kill(killer.pid, signal.SIGKILL)
                            return
                        (answering if one is self.request else self.request).sendall(data)

    with _standing_between(folder, Between):
        yield killer
