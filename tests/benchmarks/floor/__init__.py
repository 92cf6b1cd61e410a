"""The floors written in C: the same work with nothing around it."""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["c_floor"]


@contextmanager
def c_floor(name: str, *args: str) -> Iterator[Callable[[], int]]:
    """Compile a floor and keep it running.

    Args:
        name: Which one.
        *args: What it is told.

    Yields:
        A function that does the work once and gives its nanoseconds, measured inside.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        raise SystemExit("The floors of spawn and concurrency are written in C: install a cc.")
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/{name}"
        source = Path(__file__).with_name(f"{name}.c")
        subprocess.run([compiler, "-O2", "-o", program, source], check=True)
        process = subprocess.Popen(
            [program, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=True
        )
        assert process.stdin
        assert process.stdout
        stdin, stdout = process.stdin, process.stdout

        def once() -> int:
            stdin.write(b"\n")
            stdin.flush()
            return int(stdout.readline())

        try:
            yield once
        finally:
            stdin.close()
            process.wait()
            stdout.close()
