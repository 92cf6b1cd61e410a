"""A PostgreSQL server of the tests' own, in a temporary folder."""

import os
import pwd
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
from contextlib import contextmanager
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


@contextmanager
def serving_postgres(*, is_durable: bool = False, options: Sequence[str] = ()) -> Iterator[str]:
    """Run a server until the block ends, and yield the address of its database.

    It takes connections on a socket in its folder. The user `guarded` needs a password.

    Args:
        is_durable: Whether its commits are on a disk, as they are on a real server.
        options: More settings, such as `work_mem=8MB`.
    """
    binaries = find_binaries()
    assert binaries is not None
    in_memory = not (is_durable or IS_SOAK) and os.access("/dev/shm", os.W_OK)
    memory = "/dev/shm" if in_memory else None
    folder = Path(tempfile.mkdtemp(prefix="rye-pg-", dir=memory))
    user = None
    if os.getuid() == 0:  # the server refuses to run as root
        nobody = pwd.getpwnam("nobody")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        user = nobody.pw_name
    data = folder / "data"
    quiet = {"stdout": subprocess.DEVNULL, "cwd": folder, "user": user}
    initdb = (binaries / "initdb", "-D", data, "-U", "tester", "-A", "trust", "--no-sync")
    subprocess.run(initdb, check=True, stderr=subprocess.PIPE, **quiet)  # type: ignore[call-overload]
    (data / "pg_hba.conf").write_text(HBA)
    settings = (*OPTIONS, *(() if is_durable else NOT_DURABLE), *options)
    said = [part for one in settings for part in ("-c", one)]
    command = (binaries / "postgres", "-D", data, "-k", folder, "-h", "", *said)
    # It ends with this process, even if that is killed.
    follows = ("setpriv", "--pdeathsig", "INT") if shutil.which("setpriv") else ()
    log = folder / "log"
    with log.open("wb") as told:
        server = subprocess.Popen((*follows, *command), stderr=told, **quiet)  # type: ignore[call-overload]
    try:
        ready = (binaries / "pg_isready", "-q", "-h", folder)
        while subprocess.run(ready, check=False).returncode:
            assert server.poll() is None, log.read_text()
            time.sleep(0.05)
        yield f"postgresql://tester@/postgres?host={folder}"
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def losing_answers(server: Path, folder: Path) -> Iterator[Callable[[bool], None]]:
    """Stand between clients and a server's socket, in another folder.

    What is yielded sets whether the connections break as the server answers: it has done what it
    was asked to, and the client doesn't learn of it.
    """
    folder.mkdir()
    losing = threading.Event()
    name = ".s.PGSQL.5432"

    class Between(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.socket(socket.AF_UNIX) as answering:
                answering.connect(str(server / name))
                while True:
                    ready, _, _ = select.select([self.request, answering], [], [])
                    for one in ready:
                        data = one.recv(65536)
                        if not data or (one is answering and losing.is_set()):
                            return
                        (answering if one is self.request else self.request).sendall(data)

    class Server(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True

    with Server(str(folder / name), Between) as between:
        threading.Thread(target=between.serve_forever, daemon=True).start()
        yield lambda loses: losing.set() if loses else losing.clear()
        between.shutdown()
