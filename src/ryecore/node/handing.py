"""Runs that a node hands to the workers of a queue, in a state that both share.

The node keeps the caller's request, its id, its events and the signed report; who runs it, and what
becomes of it when that one dies, the rows of the shared state tell, as of each run of a queue.

Source: docs/design/queues.md#runs-of-a-node; ADR 047.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import anyio
from attrs import evolve

from ryecore.actions.targets.handed_runs import HandedRun, HandedRuns
from ryecore.errors import RyeError, StateError, StateUnreachable
from ryecore.items.refs import ItemRef
from ryecore.node.content import CallerContent, NodeContent
from ryecore.node.execution import (
    LiveRun,
    call_id_of_run,
    context_of,
    failed_outcome,
    stopped_status,
)
from ryecore.node.hosts import snapshot_missing
from ryecore.node.outcome_documents import read_outcome
from ryecore.node.problems import NodeProblem, refusal
from ryecore.node.run_table import RunRow, RunTable
from ryecore.node.threads import Outcome, follow, limits_of, outcome_of_rows
from ryecore.policy import CallContext
from ryecore.remote.protocol.error_documents import write_error
from ryecore.remote.protocol.models import ExecuteBody
from ryecore.remote.travelling import put_list
from ryecore.runs.queued_run import QueuedSpace
from ryecore.runs.request import RunRequest
from ryecore.rye import Rye
from ryecore.state.object_store import ObjectStore
from ryecore.state.waiting import run_in_thread

__all__ = ["HandingOver"]

_log: Final = logging.getLogger("ryecore.node")
_CHUNK_BYTES: Final = 1024 * 1024
_RETRY_S: Final = 1.0
_NO_SECRETS: Final = "This node hands its runs to workers, which can't open secrets that travel."
_INSTEAD: Final = (
    "Take `secrets` out of the remote's entry in remotes.yaml, and let the tool read the secret "
    "from a file that the operator puts on the workers' machines; or use a node without workers."
)


class HandingOver:
    """Hands runs to the workers of a queue, and waits for their outcomes.

    Args:
        rye: An open Rye with the shared state.
        queue: The name of the queue.
        node: The fingerprint of the node.
        content: What the callers have pushed.
        table: The runs of the node.
        hold: Holds what a run may spend.
    """

    def __init__(
        self,
        rye: Rye,
        queue: str,
        node: str,
        content: NodeContent,
        table: RunTable,
        hold: Callable[[LiveRun], Awaitable[None]],
    ) -> None:
        self._rye = rye
        self._queue = queue
        self._node = node
        self._content = content
        self._table = table
        self._hold = hold

    @property
    def _handed(self) -> HandedRuns:
        return self._rye.cluster.handed

    def refuse(self, body: ExecuteBody) -> None:
        """Refuse a request that no worker can carry out.

        Raises:
            NodeProblem: It has an envelope.
        """
        if body.envelope is not None:
            raise refusal(
                "invalid",
                _NO_SECRETS,
                next_step=_INSTEAD,
            )

    async def perform(self, live: LiveRun) -> Outcome:
        """Have a run executed to its end. What goes wrong is its outcome."""
        try:
            return await self._perform(live)
        except (NodeProblem, RyeError, OSError) as problem:
            return failed_outcome(live.row, problem)

    async def ended(self, row: RunRow) -> None:
        """Remove what is kept of a run for no one but this node, as its end is written."""
        if row.handed_id is None or row.report is None:
            return
        try:
            await self._handed.forget(row.handed_id)
        except RyeError as error:
            _log.warning("What %s has sent can't be removed: %s", row.handed_id, error)

    async def _perform(self, live: LiveRun) -> Outcome:
        row = live.row
        if row.handed_id is None:
            if row.body.thread == "inline":  # perhaps a graph, which may spend
                await self._hold(live)
                await self._table.bound(row.caller, row.thread_id, live.max_spend_microcents)
            await self._table.synced()  # nothing runs before the row is durable
            run = await self._put(live)
            await self._table.hand(row.caller, row.thread_id, run.thread_id)
            live.row = evolve(live.row, handed_id=run.thread_id)
        else:
            run = self._handed.find(row.handed_id, row.body.item_id)
        live.handle = run
        if live.row.stop == "kill":
            await run.kill(grace_s=0.0)
        elif live.row.stop is not None or live.cancellation.cancelled:
            await run.cancel()
        await self._follow(run, live)
        outcome = await self._outcome(live, run)
        if outcome.status == "cancelled":
            return evolve(outcome, status=stopped_status(live.row))
        return outcome

    async def _follow(self, run: HandedRun, live: LiveRun) -> None:
        """Log the events of a run until its end, also where the state is away for a while."""
        begins = partial(self._begin, run, live)
        if live.row.body.thread == "fork":
            await begins()
        while True:
            after = live.log.run_events
            done = await follow(self._rye, run, live.log, after=after, begins=begins)
            if not isinstance(done, StateUnreachable):
                return
            await anyio.sleep(_RETRY_S)

    async def _begin(self, run: HandedRun, live: LiveRun) -> None:
        """Note that a run is a thread, or a graph's: it has a log and a tree."""
        row = live.row
        if row.node_thread_id is None:
            await self._table.begin(row.caller, row.thread_id, run.thread_id)
            live.row = evolve(live.row, node_thread_id=run.thread_id)
            status = {"status": "running", "node_thread_id": run.thread_id}
            live.log.add("status", status)

    async def _put(self, live: LiveRun) -> HandedRun:
        """Put a run into the queue, or find it there, with the files that it runs in."""
        caller, body = live.caller, live.row.body
        content = self._content.of(caller)
        objects = await self._handed.snapshots(caller.fingerprint)
        await run_in_thread(_store_snapshot, content, body.snapshot, objects)
        ctx = evolve(context_of(live), call_id=call_id_of_run(live.row))
        request = self._request(live, ctx)
        space = QueuedSpace(caller.key.pem.decode(), caller.trust)
        return await self._handed.put(request, ctx, body.snapshot, space)

    def _request(self, live: LiveRun, ctx: CallContext) -> RunRequest:
        row, body = live.row, live.row.body
        request = RunRequest(
            ItemRef.parse(body.item_id),
            body.parameters,
            limits_of(body, live.max_spend_microcents),
            body.model,
            body.timeout_s,
            collect=body.collect,
            queue=self._queue,
        )
        key = "/".join(("node", self._node, row.caller, row.created_at, row.thread_id))
        return request.with_key(key, ctx.capabilities)

    async def _outcome(self, live: LiveRun, run: HandedRun) -> Outcome:
        """Wait for what the worker tells, and fetch the files of it."""
        while True:
            try:
                told = await self._handed.outcome(run.thread_id)
                break
            except StateUnreachable:
                await anyio.sleep(_RETRY_S)
        if not told:
            return await outcome_of_rows(self._rye, run.thread_id)
        try:
            outcome = read_outcome(told)
        except StateError as problem:  # the rows still tell what it cost
            outcome = await outcome_of_rows(self._rye, run.thread_id)
            result = write_error(problem.during(live.row.body.item_id))
            return evolve(outcome, status="error", result=result)
        if outcome.digests:
            objects = await self._handed.objects(run.thread_id)
            content = self._content.of(live.caller)
            try:
                await run_in_thread(_fetch, objects, outcome.digests, content)
            except (NodeProblem, OSError) as problem:
                if outcome.changes:
                    failed = failed_outcome(live.row, problem)
                    outcome = evolve(outcome, status="error", result=failed.result)
                # Without room, the result and the cost still count.
                return evolve(outcome, files=(), earlier=(), changes=None)
        return outcome


def _store_snapshot(content: CallerContent, snapshot_id: str, objects: ObjectStore) -> None:
    """Store a snapshot and its objects where workers read them, as far as they aren't there."""
    snapshot = content.snapshot(snapshot_id)
    if snapshot is None:
        raise snapshot_missing()
    put_list(objects, snapshot)
    for digest in objects.missing({one.sha256 for one in snapshot.files}):
        with content.open(digest) as file:
            objects.put(iter(partial(file.read, _CHUNK_BYTES), b""), sha256=digest)
    objects.put(snapshot.to_bytes(), sha256=snapshot.id)


def _fetch(objects: ObjectStore, digests: frozenset[str], content: CallerContent) -> None:
    for digest in digests:
        if content.size_of(digest) is None:
            content.put(objects.read(digest))
