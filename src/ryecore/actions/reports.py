"""The report of a thread: its row, its result and its log."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from attrs import evolve, field

from ryecore.convert.money import write_usd
from ryecore.display.text import Rendered, StyledText
from ryecore.errors import InputError
from ryecore.frozen import frozen
from ryecore.lillux.processes import current_process
from ryecore.state.approvals import approvals_by_thread
from ryecore.state.model import ThreadRecord, ThreadRecords
from ryecore.state.owners import can_be_looked_at, host_name

if TYPE_CHECKING:
    from ryecore.state.store import ThreadStore
    from ryecore.state.transcript_report import TranscriptReport
    from ryecore.threads.service import ThreadService
    from ryecore.threads.tree_node import TreeNode

__all__ = ["ThreadReport", "check_page", "list_threads", "read_log", "verify_thread"]

_MAX_OFFSET: Final = 2**31
_LOOK_AT_LOG_S: Final = 0.5


@frozen(repr=False)
class ThreadReport(Rendered):
    """The report of a thread: its row, result and relatives.

    Attributes:
        record: Its row in the registry.
        result: Its result, as `rye_execute` returns it; None while it runs.
        folder: Its folder below `.ai/state/threads`; None where this machine has none.
        children: The threads that it has started, oldest first.
        chain: The ids of its chain of continuations, its own included.
        assumed_spend_microcents: The part of its spend that is assumed, because the real cost
            isn't known, in units of 1e-8 USD.
        on_node: What its node says of it, with the threads below it there; None unless it runs
            on a node.
        machine: What runs its process, or has run it, where that isn't this machine or the state is
            shared: the name of the machine, else `another machine` or `another container`.
        resumed_by: The ids of the threads that resumed it after its process died, oldest first.
    """

    record: ThreadRecord
    result: object = field(repr=False)
    folder: Path | None
    children: tuple[ThreadRecord, ...] = ()
    chain: tuple[str, ...] = ()
    assumed_spend_microcents: int = 0
    on_node: "TreeNode | None" = field(default=None, repr=False)
    machine: str | None = None
    resumed_by: tuple[str, ...] = ()

    @classmethod
    async def of(cls, store: "ThreadStore", record: ThreadRecord) -> Self:
        """Make the report of a thread from its row."""
        registry, thread_id = store.registry, record.thread_id
        on_node = None
        if record.place is not None and not record.ended:
            from ryecore.threads.remote_tree import read_tree  # noqa: PLC0415 - for nodes

            on_node = read_tree(store.node_files(thread_id))
        charges = await store.ledger.charges(thread_id)
        children = await registry.list_children(thread_id)
        record, *below = await _with_approvals(store, (record, *children))
        result = await registry.get_result(thread_id)
        has_died = isinstance(result, Mapping) and result.get("died") is True
        return cls(
            record,
            result,
            store.found_folder(thread_id),
            tuple(below),
            tuple(one.thread_id for one in await registry.get_chain(thread_id)),
            sum(one.actual.spend_microcents for one in charges if one.mark == "assumed"),
            on_node,
            await _machine_of(store, record),
            tuple(one.thread_id for one in await registry.list_following(thread_id))
            if has_died
            else (),
        )

    @property
    def thread_id(self) -> str:
        """Its id."""
        return self.record.thread_id

    @property
    def status(self) -> str:
        """Its status: created, running, completed, error, cancelled, continued or killed."""
        return self.record.status

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.record.ended

    @property
    def data(self) -> object:
        """The data that its tool returned; None without a result."""
        return self.result.get("data") if isinstance(self.result, Mapping) else None

    @property
    def error(self) -> str | None:
        """The reason for its failure; None where it didn't fail."""
        error = self.result.get("error") if isinstance(self.result, Mapping) else None
        return str(error) if error is not None else None

    def to_dict(self) -> dict[str, object]:
        """Return the report as a JSON-ready object."""
        limits, on_node = self.record.limits, self.on_node
        use = None
        if on_node is not None:
            spend = write_usd(on_node.spend_microcents)
            use = {"turns": on_node.turns, "tokens": on_node.tokens, "spend": spend}
        return {
            **self.record.to_dict(),
            "machine": self.machine,
            "limits": None if limits is None else dict(limits),
            "children": [one.thread_id for one in self.children],
            "chain": list(self.chain),
            "resumed_by": list(self.resumed_by),
            "assumed_spend": write_usd(self.assumed_spend_microcents),
            "on_node": use,
            "folder": None if self.folder is None else str(self.folder),
            "result": self.result,
        }

    def render(self) -> StyledText:
        """Render the thread for a terminal or a notebook."""
        from ryecore.threads.rendering import render_thread  # noqa: PLC0415 - only to be shown

        return render_thread(
            self.record,
            self.result,
            self.folder,
            machine=self.machine,
            children=self.children,
            chain=self.chain,
            resumed_by=self.resumed_by,
            assumed_spend_microcents=self.assumed_spend_microcents,
            on_node=self.on_node,
        )

    def __repr__(self) -> str:
        return f"ThreadReport({self.thread_id!r}, {self.status}, {self.record.item_id!r})"


