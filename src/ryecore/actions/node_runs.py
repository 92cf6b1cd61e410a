"""What comes home of runs on nodes: their events there, and the files that they changed."""

from typing import TYPE_CHECKING

from ryecore.actions.thread_access import ThreadAccess
from ryecore.state.events import RunEvent
from ryecore.state.waiting import run_in_thread

if TYPE_CHECKING:
    from ryecore.remote.changes import PullReport
    from ryecore.state.store import ThreadStore

__all__ = ["NodeRuns"]


class NodeRuns(ThreadAccess):
    """What comes home of runs on nodes."""

    async def pull(self, thread_id: str) -> "PullReport":
        """Apply the project files that a run on a node changed, whole or not at all.

        Raises:
            InputError: The run collected none.
            RyeError: They can't be fetched or written; then the project is as it was.
        """

        async def pull(store: "ThreadStore", found: str) -> "PullReport":
            return await self._remote.runs.pull(await store.registry.get_thread(found))

        return await self._use_followed(thread_id, pull)

    async def node_events(self, thread_id: str) -> "tuple[RunEvent, ...]":
        """Return the events of a run on a node, as its threads there recorded them.

        They are what the node says; `verify` proves that.

        Returns:
            The records of one thread after the other; none before the run's files are home.

        Raises:
            ThreadNotFound: No thread has this id.
            StateError: A file can't be read.
        """

        async def read(store: "ThreadStore", found: str) -> "tuple[RunEvent, ...]":
            from ryecore.remote.pull import records_at_home  # noqa: PLC0415 - only for nodes

            return tuple(
                RunEvent.of(one)
                for one in await run_in_thread(records_at_home, store.node_files(found))
            )

        return await self._use_followed(thread_id, read)
