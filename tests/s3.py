"""An S3 server of the tests' own, in a temporary folder: Versity's gateway.

It checks signatures, as AWS does. `make bucket-server` builds it.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from ryecore.testing.ports import free_port
from tests.matrix import IS_SOAK

ROOT = Path(__file__).parents[1]
KEY, SECRET = "AKIATESTTESTTESTTEST", "s3cr3t-0f-Nobody-0123456789"
BUCKET = "objects"


def find_server() -> str | None:
    """The server's program: on the PATH, or where `make bucket-server` has put it."""
    return shutil.which("versitygw") or shutil.which("versitygw", path=str(ROOT / ".build/s3"))


needs_s3 = pytest.mark.skipif(
    find_server() is None or find_spec("obstore") is None,
    reason="needs an S3 server (make bucket-server) and the extra s3",
)


@contextmanager
def serving_s3() -> Iterator[Mapping[str, str]]:
    """Run a server with a bucket until the block ends, and yield what programs find it by."""
    program = find_server()
    assert program is not None
    folder = Path(tempfile.mkdtemp(prefix="rye-s3-", dir=_memory()))
    (folder / "data" / BUCKET).mkdir(parents=True)
    (folder / "about").mkdir()
    # What a file system without attributes can't hold, the server keeps beside it.
    beside = () if _has_attributes(folder) else ("--sidecar", folder / "about")
    address = f"127.0.0.1:{free_port()}"
    follows = ("setpriv", "--pdeathsig", "INT") if shutil.which("setpriv") else ()
    command = (program, "-q", "--port", address, "posix", *beside)
    environ = {**os.environ, "ROOT_ACCESS_KEY_ID": KEY, "ROOT_SECRET_ACCESS_KEY": SECRET}
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            (*follows, *command, folder / "data"), env=environ, stdout=log, stderr=log
        )
    try:
        while not _listens(address):
            assert server.poll() is None, (folder / "log").read_text()
            time.sleep(0.02)
        yield {
            "AWS_ENDPOINT_URL_S3": f"http://{address}",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "RYE_TEST_S3_FOLDER": str(folder / "data" / BUCKET),
        }
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _memory() -> str | None:
    return "/dev/shm" if not IS_SOAK and os.access("/dev/shm", os.W_OK) else None


def _has_attributes(folder: Path) -> bool:
    try:
        os.setxattr(folder, "user.test", b"x")
    except OSError:
        return False
    return True


def _listens(address: str) -> bool:
    host, _, port = address.partition(":")
    with socket.socket() as one:
        return one.connect_ex((host, int(port))) == 0
