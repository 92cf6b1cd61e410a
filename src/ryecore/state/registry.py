"""The registry of threads, as every store provides it.

Each operation is awaited, takes and returns ids and frozen values, and is one transaction: it
happens as a whole or not at all, whoever races and whatever dies. Where the caller is cancelled
before the operation begins, nothing was written; once it has begun, it is finished first.

Whether a store keeps these promises is proved by `ryecore.testing.state`.

Source: decisions 35, 37 and 77.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from ryecore.lillux.processes import ProcessId
from ryecore.policy.limits import Limits
from ryecore.state.idempotency import IdempotencyKey
from ryecore.state.model import (
    ContinuationLimits,
    Cost,
    Predecessor,
    SpawnLimit,
    Status,
    ThreadRecord,
)

__all__ = ["ThreadRegistry"]


class ThreadRegistry(Protocol):
    """Every thread of a project, past and present.

    What a thread's owner writes carries the fence that `claim` returned: once another process has
    declared the owner dead, its writes are refused.
    """

    async def synced(self) -> None:
        """Wait until all writes so far survive what the store's durability names.

        Raises:
            StateError: They can't be made durable.
        """
        ...

    async def register(
        self,
        thread_id: str,
        item_id: str,
        parent_id: str | None = None,
        *,
        owner: ProcessId | None = None,
        model: str | None = None,
        limits: Mapping[str, object] | None = None,
        follows: Predecessor | None = None,
        start: IdempotencyKey | None = None,
        spawns: SpawnLimit | None = None,
    ) -> ThreadRecord:
        """Create a thread's row, with the status `created`.

        A child of a parent that was asked to stop is asked to stop, too.

        Args:
            thread_id: Its id, which no other thread has.
            item_id: What will run in it, as a canonical ref.
            parent_id: The thread that starts it.
            owner: The process that answers for it until one claims it; the calling one.
            model: The model that its turns will use.
            limits: Its limits by name, JSON-ready.
            follows: The thread that it continues.
            start: The idempotency key that it is started with.
            spawns: The parent's limit, which the thread is counted against in the same
                transaction; None where `count_spawn` does that.

        Raises:
            AlreadyStarted: The same was started with this key. It isn't counted again.
            LimitReached: The parent has started as many as it may.
            ThreadConflict: A thread has this id, or another one continues the same one already.
            StateError: Nothing can be written.
        """
        ...

    async def check_start(self, start: IdempotencyKey | None, parent_id: str | None) -> None:
        """Refuse a start whose idempotency key another one has, before anything else is done.

        Raises:
            AlreadyStarted: The same was started with this key.
            InputError: Another request was.
        """
        ...

    async def free_start_key(self, thread_id: str) -> None:
        """Free the idempotency key of a thread that failed before anything of it ran."""
        ...

    async def count_spawn(self, parent_id: str, most: int | None) -> int:
        """Count one more child of a thread, unless that would pass its limit.

        Args:
            parent_id: The thread that starts one.
            most: How many it may start in all; None for any number.

        Returns:
            How many it has started now, this one included.

        Raises:
            LimitReached: It has started that many already (`spawns_exceeded`). Nothing is counted.
            ThreadNotFound: There is none of this id.

        Source: docs/design/threads.md#spawns; decision 40.
        """
        ...

    async def mint_token(self, thread_id: str) -> str:
        """Make the token that a created thread is claimed with, once; an older one is void.

        The row keeps its SHA-256 alone.

        Raises:
            ThreadConflict: The thread runs already, or has ended.
            ThreadNotFound: There is none of this id.

        Source: decision 41.
        """
        ...

    async def claim(
        self,
        thread_id: str,
        owner: ProcessId | None = None,
        *,
        owns_process: bool = False,
        token: str | None = None,
    ) -> int:
        """Take a created thread over; its status becomes `running`.

        Args:
            thread_id: The thread.
            owner: The process that runs it from now on; the calling one.
            owns_process: Whether that process runs nothing else, and may be killed for it.
            token: The token that `mint_token` made for this thread, if it did; it is used up.

        Returns:
            The fence that this owner's writes carry.

        Raises:
            ThreadConflict: It has ended meanwhile, another process runs it, or the token is not
                the thread's.
            ThreadNotFound: There is none.
        """
        ...

    async def renew(self, thread_id: str, fence: int) -> None:
        """Renew the lease of a thread's owner.

        Raises:
            StateError: Another process has declared it dead.
        """
        ...

    async def assign_process(self, thread_id: str, process: ProcessId) -> None:
        """Set the process that is about to claim a created thread, and runs nothing else."""
        ...

    async def settle(
        self,
        thread_id: str,
        status: Status,
        result: object,
        *,
        fence: int | None = None,
        head: tuple[int, str] | None = None,
        snapshot: Cost | None = None,
    ) -> None:
        """End a thread in one transaction: its last status, its result, and its account's end.

        Args:
            thread_id: The thread.
            status: The status that it ends with.
            result: Its result, JSON-ready.
            fence: The writing owner's.
            head: The length in bytes and the digest of its transcript's last checkpoint.
            snapshot: What it has spent.

        Raises:
            ThreadConflict: It has ended already, or another process has taken it over.
            InputError: The result can't be written as JSON.
            StateError: Nothing can be written.
        """
        ...

    async def set_cost(self, thread_id: str, cost: Cost, *, fence: int | None = None) -> None:
        """Store what a thread has spent so far."""
        ...

    async def set_limits(
        self,
        thread_id: str,
        limits: Mapping[str, object],
        *,
        model: str | None = None,
        fence: int | None = None,
    ) -> None:
        """Store a thread's limits, by name and JSON-ready, and the model that its turns use."""
        ...

    async def request_cancel(self, thread_id: str, *, kill: bool = False) -> ThreadRecord:
        """Ask a thread and all those below it to stop. Their owners read it from their rows.

        Threads that continue one that was handed off are asked with it.

        Args:
            thread_id: The thread.
            kill: Whether its process is about to be killed.

        Returns:
            The row as it stands; one that has ended is left as it is.
        """
        ...

    async def request_handoff(self, thread_id: str) -> ThreadRecord:
        """Ask a thread's owner to hand it off. The owner reads it from the row."""
        ...

    async def settle_abandoned(self, records: Iterable[ThreadRecord]) -> tuple[str, ...]:
        """End the threads whose owner is dead: `killed` where that was asked for, else `error`.

        Those below them, which may run in other processes, are asked to stop.

        Args:
            records: Rows as they were read. One that changed since is left as it is.

        Returns:
            The ids of the threads that this call ended.
        """
        ...

    async def set_head(self, thread_id: str, head: tuple[int, str]) -> None:
        """Set the end of the chain of checkpoints in a thread's record log."""
        ...

    async def link_continuation(self, thread_id: str, continuation_thread_id: str) -> None:
        """Set the thread that continues this one; `settle` ends this one."""
        ...

    async def limit_continuation(self, thread_id: str, bounds: ContinuationLimits) -> Limits:
        """Bound a thread by what the chain that it continues has left, and store its limits.

        Of two threads that continue the same one, each sees what the other was granted.

        Args:
            thread_id: The thread.
            bounds: What it may have, and what its chain has used.

        Returns:
            Its limits.

        Source: decision 80.
        """
        ...

    # Queries

    async def get_thread(self, thread_id: str) -> ThreadRecord:
        """Return a thread's row.

        Raises:
            ThreadNotFound: There is none of this id.
        """
        ...

    async def get_result(self, thread_id: str) -> object:
        """Return a thread's result; None where it has none yet.

        Raises:
            ThreadNotFound: There is none of this id.
            StateError: It is damaged.
        """
        ...

    async def list_active(self) -> tuple[ThreadRecord, ...]:
        """List the threads that have not ended, oldest first."""
        ...

    async def list_children(self, parent_id: str) -> tuple[ThreadRecord, ...]:
        """List the threads that a thread has started, oldest first."""
        ...

    async def list_threads(self, *, limit: int = 50, offset: int = 0) -> tuple[ThreadRecord, ...]:
        """List threads of every status, newest first."""
        ...

    async def list_runs(self, *, limit: int = 50, offset: int = 0) -> tuple[ThreadRecord, ...]:
        """List the runs of graphs, newest first."""
        ...

    async def list_died(self) -> tuple[ThreadRecord, ...]:
        """List the directives' threads and graphs' runs whose process died, oldest first.

        Children are left out, because their parents start them again; so are those that were
        stopped, and those that another one continues or has continued to its end.
        """
        ...

    async def count_threads(self, *, only_runs: bool = False) -> int:
        """Return the number of threads, or of runs of graphs."""
        ...

    async def find_by_prefix(self, prefix: str, *, limit: int = 9) -> tuple[ThreadRecord, ...]:
        """List the threads whose id begins with a text, an exact match first."""
        ...

    async def list_tree(
        self, thread_id: str, *, and_after: bool = False
    ) -> tuple[ThreadRecord, ...]:
        """List a thread and all below it, oldest first; nothing where the thread doesn't exist.

        Args:
            thread_id: The thread.
            and_after: Whether to include the continuations of threads that were handed off.
        """
        ...

    async def processes_of(self, thread_id: str) -> tuple[ProcessId, ...]:
        """List the processes that run, or have run, only threads that are killed with this one."""
        ...

    async def processes_beside(self, thread_id: str) -> tuple[ProcessId, ...]:
        """List the processes of running threads that are not killed with this one."""
        ...

    async def is_below(self, thread_id: str, ancestor_id: str) -> bool:
        """Return whether a thread belongs to the subtree of another one, or is that one."""
        ...

    async def pending_requests(self, owner: ProcessId | None = None) -> tuple[ThreadRecord, ...]:
        """List the threads of a process (this one) that were asked to stop or hand off."""
        ...

    async def get_chain(self, thread_id: str) -> tuple[ThreadRecord, ...]:
        """List the chain of continuations that a thread belongs to, from its root on."""
        ...

    async def last_of(self, thread_id: str) -> str:
        """Return the id of the last continuation of a thread that was handed off; else its own."""
        ...

    async def list_following(self, thread_id: str) -> tuple[ThreadRecord, ...]:
        """List the threads that continue one, oldest first."""
        ...
