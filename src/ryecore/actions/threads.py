"""The threads of a project, for the person or the application that it belongs to."""

import codecs
import math
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, TypeVarTuple, Unpack

import anyio.to_thread
from attrs import field, frozen

from ryecore.actions.render import render_thread
from ryecore.actions.running import Running
from ryecore.errors import InputError, StateError, ThreadNotFound
from ryecore.policy import CallContext
from ryecore.state.model import ThreadRecord, thread_not_found
from ryecore.styled import StyledText

if TYPE_CHECKING:
    from ryecore.state.store import ThreadStore
    from ryecore.threads.result import ThreadResult
    from ryecore.threads.service import ThreadService
    from ryecore.threads.thread import Thread
    from ryecore.threads.wish import ThreadWish

__all__ = ["ThreadReport", "Threads"]

T = TypeVar("T")
Values = TypeVarTuple("Values")

_MAX_LOG_BYTES: Final = 16 * 1024 * 1024
_MAX_OFFSET: Final = 2**31


@frozen(repr=False)
class ThreadReport:
    """A thread, and what came of it.

    Attributes:
        record: Its row in the registry.
        result: Its result, as seed 001's response object; None while it runs.
        folder: Its folder below `.ai/state/threads`.
    """

    record: ThreadRecord
    result: object = field(repr=False)
    folder: Path

    @property
    def thread_id(self) -> str:
        """Its id."""
        return self.record.thread_id

    @property
    def status(self) -> str:
        """Where it stands: created, running, completed, error, cancelled, continued or killed."""
        return self.record.status

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.record.ended

    @property
    def data(self) -> object:
        """What its tool returned; None where there is no result."""
        return self.result.get("data") if isinstance(self.result, Mapping) else None

    @property
    def error(self) -> str | None:
        """Why it failed; None where it didn't."""
        error = self.result.get("error") if isinstance(self.result, Mapping) else None
        return str(error) if error is not None else None

    def to_dict(self) -> dict[str, object]:
        """The report as a JSON-ready object."""
        return {**self.record.to_dict(), "folder": str(self.folder), "result": self.result}

    def render(self) -> StyledText:
        """The thread for a terminal or a notebook."""
        return render_thread(self.record, self.result, str(self.folder))

    def __repr__(self) -> str:
        return f"ThreadReport({self.thread_id!r}, {self.status}, {self.record.item_id!r})"

    def __str__(self) -> str:
        return self.render().plain()

    def _repr_html_(self) -> str:
        return self.render().html()


