"""The registry of threads, as every store provides it.

Each operation is awaited, takes and returns ids and frozen values, and is one transaction: it
happens as a whole or not at all, despite races and crashes. If the caller is cancelled before an
operation begins, nothing is written; once it has begun, it is finished first.

`ryecore.testing.state` tests whether a store keeps these promises.

Source: decisions 35, 37 and 77.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from ryecore.lillux.processes import ProcessId
from ryecore.policy.limits import Limits
from ryecore.state.cost_sums import CostSum
from ryecore.state.idempotency import IdempotencyKey
from ryecore.state.model import (
    ContinuationLimits,
    Cost,
    Predecessor,
    RemotePlace,
    SpawnLimit,
    Status,
    ThreadRecord,
)
from ryecore.state.transactions import Transactions

__all__ = ["ThreadRegistry"]


class ThreadRegistry(Transactions, Protocol):
    """Every thread of a project, past and present.

    Writes of a thread's owner carry the fence that `claim` returned: once another process has
    declared the owner dead, they are refused.
    """

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
        labels: Mapping[str, str] | None = None,
        queue: str | None = None,
    ) -> ThreadRecord:
        """Create a thread's row, with the status `created`.

        A child of a parent that was asked to stop is asked to stop, too. It inherits the labels of
        its parent, or of the thread that it continues, and can't change them.

        Args:
            thread_id: Its unique id.
            item_id: The canonical ref of the item that will run in it.
            parent_id: The thread that starts it.
            owner: The process that is responsible until one claims it; the calling one.
            model: The model of its turns.
            limits: Its limits by name, JSON-ready.
            follows: The thread that it continues.
            start: The idempotency key of its start.
            spawns: The parent's limit of spawns, checked in the same transaction; None if
                `count_spawn` checks it.
            labels: Labels besides those that it inherits.
            queue: The queue whose workers run it; unless it continues a thread, it has no owner
                until one of them claims it.

        Raises:
            AlreadyStarted: The same request was started with this key. It isn't counted again.
            LimitReached: The parent has started as many threads as it may.
            ThreadConflict: A thread has this id, or another one continues the same one already.
            StateError: Nothing can be written.
        """
        ...

    async def check_start(self, start: IdempotencyKey | None, parent_id: str | None) -> None:
        """Refuse a start whose idempotency key was used before, before anything else is done.

        Raises:
            AlreadyStarted: The same request was started with this key.
            InputError: Another request was started with this key.
        """
        ...

    async def free_start_key(self, thread_id: str) -> None:
        """Free the idempotency key of a thread that failed before anything of it ran."""
        ...

    async def count_spawn(self, parent_id: str, most: int | None) -> int:
        """Count one more child of a thread, unless that would pass its limit.

        Args:
            parent_id: The parent.
            most: The number that it may start in all; None for any.

        Returns:
            The number of its children, this one included.

        Raises:
            LimitReached: It has started that many already (`spawns_exceeded`). Nothing is counted.
            ThreadNotFound: No thread has this id.

        Source: docs/design/threads.md#spawns; decision 40.
        """
        ...

    async def mint_token(self, thread_id: str) -> str:
        """Make the token with which a created thread can be claimed once; an older one is void.

        The row stores only its SHA-256.

        Raises:
            ThreadConflict: The thread runs already, or has ended.
            ThreadNotFound: No thread has this id.

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
        limits: Mapping[str, object] | None = None,
        model: str | None = None,
    ) -> int:
        """Take a created thread over; its status becomes `running`.

        Args:
            thread_id: The thread.
            owner: The process that runs it from now on; the calling one.
            owns_process: Whether that process runs nothing else, and may be killed with it.
            token: The token that `mint_token` made for this thread, if it did; it is used up.
            limits: Its limits, by name and JSON-ready; by default those of its row.
            model: The model of its turns; by default that of its row.

        Returns:
            The fence that this owner's writes carry.

        Raises:
            ThreadConflict: It has ended meanwhile, another process runs it, or the token isn't the
                thread's.
            ThreadNotFound: No thread has this id.
        """
        ...

    async def set_place(self, thread_id: str, place: RemotePlace, *, fence: int) -> None:
        """Set the node that runs a thread, before anything is sent there.

        From then on the thread isn't ended because its owner has died, only taken over.

        Args:
            thread_id: The thread.
            place: The node.
            fence: The fence of the owner, which follows the run.

        Raises:
            ThreadConflict: It has ended, or another process has taken it over.

        Source: decision 71.
        """
        ...

    async def take_over(self, thread_id: str, owner: ProcessId | None = None) -> int:
        """Take over the following of a run on a node, if no other living process follows it.

        Args:
            thread_id: The thread.
            owner: The process that follows it from now on; the calling one.

        Returns:
            The fence of the new owner.

        Raises:
            ThreadConflict: It has ended, runs here, or is followed by another living process.
            ThreadNotFound: No thread has this id.

        Source: decision 71.
        """
        ...

    async def renew(self, thread_id: str, fence: int) -> None:
        """Renew the lease of a thread's owner.

        Raises:
            StateError: Another process has declared it dead.
        """
        ...

    async def assign_process(self, thread_id: str, process: ProcessId) -> None:
        """Set the process that is about to claim a created thread, and will run nothing else."""
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
        """End a thread in one transaction: set its final status and result, and close its account.

        Args:
            thread_id: The thread.
            status: The final status.
            result: Its result, JSON-ready.
            fence: The fence of the writing owner.
            head: The length in bytes and the digest of its transcript's last checkpoint.
            snapshot: Its cost.

        Raises:
            ThreadConflict: It has ended already, or another process has taken it over.
            InputError: The result can't be written as JSON.
            StateError: Nothing can be written.
        """
        ...

    async def set_cost(self, thread_id: str, cost: Cost, *, fence: int | None = None) -> None:
        """Store a thread's cost so far."""
        ...

    async def set_limits(
        self,
        thread_id: str,
        limits: Mapping[str, object],
        *,
        model: str | None = None,
        fence: int | None = None,
    ) -> None:
        """Store a thread's limits, by name and JSON-ready, and the model of its turns."""
        ...

    async def request_cancel(self, thread_id: str, *, kill: bool = False) -> ThreadRecord:
        """Ask a thread and its subtree to stop. Their owners read the request from the rows.

        The continuations of a thread that was handed off are included.

        Args:
            thread_id: The thread.
            kill: Whether its process is about to be killed.

        Returns:
            The current row. A thread that has ended is left unchanged.
        """
        ...

    async def request_handoff(self, thread_id: str) -> ThreadRecord:
        """Ask a thread's owner to hand it off. The owner reads the request from the row."""
        ...

    async def settle_abandoned(self, records: Iterable[ThreadRecord]) -> tuple[str, ...]:
        """End threads whose owner is dead: as `killed` if a kill was requested, else as `error`.

        Their subtrees, which may run in other processes, are asked to stop.

        Args:
            records: Rows as they were read. One that has changed since is left unchanged.

        Returns:
            The ids of the threads that this call ended.
        """
        ...

    async def set_head(self, thread_id: str, head: tuple[int, str]) -> None:
        """Set the head of the chain of checkpoints in a thread's record log."""
        ...

    async def link_continuation(self, thread_id: str, continuation_thread_id: str) -> None:
        """Set the thread that continues this one; `settle` ends this one."""
        ...

    async def limit_continuation(self, thread_id: str, bounds: ContinuationLimits) -> Limits:
        """Bound a continuation by the rest of its chain's limits, and store its limits.

        Of two threads that continue the same one, each sees the limits of the other.

        Args:
            thread_id: The thread.
            bounds: Its bounds, and the usage of its chain.

        Returns:
            Its limits.

        Source: decision 80.
        """
        ...

    # Queries

    async def get_thread(self, thread_id: str) -> ThreadRecord:
        """Return a thread's row.

        Raises:
            ThreadNotFound: No thread has this id.
        """
        ...

    async def get_result(self, thread_id: str) -> object:
        """Return a thread's result; None if it has none yet.

        Raises:
            ThreadNotFound: No thread has this id.
            StateError: The result is damaged.
        """
        ...

    async def list_active(self) -> tuple[ThreadRecord, ...]:
        """List the threads that have not ended, oldest first."""
        ...

    async def list_children(self, parent_id: str) -> tuple[ThreadRecord, ...]:
        """List the threads that a thread has started, oldest first."""
        ...

    async def list_threads(
        self, *, limit: int = 50, offset: int = 0, after: str | None = None
    ) -> tuple[ThreadRecord, ...]:
        """List threads of every status, newest first; `after` a thread, those before it in time."""
        ...

    async def list_runs(self, *, limit: int = 50, offset: int = 0) -> tuple[ThreadRecord, ...]:
        """List the runs of graphs, newest first."""
        ...

    async def list_died(self) -> tuple[ThreadRecord, ...]:
        """List the directives' threads and graphs' runs whose process died, oldest first.

        Children are left out, because their parents start them again; so are threads that were
        stopped, and threads that another one continues or has continued to its end.
        """
        ...

    async def count_threads(self, *, only_runs: bool = False) -> int:
        """Return the number of threads, or of runs of graphs."""
        ...

    async def count_open(self, labels: Mapping[str, str]) -> int:
        """Return the number of threads without a parent that have labels and have not ended.

        Raises:
            ValueError: A name isn't one of a label.
        """
        ...

    async def sum_costs(
        self, by: str, since: str | None, labels: Mapping[str, str]
    ) -> tuple[CostSum, ...]:
        """Sum what threads have cost, each without its children, the dearest first.

        Args:
            by: One of `COST_GROUPS`: `directive`, `model`, `day`, `label` or `label:NAME`.
            since: The time of registration, as rows have it, from which threads count.
            labels: The labels that a thread must have.

        Raises:
            ValueError: There is no such group.
        """
        ...

    async def find_by_prefix(self, prefix: str, *, limit: int = 9) -> tuple[ThreadRecord, ...]:
        """List the threads whose id begins with a prefix, an exact match first."""
        ...

    async def find_by_suffix(self, suffix: str, *, limit: int = 9) -> tuple[ThreadRecord, ...]:
        """List the threads whose id ends with a suffix, the newest first."""
        ...

    async def list_tree(
        self, thread_id: str, *, and_after: bool = False
    ) -> tuple[ThreadRecord, ...]:
        """List a thread and its subtree, oldest first; nothing if the thread doesn't exist.

        Args:
            thread_id: The thread.
            and_after: Whether to include the continuations of threads that were handed off.
        """
        ...

    async def processes_of(self, thread_id: str) -> tuple[ProcessId, ...]:
        """List the processes that run, or have run, only threads to kill with this one."""
        ...

    async def processes_beside(self, thread_id: str) -> tuple[ProcessId, ...]:
        """List the processes of running threads that aren't killed with this one."""
        ...

    async def is_below(self, thread_id: str, ancestor_id: str) -> bool:
        """Return whether a thread is in the subtree of another one, or is that one."""
        ...

    async def pending_requests(self, owner: ProcessId | None = None) -> tuple[ThreadRecord, ...]:
        """List the threads of a process (this one) that were asked to stop or hand off."""
        ...

    async def get_chain(self, thread_id: str) -> tuple[ThreadRecord, ...]:
        """List the chain of continuations that a thread belongs to, from its first thread on."""
        ...

    async def last_of(self, thread_id: str) -> str:
        """Return the id of the last continuation of a thread that was handed off, else its own."""
        ...

    async def list_following(self, thread_id: str) -> tuple[ThreadRecord, ...]:
        """List the continuations of a thread, oldest first."""
        ...
