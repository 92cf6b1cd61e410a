"""The event loop of a `SyncRye`, on a thread of its own, where blocking calls run.

A call that is interrupted by an exception, such as KeyboardInterrupt, is cancelled and has ended
before that exception propagates.
"""

import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from threading import Lock, Thread, current_thread
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, TypeVarTuple, Unpack

import anyio
import anyio.to_thread
from anyio.lowlevel import checkpoint

from ryecore.errors import InputError, RyeClosed
from ryecore.policy.cancelling import cancelled_by
from ryecore.policy.context import CancelToken

if TYPE_CHECKING:
    import asyncio

    from ryecore.chain.model import ChainTrace, ExecutionResult
    from ryecore.items.refs import ItemRef
    from ryecore.policy.context import CallContext
    from ryecore.rye import Rye
    from ryecore.search.model import SearchResults

__all__ = ["EventLoopThread", "ItemsOnLoop", "check_process", "closed"]

T = TypeVar("T")
Values = TypeVarTuple("Values")

_NAME: Final = "ryecore-loop"


class _Call(Generic[T]):
    """A call that runs on the event loop while another thread waits for it."""

    def __init__(self, function: Callable[[], Awaitable[T]]) -> None:
        self._function = function
        self._scope: anyio.CancelScope | None = None
        self._is_ended = False
        self._ended = Lock()
        self._ended.acquire()
        self._results: list[T] = []
        self._error: BaseException | None = None

    async def run(self) -> None:
        """Run the call, on the event loop's thread."""
        try:
            with anyio.CancelScope() as self._scope:
                self._results.append(await self._function())
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # whatever it is, the caller gets it
            self._error = error
        finally:
            self.end()

    def fail(self, error: BaseException) -> None:
        """End the call with an exception, unless it has ended."""
        if not self._is_ended:
            self._error = error
            self.end()

    def end(self) -> None:
        """Wake the caller."""
        if not self._is_ended:
            self._is_ended = True
            self._ended.release()

    def cancel(self) -> None:
        """Cancel the call, on the event loop's thread; one that never arrived there has ended."""
        if self._scope is None:
            self.end()
        else:
            self._scope.cancel()

    def wait(self) -> None:
        """Wait for the end of the call, or for an exception of a signal's handler."""
        while not self._is_ended:
            self._ended.acquire()

    def result(self) -> T:
        """Return the call's result, or raise its exception."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # or the exception and its traceback would keep each other
        if not self._results:
            raise closed()
        return self._results[0]


class EventLoopThread:
    """An event loop on a thread, in which one Rye is open.

    The interpreter doesn't wait for the thread at exit. `process` is the process in which it runs.
    """

    def __init__(self, rye: "Rye") -> None:
        self.rye = rye
        self.process = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._end: anyio.Event | None = None
        self._is_closing = False
        self._calls: set[_Call[Any]] = set()
        started = _Call(checkpoint)
        self._calls.add(started)
        self._thread = Thread(target=self._run, args=(started,), name=_NAME, daemon=True)
        try:
            self._thread.start()
            started.wait()
        except BaseException:
            self.close()
            raise
        started.result()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on the loop's thread."""
        return current_thread() is self._thread

    def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Run a function on the loop and wait for it; any thread but the loop's may call this.

        An exception that a signal's handler raises meanwhile (KeyboardInterrupt, a soft time limit)
        cancels the function, and propagates once that has ended. A second one propagates at once.
        """
        if self.is_current:
            raise InputError(
                "A SyncRye can't be called on its own event loop: it would wait for itself.",
                next_step="Call it on another thread: await anyio.to_thread.run_sync(...).",
            )
        call = _Call(function)
        self._calls.add(call)
        try:
            self._submit(self._start, call)
            call.wait()
        except BaseException:
            try:
                self._cancel(call)
                call.wait()
            except BaseException:
                self._cancel(call)  # the first may not have been submitted
                raise
            raise
        finally:
            self._calls.discard(call)
        return call.result()

    def close(self) -> None:
        """Close the Rye, wait until it has ended, and end the thread."""
        if not self._thread.is_alive():  # in a forked child, which has only the forking thread
            return
        self._is_closing = True
        with suppress(RyeClosed):
            self._submit(self._stop)
        if current_thread() is not self._thread:  # garbage may be collected on any thread
            self._thread.join()

    def _submit(self, function: Callable[[Unpack[Values]], object], *args: *Values) -> None:
        """Have the loop call a function soon, after all that were submitted before."""
        try:
            if self._loop is not None:  # else it is about to see that it was closed
                self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            raise closed() from None

    def _cancel(self, call: _Call[T]) -> None:
        with suppress(RyeClosed):
            self._submit(call.cancel)

    def _start(self, call: _Call[T]) -> None:
        import asyncio  # noqa: PLC0415 - anyio has imported it by now

        # In the caller's context, which may say that the running library is trio.
        if sniffio := sys.modules.get("sniffio"):
            sniffio.current_async_library_cvar.set("asyncio")
        self._tasks.add(task := asyncio.ensure_future(call.run()))
        task.add_done_callback(self._tasks.discard)

    def _stop(self) -> None:
        if self._end is not None:
            self._end.set()

    def _run(self, started: _Call[None]) -> None:
        try:
            anyio.run(self._serve, started)
        except BaseException as problem:
            started.fail(problem)
        finally:
            for call in tuple(self._calls):  # what came too late for the loop
                call.end()

    async def _serve(self, started: _Call[None]) -> None:
        import asyncio  # noqa: PLC0415 - only for the calls

        async with self.rye:
            self._end, self._loop = anyio.Event(), asyncio.get_running_loop()
            await started.run()
            if not self._is_closing:
                await self._end.wait()
        if self._tasks:  # which are about to end: the Rye is closed
            await asyncio.wait(self._tasks)


class ItemsOnLoop:
    """Executes items on the event loop of a `SyncRye`, for code of whichever event loop.

    A call whose task is cancelled is cancelled there too, and has ended before that propagates.
    """

    def __init__(self, loop: EventLoopThread) -> None:
        self._loop = loop

    async def execute(
        self,
        ref: "str | ItemRef",
        parameters: Mapping[str, Any] | None = None,
        *,
        ctx: "CallContext | None" = None,
    ) -> "ExecutionResult":
        """Execute an item; see `Rye.execute`."""
        return await self._run(partial(self._loop.rye.execute, ref, parameters, ctx=ctx))

    async def trace(
        self, ref: "str | ItemRef", *, ctx: "CallContext | None" = None
    ) -> "ChainTrace":
        """Return the verified chain of an item; see `Rye.trace`."""
        return await self._run(partial(self._loop.rye.trace, ref, ctx=ctx))

    async def search(
        self, query: str, *, scope: str = "*", limit: int = 10, offset: int = 0
    ) -> "SearchResults":
        """Find items by their contents; see `Rye.search`."""
        find = partial(self._loop.rye.search, query, scope=scope, limit=limit, offset=offset)
        return await self._run(find)

    async def _run(self, function: Callable[[], Awaitable[T]]) -> T:
        if self._loop.is_current:
            return await function()
        stop, ended = CancelToken(), anyio.Event()
        results: list[T] = []
        failed: list[Exception] = []

        async def run_there() -> None:
            with cancelled_by(stop):
                results.append(await function())

        async def wait() -> None:
            with anyio.CancelScope(shield=True):
                try:
                    await anyio.to_thread.run_sync(self._loop.call, run_there)
                except Exception as error:  # which the group would wrap
                    failed.append(error)
            ended.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            try:
                await ended.wait()
            except anyio.get_cancelled_exc_class():
                stop.cancel()
                raise
        if failed:
            raise failed[0]
        return results[0]


def closed() -> RyeClosed:
    """Return the error of a call after the end of the loop."""
    return RyeClosed("This Rye is closed.", next_step="Open another one.")


def check_process(process: int, what: str, next_step: str) -> None:
    """Check that `what` is used in its own process, not in one that was forked since."""
    if process != os.getpid():
        raise InputError(
            f"{what} belongs to the process from which this one was forked.", next_step=next_step
        )
