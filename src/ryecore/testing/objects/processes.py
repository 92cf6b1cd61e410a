"""Cases: two processes that store one object, one that is killed, and the memory of a large one.

Each process is a new interpreter, since drivers of some stores don't survive a fork.
"""

import importlib
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

from ryecore.state.object_store import ObjectStore
from ryecore.testing.conformance.bench import check, equal
from ryecore.testing.objects.bench import (
    ObjectCases,
    digest_of,
    names_in,
    object_case,
)

__all__ = ["ProcessCases"]

_MIB: Final = 1024 * 1024
_LARGE_MIB: Final = 64
_MOST_GROWTH_MIB: Final = 40
_KILLED_MIB: Final = 24
_START: Final = "from ryecore.testing.objects.processes import main; main()"
_WITHIN_S: Final = 60.0


class ProcessCases(ObjectCases):
    """Two processes that store one object, one that is killed, and the memory of a large one.

    Attributes:
        kills: At how many moments an upload is killed.
    """

    kills: ClassVar[int] = 3

    @object_case
    def test_two_writers_of_one_object(self, store: ObjectStore, place: Path) -> None:
        """Two processes that store the same object at once both succeed; there is one object."""
        with self._process("race", place) as one, self._process("race", place) as other:
            for process in (one, other):
                _tell(process, "go")
            names = {_ask(process)["name"] for process in (one, other)}
        equal(names, {*names_in(store)}, "the names")
        content = _large(_KILLED_MIB)
        equal(names, {digest_of(b"".join(content))}, "the name")
        check(b"".join(store.read(names.pop())) == b"".join(_large(_KILLED_MIB)), "It is another.")

    @object_case
    def test_a_killed_upload(self, store: ObjectStore, place: Path) -> None:
        """A writer that is killed leaves the whole object or nothing, and another one succeeds."""
        name = digest_of(b"".join(_large(_KILLED_MIB)))
        for kill in range(self.kills):
            with self._process("race", place) as process:
                _tell(process, "go")
                if kill:  # the first one is killed while its content is still read
                    time.sleep(random.Random(kill).random() * 0.1)  # noqa: S311
                process.kill()
            if store.missing([name]):
                equal(names_in(store), [], "what is visible")
            else:
                content = b"".join(store.read(name))
                equal(digest_of(content), name, "the digest of what is visible")
                store.delete([name])
        equal(store.put(_large(_KILLED_MIB)), name, "the name")
        equal(names_in(store), [name], "what is stored")

    @object_case
    def test_a_large_object_needs_little_memory(self, store: ObjectStore, place: Path) -> None:
        """64 MiB are stored and read with less than 40 MiB of memory."""
        with self._process("measure", place) as process:
            _tell(process, "go")
            found = _ask(process)
        equal(found["size_bytes"], _LARGE_MIB * _MIB, "the length that was read")
        for does in ("put", "read"):
            growth = found[does]
            check(growth < _MOST_GROWTH_MIB, f"To {does} it took {growth:.0f} MiB of memory.")

    @contextmanager
    def _process(self, job: str, place: Path) -> "Iterator[subprocess.Popen[str]]":
        """Start an interpreter that opens the store at a place, and is ended with the block."""
        cls = type(self)
        task = {
            "path": sys.path,
            "module": cls.__module__,
            "suite": cls.__qualname__,
            "settings": dict(self.settings),
            "place": str(place),
            "job": job,
        }
        process = subprocess.Popen(
            [sys.executable, "-c", _START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            _tell(process, json.dumps(task))
            equal(_ask(process), {"ready": True}, "what the process answers")
            yield process
        finally:
            process.kill()
            process.communicate()


def main() -> None:
    """Do a job in a process of its own; the tasks are read from standard input."""
    task = json.loads(sys.stdin.readline())
    sys.path[:] = task["path"]
    suite = importlib.import_module(task["module"])
    for name in task["suite"].split("."):
        suite = getattr(suite, name)
    suite.settings = task["settings"]  # type: ignore[attr-defined]
    job = {"race": _race, "measure": _measure}[task["job"]]
    with suite().open_store(Path(task["place"])) as store:  # type: ignore[operator]
        _answer({"ready": True})
        sys.stdin.readline()
        _answer(job(store))


def _race(store: ObjectStore) -> dict[str, object]:
    return {"name": store.put(_large(_KILLED_MIB))}


def _measure(store: ObjectStore) -> dict[str, object]:
    store.put(b"".join(_large(9)))  # what the driver allocates once
    with _peak() as put:
        name = store.put(_large(_LARGE_MIB))
    with _peak() as read:
        size_bytes = sum(map(len, store.read(name)))
    return {"put": put[0], "read": read[0], "size_bytes": size_bytes}


@contextmanager
def _peak() -> Iterator[list[float]]:
    """Yield a list that gets how much the memory has grown at most, in MiB."""
    found: list[float] = []
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    before = _status_mib("VmRSS")
    yield found
    found.append(_status_mib("VmHWM") - before)


def _status_mib(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))


def _large(size_mib: int) -> Iterator[bytes]:
    """Yield content that isn't held as a whole, and that no compression makes small."""
    block = random.Random(0).randbytes(_MIB)  # noqa: S311 - no secret
    for number in range(size_mib):
        yield number.to_bytes(4, "big") + block[4:]


def _tell(process: "subprocess.Popen[str]", line: str) -> None:
    assert process.stdin is not None  # noqa: S101 - a pipe
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def _ask(process: "subprocess.Popen[str]") -> Any:
    assert process.stdout is not None  # noqa: S101 - a pipe
    line = process.stdout.readline()
    check(bool(line), "The process of the suite failed: see its error above.")
    return json.loads(line)


def _answer(answer: dict[str, object]) -> None:
    print(json.dumps(answer), flush=True)
