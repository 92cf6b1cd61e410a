"""Runs: each request to execute an item becomes one run, however often it is sent.

Source: docs/design/remote.md#on-the-node; decisions 70 to 73.
"""

import hashlib
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any, Final, TypeVar

import anyio
import anyio.lowlevel
from attrs import evolve

from ryecore import __version__
from ryecore.convert.money import write_usd
from ryecore.display.text import dollars
from ryecore.errors import RyeError, StateError
from ryecore.items.signature import utc_now
from ryecore.lillux.keys import BoxKey, SigningKey
from ryecore.node.callers import Caller
from ryecore.node.content import NodeContent
from ryecore.node.events import EventLog, NodeEvent, RunEvents
from ryecore.node.execution import Execution, LiveRun, failed_outcome, open_secrets, stopped_outcome
from ryecore.node.gate import Admission
from ryecore.node.handing import HandingOver
from ryecore.node.hosts import HostOptions, HostPool, snapshot_missing
from ryecore.node.problems import NodeProblem, refusal
from ryecore.node.reported import is_brief, reported
from ryecore.node.run_table import RunRow, RunTable
from ryecore.node.spaces import remove_left_spaces
from ryecore.node.threads import Outcome
from ryecore.policy.budget import MOST
from ryecore.remote.protocol.models import (
    MAX_WAIT_S,
    CancelBody,
    ExecuteBody,
    RunState,
    is_thread_id,
)
from ryecore.remote.protocol.reports import RunReport, sign_report
from ryecore.runs.tasks import Tasks
from ryecore.rye import Rye
from ryecore.state.database import Database
from ryecore.state.waiting import run_in_thread

__all__ = ["NodeRuns"]

T = TypeVar("T")

_log: Final = logging.getLogger("ryecore.node")
_CELLS: Final = frozenset({("tool", "inline"), ("directive", "fork")})
_RETRY_S: Final = 2
_MAX_GRACE_S: Final = 30.0
_MAX_PAUSE_S: Final = 60.0
_NO_END: Final = "The end of the run %s can't be written yet: %s"
_FEW_RUNS: Final = 4
"""Among so many runs at once each begins a sync of its own; more runs share one as they wait."""