async def _machine_of(store: "ThreadStore", record: ThreadRecord) -> str | None:
    """Return what runs or ran a thread's process, where that may not be this machine."""
    owner, here = record.owner, current_process()
    if owner is None:
        is_known = record.host == host_name() and store.queue is None
        return None if is_known else record.host
    if can_be_looked_at(owner, here):
        return None
    if record.host is not None:
        return record.host
    for worker in () if store.queue is None else await store.queue.workers():
        if worker.process == owner:
            return worker.host
    return "another container" if owner.boot_id == here.boot_id else "another machine"


async def list_threads(
    store: "ThreadStore", *, active_only: bool, limit: int, offset: int, after: str | None = None
) -> ThreadRecords:
    """List the active threads, or all threads, newest first; `after` a thread, the next ones."""
    if not active_only:
        found = await store.look_at_all(
            lambda registry: registry.list_threads(limit=limit + 1, offset=offset, after=after)
        )
        total = await store.registry.count_threads()
        page = await _with_approvals(store, found[:limit])
        return ThreadRecords(page, total, is_cut=len(found) > limit)
    active = await store.look_at_all(lambda registry: registry.list_active())
    rest = active if after is None else await _after(store, active, after)
    page = await _with_approvals(store, rest[offset : offset + limit])
    return ThreadRecords(page, len(active), is_cut=offset + limit < len(rest))


async def _with_approvals(
    store: "ThreadStore", records: Sequence[ThreadRecord]
) -> tuple[ThreadRecord, ...]:
    """Return the rows of threads with the calls that each waits for a person to approve."""
    if all(one.ended for one in records):
        return tuple(records)
    waiting = await approvals_by_thread(store.approvals)
    return tuple(
        evolve(one, approvals=waiting[one.thread_id]) if one.thread_id in waiting else one
        for one in records
    )


async def _after(
    store: "ThreadStore", active: tuple[ThreadRecord, ...], after: str
) -> tuple[ThreadRecord, ...]:
    """Return the active threads after one, which may have ended since it was listed."""
    for place, one in enumerate(active):
        if one.thread_id == after:
            return active[place + 1 :]
    last = await store.registry.get_thread(after)
    return tuple(one for one in active if one.created_at >= last.created_at)


async def verify_thread(
    service: "Callable[[], ThreadService]", store: "ThreadStore", thread_id: str
) -> "TranscriptReport":
    """Prove the transcript of a thread; that of its node, where one ran it."""
    report = await service().verify(thread_id)
    record = await store.registry.get_thread(thread_id)
    if record.place is None:
        return report
    from ryecore.remote.pull import prove  # noqa: PLC0415 - only for runs on nodes

    return await prove(store, record, report)


async def read_log(
    store: "ThreadStore", thread_id: str, offset: int, wait_s: float
) -> tuple[str, int]:
    """Read a thread's output from an offset in bytes, and return it with the offset after it.

    Without output, wait for it or for the thread's end, at most `wait_s` seconds.
    """
    if not wait_s:
        return await store.read_output(thread_id, offset)
    until = time.monotonic() + wait_s
    async with store.watch(thread_id) as watched:
        while True:
            has_ended = (await store.look(thread_id)).ended  # before the last look at the log
            text, after = await store.read_output(thread_id, offset)
            left_s = until - time.monotonic()
            if text or has_ended or left_s <= 0:
                return text, after
            # Writing to the log changes no entry of its folder.
            await watched.changed(min(left_s, _LOOK_AT_LOG_S))


def check_page(limit: int, offset: int) -> None:
    """Check the page of a list: a limit from 1 to 1,000, and an offset from 0."""
    if not 1 <= limit <= 1000 or not 0 <= offset <= _MAX_OFFSET:
        raise InputError(
            f"limit={limit}, offset={offset} can't be listed: a page has at most 1,000.",
            next_step="Pass a limit from 1 to 1000 and an offset from 0, and list page by page.",
        )
