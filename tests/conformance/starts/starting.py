"""Two Ryes in a workspace, one of which starts every process cold, and a call's result in both."""

import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from inspect import isfunction, signature
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Self

from attrs import field, frozen

from ryecore import ExecutionResult
from tests.warm_hosts import has_starting
from tests.workspace import FUNCTION, SCRIPT, Workspace, events

__all__ = ["INHERENT", "VARIANTS", "Ended", "Starts", "cases_of", "started"]

VARIANTS: Final = ("function", "script")
"""The two runtimes. A `bare` tool's imports are not leading: its template holds none of them."""


INHERENT: Final = {
    "command_line": "the kernel shows a process's first command line; a template's has its mark",
    "frozen_objects": "what stood before the fork is left out of the collector's rounds",
    "hash_of_text": "one seed for all children of a template; cold, each call draws its own",
    "order_of_modules": "sys stands where the template stopped, and what was preloaded before it",
    "a_file_in_a_circle": "what was written to a file stays where a call ends well; cold, the "
    "collector may close the descriptor before the buffer is written",
}
"""The cases that differ by the nature of a fork, and why; all else is the same."""

PATIENCE_S: Final = 30
RUNTIMES: Final = {"function": FUNCTION, "script": SCRIPT}
BARELY: Final = "_ = __import__('sys').path\n"
_DIFFERS: Final = re.compile(r"\b0x[0-9a-f]+|(?<=pid=)\d+|(?<=Thread-)\d+|tmp\w{8}\b")


@frozen
class Ended:
    """What anybody sees of a call's end, without what differs from call to call."""

    status: str
    data: object
    error: str | None
    metadata: Mapping[str, object]
    files: Mapping[str, str]
    start: str = field(eq=False)
    result: ExecutionResult = field(eq=False, repr=False)


def cases_of(module: ModuleType) -> list[str]:
    """The names of the functions that a module of cases offers: each takes the parameters alone."""
    return [
        name
        for name, value in vars(module).items()
        if isfunction(value) and name[0] != "_" and list(signature(value).parameters) == ["params"]
    ]


def started(result: ExecutionResult) -> str:
    """How a traced call was started."""
    return str(events(result.trace, "execute")[-1]["start"])


class Starts:
    """Calls of tools, cold and warm.

    Attributes:
        place: A folder for what a tool leaves; empty before each call.
    """

    def __init__(self, workspace: Workspace, **options: Any) -> None:
        self.workspace = workspace
        self.cold_rye = workspace.sync(warm_memory_mib=0, **options)
        self.rye = workspace.sync(**options)
        self.place = workspace.root / "place"
        self._tools: dict[tuple[str, str], str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cold_rye.close()
        self.rye.close()

    def tool(self, module: ModuleType, variant: str) -> str:
        """The ref of a module of cases, as a tool."""
        known = self._tools.get((module.__name__, variant))
        if known is None:
            text = Path(str(module.__file__)).read_text()
            name = f"acme/{module.__name__.rpartition('.')[2]}_{variant.replace(' ', '_')}"
            bare, _, runtime = variant.rpartition(" ")
            known = self.workspace.python(
                name, (BARELY if bare else "") + text, executor_id=RUNTIMES[runtime]
            )
            self._tools[module.__name__, variant] = known
        return known

    def warmed(self, ref: str, parameters: Mapping[str, Any]) -> None:
        """Call a tool until it starts warm."""
        until = time.monotonic() + PATIENCE_S
        while started(self.rye.execute(ref, parameters, trace=True)) != "warm":
            assert time.monotonic() < until, f"{ref} never started warm"
            while has_starting(self.rye) and time.monotonic() < until:
                time.sleep(0.005)

    def cold(self, ref: str, parameters: Mapping[str, Any], **options: Any) -> Ended:
        """What comes of a call that starts cold."""
        with self._in_place():
            result = self.cold_rye.execute(ref, parameters, trace=True, **options)
            ended = self._ended(result)
        assert ended.start == "cold"
        return ended

    def warm(self, ref: str, parameters: Mapping[str, Any], **options: Any) -> Ended:
        """What comes of a call that starts warm for certain; a cold one is not looked at."""
        idle = {**parameters, "case": "nothing"}
        for _ in range(4):  # a busy machine may have it start cold again
            with self._in_place():
                ended = self._ended(self.rye.execute(ref, parameters, trace=True, **options))
            if ended.start == "warm":
                return ended
            self.warmed(ref, idle)
        raise AssertionError(f"{ref} {parameters} ends its template each time")

    def both(self, ref: str, parameters: Mapping[str, Any], **options: Any) -> tuple[Ended, Ended]:
        """What comes of a cold call, and of a warm one; nobody should be able to tell."""
        cold = self.cold(ref, parameters, **options)
        return cold, self.warm(ref, parameters, **options)

    @contextmanager
    def _in_place(self) -> Iterator[None]:
        self.place.mkdir()
        try:
            yield
        finally:
            shutil.rmtree(self.place)

    def _ended(self, result: ExecutionResult) -> Ended:
        files = {
            str(path.relative_to(self.place)): path.read_bytes().decode("latin-1")
            for path in sorted(self.place.rglob("*"))
            if path.is_file()
        }
        metadata = dict(result.metadata)
        if "left_behind_pids" in metadata:
            metadata["left_behind_pids"] = len(metadata["left_behind_pids"])
        return Ended(
            result.status,
            _steady(result.data),
            _steady(result.error),
            metadata,
            _steady(files),
            started(result),
            result,
        )


def _steady(value: Any) -> Any:
    """A value without addresses, numbers of processes and random names."""
    if isinstance(value, str):
        return _DIFFERS.sub("_", value) if len(value) < 100_000 else value
    if isinstance(value, Mapping):
        return {_steady(key): _steady(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_steady(item) for item in value]
    return value
