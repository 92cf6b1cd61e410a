"""Directives and graphs on a node: their start, their events, and what they leave.

Source: docs/design/remote.md#on-the-node; decisions 67 to 74.
"""

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
from attrs import evolve

from ryecore.actions.targets.handed_runs import HandedRun
from ryecore.errors import RyeError, StateError, ThreadConflict
from ryecore.frozen import frozen
from ryecore.graph.run import GraphRun
from ryecore.node.content import CallerContent
from ryecore.node.events import EventLog
from ryecore.node.hosts import Host
from ryecore.node.problems import NodeProblem
from ryecore.policy import CallContext
from ryecore.policy.budget import Amount
from ryecore.policy.limits import Limits
from ryecore.policy.reports import REPORT_TYPES
from ryecore.remote.protocol.error_documents import write_error
from ryecore.remote.protocol.models import ExecuteBody, RunStatus
from ryecore.remote.protocol.reports import (
    MAX_EARLIER,
    Change,
    EarlierThread,
    ReportedFile,
    TranscriptHead,
)
from ryecore.runs.request import parse_limits
from ryecore.rye import Rye
from ryecore.state.model import Cost
from ryecore.state.records import find_run_key
from ryecore.state.thread_folders import find_thread_files
from ryecore.state.waiting import run_in_thread
from ryecore.threads.thread import Thread

if TYPE_CHECKING:
    from ryecore.actions.reports import ThreadReport
    from ryecore.threads.tree_node import TreeNode

__all__ = [
    "Outcome",
    "Run",
    "follow",
    "has_thread",
    "id_of",
    "limits_of",
    "outcome_of_rows",
    "resume",
    "start",
    "thread_outcome",
]

_MAX_KEY: Final = 200
_MAX_ROWS: Final = 1000
_LAST_EVENTS_S: Final = 5.0
"""How long the last events of a run may take after its end."""

_STATUSES: Final[Mapping[str, RunStatus]] = {
    "completed": "completed",
    "completed_with_errors": "completed",
    "continued": "completed",
    "cancelled": "cancelled",
    "killed": "killed",
}


@frozen(slots=False)
class Outcome:
    """How a run ended.

    Attributes:
        status: How it ended.
        result: The result or the error, as the same call answers locally.
        cost: What it and all below it cost.
        assumed: Whether a part of the cost is assumed, because something died.
        node_thread_id: The thread that ended last; None for a tool's run.
        run_key: The public key, in PEM, that signed its records.
        transcript: The end of its transcript.
        files: Its files, stored as objects of the caller.
        earlier: The threads of its chain before that one, with their files.
        changes: The project files that the run changed; None where that wasn't asked for.
    """

    status: RunStatus
    result: Mapping[str, Any]
    cost: Cost = Cost()
    assumed: bool = False
    node_thread_id: str | None = None
    run_key: str | None = None
    transcript: TranscriptHead | None = None
    files: tuple[ReportedFile, ...] = ()
    changes: tuple[Change, ...] | None = None
    earlier: tuple[EarlierThread, ...] = ()

    @property
    def digests(self) -> frozenset[str]:
        """The names of the objects that hold its files and changes."""
        listed = [self.files, *(one.files for one in self.earlier)]
        found = {one.sha256 for files in listed for one in files}
        return frozenset(found | {one.sha256 for one in self.changes or () if one.sha256})


Run = Thread | GraphRun | HandedRun


def id_of(run: Run) -> str:
    """Return the id of a run's thread."""
    return run.run_id if isinstance(run, GraphRun) else run.thread_id


async def has_thread(host: Host, item_id: str, ctx: CallContext) -> bool:
    """Return whether an item runs in a thread of ryecore: a directive, or a graph.

    A tool that can't be executed has none; its execution says why.
    """
    if item_id.startswith("directive:"):
        return True
    known = host.graphs.get(item_id)
    if known is None:
        try:
            trace = await host.rye.trace(item_id, ctx=ctx)
        except RyeError:
            return False
        known = host.graphs[item_id] = trace.chain.is_own_process
    return known


# Start


async def start(
    rye: Rye,
    body: ExecuteBody,
    ctx: CallContext,
    max_spend_microcents: int | None,
    attempt: int = 0,
) -> Run:
    """Start a run, or find the one that the same attempt of the same request started before.

    Raises:
        RyeError: Nothing runs.
    """
    limits = limits_of(body, max_spend_microcents)
    key = _start_key(body.thread_id, attempt)
    if body.thread == "fork":
        return await rye.start(
            body.item_id,
            body.parameters,
            model=body.model,
            limits=limits,
            idempotency_key=key,
            ctx=ctx,
        )
    return await rye.graphs.start(
        body.item_id, body.parameters, limits=limits, idempotency_key=key, ctx=ctx
    )