class Threads:
    """The threads of one project: `rye.threads`.

    An id may be cut short wherever what is left names one thread alone.

    Args:
        store: Opens the project's threads; None where there are none yet and none is asked for.
        running: The calls of the Rye, which end when it is closed.
        service: Runs the threads of directives.
    """

    def __init__(
        self,
        store: "Callable[[], ThreadStore | None]",
        running: Running,
        service: "Callable[[], ThreadService]",
    ) -> None:
        self._store = store
        self._running = running
        self._service = service

    async def list(
        self,
        *,
        all: bool = False,  # noqa: A002 - the word of `rye threads list`
        limit: int = 50,
        offset: int = 0,
    ) -> tuple[ThreadRecord, ...]:
        """List the threads that have not ended; those nobody runs any more are ended first.

        Args:
            all: Whether the ended ones count too, newest first.
            limit: How many, from 1 to 1,000.
            offset: How many to pass over.

        Returns:
            Their rows.

        Raises:
            InputError: `limit` or `offset` is no number that can be meant.
            StateError: The registry can't be read.
        """
        if not 1 <= limit <= 1000 or not 0 <= offset <= _MAX_OFFSET:
            raise InputError(
                f"limit={limit}, offset={offset} can't be listed.",
                next_step="Pass a limit from 1 to 1000 and an offset from 0.",
            )
        return await self._call("threads", self._list, all, limit, offset)

    def _list(self, ended_too: bool, limit: int, offset: int) -> tuple[ThreadRecord, ...]:
        store = self._store()
        if store is None:
            return ()
        if ended_too:
            return store.look_at_all(lambda found: found.list_threads(limit=limit, offset=offset))
        active = store.look_at_all(lambda found: found.list_active())
        return active[offset : offset + limit]

    async def run(self, wish: "ThreadWish", ctx: CallContext) -> "ThreadResult":
        """Run a directive's thread to its end; for whoever has claimed its row."""
        return await self._running.run(wish.ref, partial(self._service().run, wish, ctx))

    async def thread(self, thread_id: str) -> "Thread":
        """The handle of a directive's thread, wherever it runs or ran: its events and its cost.

        Raises:
            ThreadNotFound: There is none of this id.
        """
        store, found = await self._call(thread_id, self._find, thread_id)
        del store
        return self._service().thread(found)

    async def resume(
        self, thread_id: str, message: str = "", *, ctx: CallContext | None = None
    ) -> "ThreadResult":
        """Go on with a thread that has ended or was killed, in a new one; wait for its end.

        What a tool was doing when its process was killed is not known, and is not done again by
        itself: the model is told so.

        Args:
            thread_id: The thread.
            message: What is said to the model; by default, that it was interrupted.
            ctx: On whose behalf; the host's own by default.

        Raises:
            ThreadConflict: It still runs.
            RyeError: Nothing runs.

        Source: decision 47.
        """

        async def resume() -> "ThreadResult":
            _, found = await anyio.to_thread.run_sync(self._find, thread_id)
            return await self._service().resume(found, message, ctx or CallContext())

        return await self._running.run(thread_id, resume)

    async def fork(
        self, thread_id: str, *, at: int, message: str = "", ctx: CallContext | None = None
    ) -> "ThreadResult":
        """Run a new thread that begins where another one stood after a turn; wait for its end.

        It has an account of its own, what the other might do and today's directive allows, and
        none of its children.

        Args:
            thread_id: The thread.
            at: The turn behind whose results the conversation is cut.
            message: What is said to the model then.
            ctx: On whose behalf; the host's own by default.

        Raises:
            StateError: The turn isn't there.
            RyeError: Nothing runs.

        Source: decision 47.
        """

        async def fork() -> "ThreadResult":
            _, found = await anyio.to_thread.run_sync(self._find, thread_id)
            return await self._service().fork_at(found, at, message, ctx or CallContext())

        return await self._running.run(thread_id, fork)

    async def show(self, thread_id: str) -> ThreadReport:
        """Show a thread and what came of it.

        Raises:
            ThreadNotFound: There is none of this id.
        """
        return await self._call(thread_id, self._show, thread_id)

    def _show(self, thread_id: str) -> ThreadReport:
        store, thread_id = self._find(thread_id)
        return self._report(store, store.look(thread_id))

    async def wait(self, thread_id: str, *, timeout_s: float | None = None) -> ThreadReport:
        """Wait until a thread has ended, in whichever process it runs.

        Args:
            thread_id: The thread.
            timeout_s: How long to wait, in seconds; None is for ever.

        Returns:
            The thread; `ended` is False where the time is over.

        Raises:
            InputError: `timeout_s` is no number.
            ThreadNotFound: There is none of this id.
        """
        if timeout_s is not None and math.isnan(timeout_s):
            raise InputError("timeout_s is no number.", next_step="Pass seconds, or None.")

        async def wait() -> ThreadReport:
            store, found = await anyio.to_thread.run_sync(self._find, thread_id)
            record = await store.wait(found, timeout_s)
            return await anyio.to_thread.run_sync(self._report, store, record)

        return await self._running.run(thread_id, wait)

    async def cancel(self, thread_id: str) -> ThreadReport:
        """Ask a thread to stop; what it runs is ended, and then the thread. Doesn't wait for that.

        Raises:
            ThreadNotFound: There is none of this id.
        """

        def cancel() -> ThreadReport:
            store, found = self._find(thread_id)
            return self._report(store, store.cancel(found))

        return await self._call(thread_id, cancel)

    async def kill(self, thread_id: str, *, grace_s: float = 3.0) -> ThreadReport:
        """End the process that runs a thread, and the thread as killed.

        Args:
            thread_id: The thread.
            grace_s: How long its process may take to end by itself, in seconds.

        Raises:
            InputError: `grace_s` is no number from 0.
            ThreadNotFound: There is none of this id.
            StateError: Its process can't be ended from here.
        """
        if not grace_s >= 0:
            raise InputError(
                f"grace_s is {grace_s}, no number from 0.", next_step="Pass seconds, such as 3."
            )

        def kill() -> ThreadReport:
            store, found = self._find(thread_id)
            return self._report(store, store.kill(found, grace_s))

        return await self._call(thread_id, kill)

    async def log(self, thread_id: str, *, offset: int = 0) -> tuple[str, int]:
        """Read what a thread's tool has printed so far.

        Args:
            thread_id: The thread.
            offset: From which byte on.

        Returns:
            The text, of at most 16 MiB, and the byte to go on from. A character that is not yet
            whole is left for the next time.

        Raises:
            ThreadNotFound: There is none of this id.
            StateError: The log can't be read.
        """
        return await self._call(thread_id, self._log, thread_id, offset)

    def _log(self, thread_id: str, offset: int) -> tuple[str, int]:
        store, thread_id = self._find(thread_id)
        path = store.log_of(thread_id)
        try:
            with open(path, "rb") as file:
                file.seek(min(max(offset, 0), os.fstat(file.fileno()).st_size))
                # What is printed comes in pieces, and one may end within a character.
                decoder = codecs.getincrementaldecoder("utf-8")("replace")
                text = decoder.decode(file.read(_MAX_LOG_BYTES))
                return text, file.tell() - len(decoder.getstate()[0])
        except FileNotFoundError:
            return "", 0
        except OSError as problem:
            raise StateError(
                f"{path} can't be read: {problem.strerror}.",
                next_step="See that you may read the thread's folder.",
            ) from problem

    async def _call(
        self, about: str, function: Callable[[Unpack[Values]], T], *values: *Values
    ) -> T:
        """Call a function that reads or writes the registry, on a thread of its own."""
        return await self._running.run(about, partial(anyio.to_thread.run_sync, function, *values))

    def _find(self, thread_id: str) -> "tuple[ThreadStore, str]":
        """The store, and the whole id of a thread that is called by its beginning."""
        store = self._store()
        if store is None or not thread_id:
            raise thread_not_found(thread_id)
        store.folder_of(thread_id)
        found = store.registry.find_by_prefix(thread_id)
        ids = [one.thread_id for one in found]
        if thread_id in ids:
            return store, thread_id
        if not ids:
            raise thread_not_found(thread_id)
        if len(ids) > 1:
            raise ThreadNotFound(
                f"{thread_id!r} begins the ids of several threads: {', '.join(ids)}.",
                next_step="Write more of the one you mean.",
                thread_id=thread_id,
            )
        return store, ids[0]

    def _report(self, store: "ThreadStore", record: ThreadRecord) -> ThreadReport:
        result = store.registry.get_result(record.thread_id)
        return ThreadReport(record, result, store.folder_of(record.thread_id))
