"""The fixture of the store's suite: a place, stores opened at it, and processes that share it."""

import os
import signal
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, TypeAlias, TypeVar

import anyio
import anyio.to_thread
from attrs import evolve

from ryecore.frozen import frozen
from ryecore.lillux.processes import ProcessId, current_process
from ryecore.state.approvals import ApprovalStore
from ryecore.state.ledger import BudgetLedger
from ryecore.state.record_log import RecordStore
from ryecore.state.registry import ThreadRegistry
from ryecore.testing.conformance.bench import Backend, CaseResult, check, run_cases

__all__ = [
    "PROCESSES",
    "Place",
    "StateCases",
    "StateStore",
    "dead_process",
    "process_case",
    "raises",
    "run_state_conformance",
    "state_case",
]

PROCESSES: Final = 8
"""How many processes race."""

_CASE_S: Final = 120.0

E = TypeVar("E", bound=BaseException)

Work: TypeAlias = "Callable[[StateStore, int], Awaitable[int]]"
Steps: TypeAlias = "Callable[[StateStore, Callable[[str], None]], Awaitable[None]]"


Case: TypeAlias = "Callable[[Any, StateStore, Place], Awaitable[None]]"


class StateStore(Protocol):
    """One open store."""

    @property
    def registry(self) -> ThreadRegistry:
        """Its threads."""
        ...

    @property
    def ledger(self) -> BudgetLedger:
        """Their budgets."""
        ...

    @property
    def approvals(self) -> ApprovalStore:
        """Their calls that wait for an approval."""
        ...

    @property
    def records(self) -> RecordStore:
        """Their records."""
        ...


class StateCases:
    """The store under test, as its author makes it known to the suite.

    Attributes:
        backends: The event loops that the store works on.
    """

    backends: ClassVar[tuple[Backend, ...]] = ("asyncio", "trio")

    def open_store(self, place: Path) -> AbstractAsyncContextManager[StateStore]:
        """Open the store that belongs to an empty folder; a second opening sees the same data.

        It is called in forked processes too, so that connections belong to the process that opens.

        Args:
            place: A folder that only this case uses; a server's store derives a schema from it.
        """
        raise NotImplementedError


@frozen
class Place:
    """One place, at which each case opens stores."""

    cases: StateCases
    folder: Path
    backend: Backend

    def open(self) -> AbstractAsyncContextManager[StateStore]:
        """Open the store of this place once more."""
        return self.cases.open_store(self.folder)

    async def race(self, work: Work) -> list[int]:
        """Run work in eight processes that begin together, and return their results.

        Each gets a store of its own and its number.
        """
        # A thread without an event loop forks, so that the children can run loops of their own.
        return await anyio.to_thread.run_sync(self._race, work)

    def _race(self, work: Work) -> list[int]:
        start_read, start_write = os.pipe()
        results: list[tuple[int, int]] = []
        for number in range(PROCESSES):
            read, write = os.pipe()

            async def wait_and_work(store: StateStore, number: int = number) -> int:
                os.read(start_read, 1)
                return await work(store, number)

            process = self._fork(wait_and_work, write)
            os.close(write)
            results.append((process, read))
        os.write(start_write, b"." * PROCESSES)
        found = []
        for process, read in results:
            with os.fdopen(read) as answer:
                text = answer.read()
            os.waitpid(process, 0)
            check(text.startswith("ok "), f"A process that raced failed: {text}")
            found.append(int(text[3:]))
        os.close(start_read)
        os.close(start_write)
        return found

    async def kill_during(self, work: "Steps", after: int) -> list[str]:
        """Kill a process right after its work has announced `after` steps.

        return all announced steps.

        It announces each step once that is done; the kill came too late for some.
        """
        return await anyio.to_thread.run_sync(self._kill_during, work, after)

    def _kill_during(self, work: "Steps", after: int) -> list[str]:
        read, write = os.pipe()

        async def announce_and_work(store: StateStore) -> int:
            await work(store, lambda step: _write_all(write, f"{step}\n".encode()))
            return 0

        process = self._fork(announce_and_work, write)
        os.close(write)
        with os.fdopen(read) as lines:
            steps = [lines.readline().strip() for _ in range(after)]
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            steps += [line.strip() for line in lines if line.endswith("\n")]
        failed = [step for step in steps if step.startswith("failed ")]
        check(not failed, f"The process failed before it was killed: {failed}")
        return [step for step in steps if step and not step.startswith("ok ")]

    def _fork(self, work: "Callable[[StateStore], Awaitable[int]]", write: int) -> int:
        process = os.fork()
        if process:
            return process
        try:  # the child; nothing of the test runner may run in it
            answer = f"ok {anyio.run(self._run, work, backend=self.backend)}"
        except BaseException as error:
            answer = f"failed {error!r}"
        _write_all(write, answer.encode())
        os._exit(0)

    async def _run(self, work: "Callable[[StateStore], Awaitable[int]]") -> int:
        async with self.open() as store:
            return await work(store)


def state_case(body: Case) -> Callable[[Any], None]:
    """Make a test method of an async case: run on each event loop, with a store of its own."""
    return _method(body, None)


def process_case(body: Case) -> Callable[[Any], None]:
    """Make a test method of an async case whose work is done by other processes.

    It runs only on the first event loop: what races is the processes.
    """
    return _method(body, 1)


def _method(body: Case, most_backends: int | None) -> Callable[[Any], None]:
    @wraps(body)
    def method(self: StateCases) -> None:
        async def run(place: Place) -> None:
            with anyio.fail_after(_CASE_S):
                async with place.open() as store:
                    await body(self, store, place)

        for backend in self.backends[:most_backends]:
            with tempfile.TemporaryDirectory(prefix="rye-state-") as folder:
                anyio.run(run, Place(self, Path(folder), backend), backend=backend)

    del method.__wrapped__  # a runner would ask for its arguments
    return method


async def raises(expected: type[E], call: Awaitable[object]) -> E:
    """Await a call that must be refused, and return its error."""
    try:
        found = await call
    except expected as error:
        return error
    raise AssertionError(f"Not refused with {expected.__name__}; it returned {found!r}.")


def dead_process() -> ProcessId:
    """Return a process of this machine that has ended."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return evolve(current_process(), pid=child, start_ticks=1)


def run_state_conformance(suite: type[StateCases], *names: str) -> tuple[CaseResult, ...]:
    """Run the suite without a test runner, one case after another.

    Args:
        suite: The subclass for a store.
        names: The cases to run; all where none is named.

    Returns:
        The result of each case.
    """
    return run_cases(suite, names)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