async def resume(
    rye: Rye, thread_id: str, ctx: CallContext, *, is_graph: bool
) -> "Run | ThreadReport | None":
    """Resume what the node's last process left, unless it had ended by then.

    Args:
        rye: The Rye of its space.
        thread_id: The thread that the node noted last; others may have resumed it since.
        ctx: The caller.
        is_graph: Whether it is a graph's run.

    Returns:
        The run that resumes it; the report of the thread that had ended; or None where none had
        begun.

    Raises:
        RyeError: It can't be resumed.
    """
    refused: StateError | None = None
    for one in reversed(await _resumed(rye, thread_id)):
        report = await rye.threads.show(one)
        if not _was_interrupted(report):
            return report
        try:
            if is_graph:
                return await rye.graphs.start_resume(one, ctx=ctx)
            return await rye.threads.start_resume(one, ctx=ctx)
        except ThreadConflict:
            raise
        except StateError as problem:  # it ended before it began: the one before it is resumed
            refused = None if report.record.transcript_head is None else refused or problem
    if refused is not None:
        raise refused
    return None


async def _resumed(rye: Rye, first_id: str) -> tuple[str, ...]:
    """Return a thread and those that continue it, each resuming the one before it."""
    rows = await rye.threads.list(all=True, limit=_MAX_ROWS)
    following = {row.continuation_of: row.thread_id for row in reversed(rows) if row.chain_root_id}
    chain = [first_id]
    while (after := following.get(chain[-1])) is not None and after not in chain:
        chain.append(after)
    return tuple(chain)


def _was_interrupted(report: "ThreadReport") -> bool:
    """Return whether a thread ended with its process, and not by its own work."""
    result = report.result
    has_died = isinstance(result, Mapping) and result.get("died") is True
    return report.status == "cancelled" or (report.status == "error" and has_died)


def _start_key(thread_id: str, attempt: int) -> str:
    key = f"remote/{thread_id}" + (f"#{attempt}" if attempt else "")  # no id has this sign
    if len(key) <= _MAX_KEY:
        return key
    return f"remote/{hashlib.sha256(key.encode()).hexdigest()}"


def limits_of(body: ExecuteBody, max_spend_microcents: int | None) -> Limits:
    """Return the limits of a request within its ceiling and the caller's quota."""
    limits = parse_limits(body.limits)
    if body.ceiling is not None:
        tokens, spend = body.ceiling.tokens, body.ceiling.spend_microcents
        limits = limits.within(Limits(tokens=tokens, spend_usd=Decimal(f"{spend}e-8")))
    if max_spend_microcents is not None:
        limits = limits.within(Limits(spend_usd=Decimal(f"{max_spend_microcents}e-8")))
    return limits


# Events


async def follow(
    rye: Rye,
    run: Run,
    log: EventLog,
    *,
    after: int = 0,
    begins: Callable[[], Awaitable[None]] | None = None,
) -> Mapping[str, Any] | RyeError:
    """Wait for the end of a run, and log its events and its tree meanwhile.

    Args:
        rye: The Rye of its space, or of its state.
        run: The run.
        log: Where to log them.
        after: How many of its first events are logged already.
        begins: Awaited as its first event comes. A run without events, as of a tool that is no
            graph, has no tree then; by default the tree is logged from the beginning.

    Returns:
        Its result; or the error, where its end couldn't be written.
    """
    logged, begun = anyio.Event(), anyio.Event()

    async def begin() -> None:
        if begins is not None and not begun.is_set():
            await begins()
        begun.set()

    if begins is None:
        begun.set()
    done: Mapping[str, Any] | RyeError = {}
    async with anyio.create_task_group() as group:
        group.start_soon(_log_events, rye, run, log, logged, after, begin)
        group.start_soon(_log_tree, rye, run, log, begun)
        try:
            done = (await run.result()).to_dict()
        except RyeError as error:
            done = error
        with anyio.move_on_after(_LAST_EVENTS_S):
            await logged.wait()
        group.cancel_scope.cancel()
    if begun.is_set():
        with suppress(RyeError):
            log.add_tree((await rye.threads.tree(id_of(run))).to_dict())
    return done


async def _log_events(
    rye: Rye,
    run: Run,
    log: EventLog,
    logged: anyio.Event,
    after: int,
    begin: Callable[[], Awaitable[None]],
) -> None:
    """Log the events of a run and of those that it is handed off to; a failure isn't the run's."""
    with suppress(RyeError):
        following: str | None = id_of(run)
        while following is not None:
            async with aclosing(run.events()) as events:
                async for event in events:
                    if event.type in REPORT_TYPES:  # which the run's caller logs, also from below
                        continue
                    await begin()
                    if after:
                        after -= 1
                        continue
                    log.add("run", event.to_dict())
            following = (await run.record()).continuation_thread_id
            if following is None:
                break
            if isinstance(run, HandedRun):
                run = rye.cluster.handed.find(following, run.item_id)
            else:
                run = await rye.threads.thread(following)
    logged.set()


