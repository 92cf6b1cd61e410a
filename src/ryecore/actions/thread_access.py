"""The access to one thread of a project by its id, or a beginning or an end of it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from ryecore.actions.reports import ThreadReport
from ryecore.runs.tasks import Running
from ryecore.state.model import ThreadRecord, thread_not_found
from ryecore.state.waiting import run_in_thread

if TYPE_CHECKING:
    from ryecore.actions.targets.remote_parts import RemoteParts
    from ryecore.actions.tool_runs import ToolRuns
    from ryecore.state.store import ThreadStore
    from ryecore.threads.service import ThreadService

__all__ = ["ThreadAccess", "tool_runs_of"]

T = TypeVar("T")


class ThreadAccess:
    """The access to the threads of a project. Runs on nodes that nobody follows are followed."""

    def __init__(
        self,
        store: "Callable[[], ThreadStore | None]",  # None where there are no threads yet
        running: Running,
        service: "Callable[[], ThreadService]",
        prune: Callable[[], Awaitable[None]],
        remote: "RemoteParts",
        tools: "ToolRuns",
    ) -> None:
        self._store = store
        self._running = running
        self._service = service
        self._prune = prune
        self._remote = remote
        self._tools = tools

    async def _report(
        self,
        thread_id: str,
        act: "Callable[[ThreadStore, str], Awaitable[ThreadRecord]]",
    ) -> ThreadReport:
        async def report(store: "ThreadStore", found: str) -> ThreadReport:
            record = await act(store, found)
            await store.synced()
            return await ThreadReport.of(store, record)

        return await self._use_followed(thread_id, report)

    async def _use_followed(
        self,
        thread_id: str,
        use: "Callable[[ThreadStore, str], Awaitable[T]]",
    ) -> T:
        """Call a function as `_use` does, and follow the runs of the tree on nodes meanwhile."""

        async def follow(store: "ThreadStore", found: str) -> T:
            await self._look(await store.registry.list_tree(found, and_after=True))
            return await use(store, found)

        return await self._use(thread_id, follow)

    async def _follow_one(self, record: ThreadRecord) -> None:
        await self._remote.follow((record,), must=True)

    async def _look(self, records: Sequence[ThreadRecord]) -> bool:
        """Follow those of some runs that are on nodes; return whether there are any."""
        placed = [one for one in records if one.place is not None]
        if placed:
            await self._remote.follow(placed, must=False)
        return bool(placed)

    async def _use(self, thread_id: str, use: "Callable[[ThreadStore, str], Awaitable[T]]") -> T:
        """Call a function of the store and a thread's whole id, until the Rye is closed."""

        async def run() -> T:
            return await use(*await self._find(thread_id))

        return await self._running.run(thread_id, run)

    async def _find(self, thread_id: str) -> "tuple[ThreadStore, str]":
        """Return the store, and the whole id of a thread; see `ThreadStore.find`."""
        store = await run_in_thread(self._store)
        if store is None or not thread_id:
            raise thread_not_found(thread_id)
        return store, await store.find(thread_id)


def tool_runs_of(threads: ThreadAccess) -> "ToolRuns":
    """Return what runs tools in this process, of the Rye with these threads."""
    return threads._tools