class NodeRuns:
    """The runs of a node.

    Args:
        key: The node's key, which signs reports.
        database: The node's database.
        content: The objects and snapshots of the callers.
        options: What the node gives to each Rye.
        max_runs: The most runs at once, of all callers.
        box_key: The key that opens envelopes; without it none is taken.
        find_caller: Finds a caller by its fingerprint, for runs of an earlier process.
        queue: An open Rye and the name of a queue of its state, whose workers run everything;
            None where this process does.
    """

    def __init__(
        self,
        key: SigningKey,
        database: Database,
        content: NodeContent,
        options: HostOptions,
        *,
        max_runs: int = 64,
        box_key: BoxKey | None = None,
        find_caller: Callable[[str], Caller | None] = lambda _: None,
        queue: tuple[Rye, str] | None = None,
    ) -> None:
        self._key = key
        self._table = RunTable(database)
        self._events = RunEvents(database, self._start_writing)
        self._content = content
        self._tasks = Tasks()
        self._box_key = box_key
        self._hosts = HostPool(content, self._tasks, options)
        self._execution = Execution(self._hosts, content, self._table, box_key, self._hold)
        self._handing: HandingOver | None = None
        if queue is not None:
            self._handing = HandingOver(
                *queue, key.public.fingerprint, content, self._table, self._hold
            )
        self._max_runs = max_runs
        self._find_caller = find_caller
        self._live: dict[tuple[str, str], LiveRun] = {}
        self._active: Counter[str] = Counter()  # the runs of each caller that have not ended
        self._starting = anyio.Lock(fast_acquire=True)

    async def begin(self) -> None:
        """Take new runs, and recover those that the last process left."""
        await self._tasks.open()
        self._tasks.start_soon(self._hosts.close_idle)
        left = await self._table.list_running()
        used = {(one.caller, one.space) for one in left if one.space is not None}
        await run_in_thread(remove_left_spaces, self._content.folder, used)
        for row in left:
            caller = self._find_caller(row.caller)
            if caller is None:
                error = StateError("The node's operator doesn't allow this caller any more.")
                try:
                    _, size_bytes = await self._end(row, failed_outcome(row, error))
                    self._content.of_fingerprint(row.caller).quota.count(size_bytes)
                except (RyeError, OSError) as problem:  # such as a full disk
                    _log.error(_NO_END, row.thread_id, problem)
                continue
            log = await self._events.reopen(row.caller, row.thread_id)
            self._carry_on(LiveRun(row, caller, log, row.max_spend_microcents, was_left=True))

    async def with_room(self, caller: Caller, work: Callable[[], T]) -> T:
        """Do work in a thread; idle spaces of the caller are removed if it lacks room."""
        return await self._hosts.with_room(caller.fingerprint, work)

    async def finish_tools(self, within_s: float) -> None:
        """Wait until the inline tools that run have ended, for so many seconds at most."""
        if self._handing is not None:  # their workers go on
            return
        with anyio.move_on_after(within_s):
            for live in tuple(self._live.values()):
                if live.row.body.thread == "inline":
                    await live.ended.wait()

    async def stop(self) -> None:
        """Cancel what runs, and wait until it has ended here. The next start recovers it."""
        await self._tasks.stop()

    async def aclose(self) -> None:
        """Stop, and leave what `begin` opened, in the same task."""
        await self._tasks.close()

    async def execute(
        self,
        caller: Caller,
        body: ExecuteBody,
        request: bytes,
        admission: Admission | None = None,
    ) -> RunState:
        """Start a run, or find the one that the same request started before.

        Args:
            caller: Who asks.
            body: The request.
            request: Its canonical form, without `wait_s`.
            admission: Its admission, whose nonce is written with the run; None without a nonce.

        Returns:
            Its state, once it has ended or `wait_s` has passed.

        Raises:
            NodeProblem: Nothing runs.
        """
        sha256 = hashlib.sha256(request).hexdigest()
        row = RunRow.of(caller.fingerprint, body, sha256)
        try:
            known = await self._start(caller, row, request.decode("ascii"), admission)
        except NodeProblem:
            found = await self._table.find(caller.fingerprint, body.thread_id)
            if found is None:
                raise
            known = found  # what refuses a new run doesn't refuse the answer of one that there is
        await anyio.lowlevel.checkpoint()  # the run comes first: what follows here can wait
        if admission is not None:
            await admission.remember()  # unless it was with the run
        if known.request_sha256 != sha256:
            raise refusal(
                "other_request",
                "Another request was made under this id.",
                next_step="Send this one under an id of its own.",
            )
        state = await self._state(known, body.wait_s)
        if state.report is None:  # who is told that a run has begun doesn't request it again
            with suppress(RyeError, OSError):  # the run waits for it too, and tells of a failure
                await self._table.synced()
        return state

    async def state(self, caller: Caller, thread_id: str, wait_s: float = 0.0) -> RunState:
        """Return the state of a caller's run, once it has ended or the time has passed.

        Raises:
            NodeProblem: The caller has no such run.
        """
        return await self._state(await self._find(caller, thread_id), wait_s)

    async def events(
        self, caller: Caller, thread_id: str, after: int = 0
    ) -> AsyncGenerator[NodeEvent]:
        """Yield the events of a caller's run behind an id, until it has ended.

        Raises:
            NodeProblem: The caller has no such run.
        """
        row = await self._find(caller, thread_id)
        live = self._live.get((row.caller, row.thread_id))
        log, last = None if live is None else live.log, after
        async with aclosing(self._events.follow(row.caller, row.thread_id, after, log)) as events:
            async for event in events:
                last = event.id
                yield event
        if last == 0:  # a tool's run has no event but its end, which is in its row
            row = await self._find(caller, thread_id)
            if row.report is not None:
                yield row.status_event

    async def cancel(self, caller: Caller, thread_id: str, body: CancelBody) -> RunState:
        """Ask a caller's run to stop. With `kill`, return once its processes have ended.

        Raises:
            NodeProblem: The caller has no such run.
        """
        row = await self._find(caller, thread_id)
        live = self._live.get((row.caller, row.thread_id))
        if live is None:
            return row.to_state()
        await self._table.ask_to_stop(row.caller, row.thread_id, kill=body.kill)
        is_kill = body.kill or live.row.stop == "kill"
        live.row = evolve(live.row, stop="kill" if is_kill else "cancel")
        grace_s = min(max(body.grace_s, 0.0), _MAX_GRACE_S)
        try:
            if live.handle is None:
                live.cancellation.cancel()
            elif body.kill:
                await live.handle.kill(grace_s=grace_s)
            else:
                await live.handle.cancel()
        except RyeError:  # it has ended meanwhile, or is stopped by its token
            live.cancellation.cancel()
        return await self._state(live.row, grace_s + 1.0 if body.kill else 0.0)

    async def _find(self, caller: Caller, thread_id: str) -> RunRow:
        row = await self._table.find(caller.fingerprint, thread_id)
        if row is None:
            raise refusal("not_found", "You have no run of this id here.")
        return row

    async def _state(self, row: RunRow, wait_s: float) -> RunState:
        live = self._live.get((row.caller, row.thread_id))
        if live is None:  # it has ended, perhaps since the row was read
            found = await self._table.find(row.caller, row.thread_id)
            return (found or row).to_state()
        if wait_s > 0:
            with anyio.move_on_after(min(wait_s, MAX_WAIT_S)):
                await live.ended.wait()
        return live.row.to_state()

    # Start

    async def _start(
        self, caller: Caller, row: RunRow, request: str, admission: Admission | None
    ) -> RunRow:
        """Start a run, or find the one that has its id.

        Raises:
            NodeProblem: Nothing was started. There may be one that has its id.
        """
        body = row.body
        self._check(body)
        content = self._content.of(caller)
        if self._hosts.has(caller, body.snapshot):  # then it is known, and found at once
            snapshot = content.snapshot(body.snapshot)
        else:
            snapshot = await run_in_thread(content.snapshot, body.snapshot)
            await run_in_thread(lambda: content.quota.used_bytes)  # counted before the loop charges
        if snapshot is None:
            raise snapshot_missing()
        async with self._starting:  # the quotas are checked and taken at once
            twin = self._live.get((caller.fingerprint, body.thread_id))
            if twin is not None:  # the same request came twice at once
                return twin.row
            self._check_number(caller)
            live = LiveRun(row, caller, self._events.begin(row.caller, row.thread_id))
            if body.thread == "fork":  # a tool spends nothing, unless it turns out to be a graph
                await self._hold(live)
            live.row = row = evolve(
                row,
                max_spend_microcents=live.max_spend_microcents,
                space=self._hosts.find_place(caller, body.snapshot, body.item_id),
            )
            content.quota.charge(len(request))
            is_new = False
            try:
                is_new = await self._table.insert(row, request, admission)
            finally:
                if not is_new:
                    content.quota.count(-len(request))
            if not is_new:  # its twin has ended already
                return await self._find(caller, body.thread_id)
            try:
                if len(self._live) < _FEW_RUNS:
                    self._table.begin_sync()  # while the run is prepared, which waits for it
            finally:
                self._carry_on(live)
        return row

    def _check(self, body: ExecuteBody) -> None:
        """Refuse a request that can't become a run."""
        if body.ryecore.partition(".")[0] != __version__.partition(".")[0]:
            raise refusal(
                "version",
                "This node runs another major version of ryecore.",
                detail=f"Here it is {__version__}, at the caller's end {body.ryecore:.40}.",
                next_step="Use the same major version at both ends.",
            )
        kind = body.item_id.partition(":")[0]
        if not is_thread_id(body.thread_id) or (kind, body.thread) not in _CELLS:
            raise refusal(
                "invalid",
                "The request can't become a run.",
                next_step='Send tool:ID with thread "inline", or directive:ID with "fork".',
            )
        for name, value in _numbers_of(body).items():
            if not 0 <= value <= MOST:
                raise refusal("invalid", f"{name} is {value}, not a number from 0 to 2^53.")
        if self._handing is not None:
            self._handing.refuse(body)
        open_secrets(body, self._box_key)

    def _check_number(self, caller: Caller) -> None:
        """Refuse more runs at once than the caller, or the node, may have."""
        running = self._active[caller.fingerprint]
        if running >= caller.max_runs:
            raise refusal(
                "too_many_runs",
                f"You have {running} runs at once here, and may have {caller.max_runs}.",
                next_step="Wait for one to end, or ask the node's operator for more.",
                retry_after_s=_RETRY_S,
            )
        if self._active.total() >= self._max_runs:
            raise refusal(
                "busy",
                "The node has as many runs as it takes.",
                next_step="Try again later.",
                retry_after_s=_RETRY_S,
            )

    async def _hold(self, live: LiveRun) -> None:
        """Hold what a run may spend of its caller's quota, where there is one.

        What other runs hold may not be spent by this one. A request whose ceiling is higher than
        what is left is refused; one without a ceiling may spend all that is left.
        """
        caller, ceiling = live.caller, live.row.body.ceiling
        wanted = None if ceiling is None else ceiling.spend_microcents
        live.max_spend_microcents = wanted
        if caller.max_spend_microcents is None:
            return
        spent = await self._table.spent_microcents(caller.fingerprint)
        held = sum(
            one.max_spend_microcents or 0
            for one in self._live.values()
            if one.caller.fingerprint == caller.fingerprint
            if one is not live and not one.ended.is_set()
        )
        left = max(caller.max_spend_microcents - spent - held, 0)
        if left == 0 or (wanted is not None and wanted > left):
            asked = "" if wanted is None else f", and this run may spend {dollars(wanted)}"
            raise refusal(
                "too_many_runs",
                f"You may spend {dollars(left)} more here{asked}. Running runs hold their limits.",
                detail=f"{write_usd(left):.4f} USD are left.",
                next_step="Pass a lower limit of spend, or ask the node's operator for more.",
                retry_after_s=_RETRY_S,
            )
        live.max_spend_microcents = left if wanted is None else wanted

    def _carry_on(self, live: LiveRun) -> None:
        """Start the tasks of a run."""
        self._live[live.row.caller, live.row.thread_id] = live
        self._active[live.row.caller] += 1
        self._tasks.start_soon(self._carry_out, live)

    def _start_writing(self, log: EventLog) -> None:
        self._tasks.start_soon(self._write_events, log)

    async def _write_events(self, log: EventLog) -> None:
        try:
            await log.write()
        except Exception as problem:  # of any kind: the run doesn't need its events
            _log.warning("The events of %s can't be written: %s", log.thread_id, problem)

    async def _carry_out(self, live: LiveRun) -> None:
        """Execute a run to its end, and report it. The task of one run; it raises nothing."""
        row, pause_s, size_bytes = live.row, 1.0, 0
        try:
            outcome = await self._perform(live)
            if not self._tasks.are_possible:  # the node ends, and the next start takes it up
                return
            while not live.row.report:
                try:
                    live.row, size_bytes = await self._end(live.row, outcome, live.log)
                except (RyeError, OSError) as problem:  # such as a full disk
                    _log.error(_NO_END, row.thread_id, problem)
                    await anyio.sleep(pause_s)
                    pause_s = min(pause_s * 2, _MAX_PAUSE_S)
        except Exception:  # of any kind: the node itself runs on, and its next start tries again
            _log.exception("The end of the run %s can't be written.", row.thread_id)
        finally:
            self._active[row.caller] -= 1
            live.ended.set()
            await anyio.lowlevel.cancel_shielded_checkpoint()  # who waits for it comes first
            live.log.close()
            try:
                self._content.of_fingerprint(row.caller).quota.count(size_bytes)
                await live.log.closed()
            finally:
                del self._live[row.caller, row.thread_id]
        if self._handing is not None:
            await self._handing.ended(live.row)

    async def _perform(self, live: LiveRun) -> Outcome:
        row = live.row
        try:
            if self._handing is not None:
                return await self._handing.perform(live)
            if row.stop is not None and row.space is None:
                return stopped_outcome(row)
            return await self._execution.perform(live)
        except Exception as problem:  # of any kind: its caller has to learn of it
            _log.exception("The run %s failed.", row.thread_id)
            return failed_outcome(live.row, problem)

    async def _end(
        self, row: RunRow, outcome: Outcome, log: EventLog | None = None
    ) -> tuple[RunRow, int]:
        """Sign the report of a run, and write its end, also to its log.

        Returns:
            Its row, and the bytes of its report.
        """
        if is_brief(outcome.result):
            report = self._sign(row, outcome)
        else:
            report = await run_in_thread(self._sign, row, outcome)
        spent = outcome.cost.spend_microcents
        ended = evolve(
            row,
            status=report["status"],
            report=report,
            node_thread_id=outcome.node_thread_id or row.node_thread_id,
        )
        size_bytes = await self._table.end(row.caller, row.thread_id, ended.status, report, spent)
        if log is not None and not log.is_empty:
            log.add("status", ended.end)
        return ended, size_bytes

    def _sign(self, row: RunRow, outcome: Outcome) -> Mapping[str, Any]:
        result = reported(outcome.result, row.body.item_id)
        does_fit = outcome.status != "completed" or result.get("status") != "error"
        report = RunReport(
            thread_id=row.thread_id,
            item_id=row.body.item_id,
            caller=row.caller,
            node=self._key.public.fingerprint,
            snapshot=row.body.snapshot,
            request_sha256=row.request_sha256,
            status=outcome.status if does_fit else "error",
            result=result,
            cost=outcome.cost,
            assumed=outcome.assumed,
            node_thread_id=outcome.node_thread_id or row.node_thread_id,
            run_key=outcome.run_key,
            transcript=outcome.transcript,
            files=outcome.files,
            changes=outcome.changes,
            created_at=row.created_at,
            ended_at=utc_now(),
            ryecore=__version__,
            earlier=outcome.earlier,
        )
        return sign_report(report, self._key)


def _numbers_of(body: ExecuteBody) -> Mapping[str, float]:
    """Return the numbers of a request, by name."""
    found: dict[str, float | None] = {"timeout_s": body.timeout_s, "deadline_s": body.deadline_s}
    if body.ceiling is not None:
        found["ceiling.spend_microcents"] = body.ceiling.spend_microcents
        found["ceiling.tokens"] = body.ceiling.tokens
    return {name: value for name, value in found.items() if value is not None}