async def _log_tree(rye: Rye, run: Run, log: EventLog, begun: anyio.Event) -> None:
    def draw(tree: "TreeNode") -> None:
        log.add_tree(tree.to_dict())

    await begun.wait()
    with suppress(RyeError):
        await rye.threads.watch(id_of(run), draw)


# The end


async def thread_outcome(
    host: Host, last_id: str, done: Mapping[str, Any] | RyeError, content: CallerContent
) -> Outcome:
    """Return the outcome of a run in threads, and store the files of its chain.

    Args:
        host: Where it ran.
        last_id: The thread that was started last.
        done: Its result.
        content: The caller's objects.
    """
    rye = host.rye
    if not isinstance(done, RyeError):  # another one, where it was handed off
        last_id = str(done.get("thread_id") or last_id)
    last = await rye.threads.show(last_id)
    chain = last.chain or (last_id,)
    cost, assumed = await cost_of_chain(rye, chain)
    key = await run_in_thread(find_run_key, host.space.user / ".ai")
    before = [await rye.threads.show(one) for one in chain if one != last.thread_id]
    files: tuple[ReportedFile, ...] = ()
    earlier: list[EarlierThread] = []
    with suppress(NodeProblem, OSError):  # without room, the result and the cost still count
        files = await run_in_thread(_store_files, host, last, content)
        for one in before[-MAX_EARLIER:]:
            found = await run_in_thread(_store_files, host, one, content)
            earlier.append(EarlierThread(one.thread_id, _head_of(one), found))
    return Outcome(
        "error" if isinstance(done, RyeError) else _STATUSES.get(last.status, "error"),
        write_error(done) if isinstance(done, RyeError) else done,
        cost,
        assumed,
        last.thread_id,
        None if key is None else key.public.pem.decode(),
        _head_of(last),
        files,
        earlier=tuple(earlier),
    )


async def outcome_of_rows(rye: Rye, run_id: str) -> Outcome:
    """Return the outcome of a run in a queue as its rows have it, without its files.

    Args:
        rye: An open Rye of the shared state.
        run_id: The run, or the first one of its chain.

    Raises:
        StateError: The state can't be reached.
    """
    report = await rye.threads.show(run_id)
    while (last_id := report.record.continuation_thread_id) is not None:
        report = await rye.threads.show(last_id)
    result = report.result if isinstance(report.result, Mapping) else {}
    outcome = Outcome(_STATUSES.get(report.status, "error"), result)
    if report.record.transcript_head is None:
        return outcome
    cost, assumed = await cost_of_chain(rye, report.chain or (run_id,))
    return evolve(outcome, cost=cost, assumed=assumed, node_thread_id=report.thread_id)


def _head_of(report: "ThreadReport") -> TranscriptHead | None:
    head = report.record.transcript_head
    return None if head is None else TranscriptHead(*head)


async def cost_of_chain(rye: Rye, chain: Sequence[str]) -> tuple[Cost, bool]:
    """Return the cost of a chain of threads and all below them, and whether a part is assumed.

    The ledger counts; the rows say how many of the tokens were read.
    """
    trees = [await rye.threads.tree(thread_id) for thread_id in chain]
    total, counted, assumed = Cost(), Amount(), False
    for thread_id in {node.thread_id: None for tree in trees for node in tree.walk()}:
        row = (await rye.threads.show(thread_id)).record.cost
        total = Cost(
            total.turns + row.turns,
            total.input_tokens + row.input_tokens,
            total.output_tokens + row.output_tokens,
            total.spend_microcents + row.spend_microcents,
            total.estimated or row.estimated,
            total.cached_tokens + row.cached_tokens,
            total.unpriced + row.unpriced,
            total.cache_saved_microcents + row.cache_saved_microcents,
        )
        with suppress(StateError):  # a tool's thread has no account
            charges = await rye.threads.charges(thread_id)
            counted += sum((one.actual for one in charges), start=Amount())
            assumed = assumed or any(one.mark == "assumed" for one in charges)
    more_tokens = max(counted.tokens - total.tokens, 0)
    total = evolve(
        total,
        input_tokens=total.input_tokens + more_tokens,
        spend_microcents=max(counted.spend_microcents, total.spend_microcents),
    )
    return total, assumed


def _store_files(
    host: Host, report: "ThreadReport", content: CallerContent
) -> tuple[ReportedFile, ...]:
    found = find_thread_files(host.space.project / ".ai", report.thread_id)
    return tuple(_store_file(name, path, content) for name, path in found.items())


def _store_file(name: str, path: Path, content: CallerContent) -> ReportedFile:
    sha256 = content.put(path)
    return ReportedFile(name, sha256, content.size_of(sha256) or 0)
