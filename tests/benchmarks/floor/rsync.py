"""The floor of a push: rsync to a daemon on loopback, which goes by sizes and times."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["rsync_to"]

_START_S: Final = 10.0


@contextmanager
def rsync_to(folder: Path) -> Iterator[Callable[[Path], None] | None]:
    """Run a daemon; yields what copies a folder into another one. None where there is no rsync."""
    program = shutil.which("rsync")
    if program is None:
        yield None
        return
    folder.mkdir()
    config = folder.with_suffix(".conf")
    who = f"uid = {os.getuid()}\ngid = {os.getgid()}\n" if os.getuid() == 0 else ""
    config.write_text(f"use chroot = no\nread only = no\n{who}[to]\npath = {folder}\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    command = [program, "--daemon", "--no-detach", f"--port={port}", f"--config={config}"]
    with subprocess.Popen([*command, "--address=127.0.0.1"]) as daemon:
        try:
            _wait_for(port)
            url = f"rsync://127.0.0.1:{port}/to/"

            def copy(data: Path) -> None:
                subprocess.run([program, "-a", f"{data}/", url], check=True)

            yield copy
        finally:
            daemon.kill()


def _wait_for(port: int) -> None:
    until = time.monotonic() + _START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return
