"""The lifecycle at home of a run on a node.

It is that of every run: a row, an account, a signed file and a log of its own. Its body is one
request to the node, and the wait for the node's report.

Source: docs/design/remote.md#at-home; decisions 70 to 74.
"""

import time
import uuid
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from itertools import count
from typing import Any, Final, Generic, TypeVar

import anyio
from typing_extensions import override

from ryecore.chain.model import ExecutionResult
from ryecore.convert.strict import WIRE
from ryecore.errors import RemoteError, RyeError, StateError, StateLocked, ThreadConflict
from ryecore.frozen import frozen
from ryecore.policy import CallContext
from ryecore.policy.budget import NOTHING, Amount
from ryecore.policy.cancelling import bounded_by, is_cancelled
from ryecore.remote.calls import check_report, own_version
from ryecore.remote.following import (
    ACCEPTED,
    REPORTED,
    REQUESTED,
    FollowedRun,
    RemoteRecorder,
    RequestRefused,
    unix_s,
)
from ryecore.remote.ports import Node
from ryecore.remote.protocol.models import ExecuteBody, RunState, read_answer
from ryecore.remote.protocol.reports import RunReport, read_report
from ryecore.remote.pull import pull_files
from ryecore.remote.spending import RemoteSpending
from ryecore.runs.host import RunHost
from ryecore.runs.lifecycle import RunLifecycle
from ryecore.runs.request import RunRequest, parse_limits
from ryecore.runs.supervisor import pass_on_requests
from ryecore.state.model import Cost, RemotePlace, Status, ThreadRecord
from ryecore.state.owners import LEASE_S
from ryecore.state.record_log import RecordLog, Recovery
from ryecore.state.thread_file import ThreadFile
from ryecore.threads.planner.planning import DirectivePlanner
from ryecore.threads.remote_tree import keep_tree

__all__ = ["FOLLOWED", "RemoteEnding", "RemoteLifecycle"]

ResultT = TypeVar("ResultT", bound=ExecutionResult)

FOLLOWED: Final[set[tuple[str, str]]] = set()
"""The runs that this process follows, each by its project's folder and its id."""

_UNLOCKED_WITHIN_S: Final = 10.0
_LOOK_AGAIN_S: Final = 0.05
_PULL_S: Final = 300.0
"""How long the files of a run may take to come home, in seconds."""

_MAX_SNAPSHOTS: Final = 3
"""How often a run is requested while the project changes before the node has its files."""

_GRACE_S: Final = 15.0
"""How long a node may take to report a run that it is asked to stop, in seconds."""


@frozen
class RemoteEnding:
    """How a run ended: its status, its result as JSON, and the code of its error."""

    status: Status
    result: Mapping[str, Any]


class RemoteLifecycle(RunLifecycle[RemoteEnding, ResultT], Generic[ResultT]):
    """The lifecycle of one run on a node; a directive's thread and a tool add what they ask for.

    Args:
        host: The host of runs.
        node: The node.
        planner: The planner of directives and of limits.
        request: The request.
        ctx: The caller.
    """

    _record: ThreadRecord
    _inputs: Mapping[str, Any]
    _held: frozenset[str] | None
    _item_hash: str

    def __init__(
        self,
        host: RunHost,
        node: Node,
        planner: DirectivePlanner,
        request: RunRequest,
        ctx: CallContext,
    ) -> None:
        super().__init__(host, request, ctx)
        self._node = node
        self._planner = planner
        self._recorder: RemoteRecorder | None = None
        self._spends: RemoteSpending | None = None
        self._followed: FollowedRun | None = None
        self._requests: list[ExecuteBody] = []
        self._is_adopted = False
        self._is_confirmed = True
        self._until: float | None = None
        self._asked_id = str(uuid.uuid4())
        """The run's id on the node; run ids at home are those of one project."""
        self.is_running = anyio.Event()
        """Set once the node has answered that it carries the run out."""

    @property
    @override
    def recorder(self) -> RemoteRecorder | None:
        return self._recorder

    @property
    def _log(self) -> RemoteRecorder:
        if self._recorder is None:
            raise RuntimeError("The log is opened before the run is requested.")
        return self._recorder

    @property
    def _spending(self) -> RemoteSpending | None:
        return self._spends

    @property
    def _deadline(self) -> float | None:
        """The time of the caller, or that of the limits and the lease of the node."""
        if self._is_adopted:
            return self._until
        deadline, duration_s = self._ctx.deadline, self._limits.duration_s
        if duration_s is None:
            return deadline
        until = self._started + float(duration_s) + LEASE_S
        return until if deadline is None else min(deadline, until)

    # Begin

    @abstractmethod
    def _ask(self, body: ExecuteBody) -> ExecuteBody:
        """Return the request with what this kind of run asks for."""

    @property
    def _ceiling(self) -> Amount:
        """The most that the run may spend."""
        return Amount(self._limits.spend_microcents or 0, self._limits.tokens or 0)

    async def _claim(self) -> int:
        """Claim the row, and write where the run is, in one transaction."""
        fence = await super()._claim()
        place = RemotePlace(self._node.remote, self._node.key.fingerprint)
        await self._store.registry.set_place(self.run_id, place, fence=fence)
        FOLLOWED.add(self._followed_key)
        return fence

    @property
    def _followed_key(self) -> tuple[str, str]:
        return (self._store.project, self.run_id)

    async def _open_log(self, record: ThreadRecord) -> None:
        store = self._store
        self._record = record
        capabilities = tuple(sorted(self._held or ()))
        self._file = self._thread_file(record, item_hash=self._item_hash, capabilities=capabilities)
        log = await store.open_log(self._file)
        self._recorder = RemoteRecorder(self.run_id, log, store.records, self._ctx.event_sink)
        started = {**self._file.to_dict(), "inputs": self._inputs, "remote": self._node.remote}
        self._recorder.append("thread_started", started)
        await self._recorder.commit()

    async def adopt(self, record: ThreadRecord) -> None:
        """Begin to follow a run whose follower died; raises ThreadConflict where another one does.

        Source: decision 71.
        """
        store = self._store = await self._host.open_store()
        self.run_id, self._is_adopted = record.thread_id, True
        if self._followed_key in FOLLOWED:
            raise ThreadConflict(
                f"Another Rye of this process follows {self.run_id}.",
                next_step=f"Wait for it: rye threads wait {self.run_id}",
                thread_id=self.run_id,
                state=record.status,
            )
        self._fence = fence = await store.registry.take_over(record.thread_id)
        FOLLOWED.add(self._followed_key)
        try:
            await self._read_log(record)
        except (anyio.get_cancelled_exc_class(), StateLocked):
            await self._forget()
            raise
        except BaseException as error:
            await self._give_up(error)
            raise
        self._host.supervisor.add(self.run_id, fence, self)
        pass_on_requests(record, self)
        self._host.running[self.run_id] = self

    async def _read_log(self, record: ThreadRecord) -> None:
        """Read the request of a run that another process began, and how far that was."""
        store = self._store
        log, recovery = await self._resume_log(record)
        self._recorder = RemoteRecorder(record.thread_id, log, store.records, None)
        self._recorder.head = recovery.head
        is_accepted = False
        async for one in store.records.read(record.thread_id):
            if one.type == REQUESTED:
                self._requests.append(read_answer(one.payload["body"], ExecuteBody))
            is_accepted = is_accepted or one.type == ACCEPTED
        self._file = _thread_file_of(await store.read_file(record.thread_id))
        self._record, self._inputs = record, {}
        self._limits = self._request.limits
        ceiling = (await store.ledger.account(record.thread_id)).ceiling
        if self._requests:
            body = self._requests[-1]
            followed = FollowedRun(
                self._node,
                body,
                self._recorder,
                record,
                self._ctx,
                show_tree=self._show_tree,
                is_accepted=is_accepted,
                is_sent=True,
            )
            self._followed, self.is_running = followed, followed.is_running
            self._limits = parse_limits(body.limits)
            self._until = _until(record, self._limits.duration_s, body.timeout_s, body.deadline_s)
            if body.ceiling is not None:
                ceiling = Amount(body.ceiling.spend_microcents, body.ceiling.tokens)
        self._spends = RemoteSpending(self.run_id, store.ledger, ceiling)

    async def _resume_log(self, record: ThreadRecord) -> tuple[RecordLog, Recovery]:
        """Open the log, which a process that is just being killed may still hold for a moment."""
        until = time.monotonic() + _UNLOCKED_WITHIN_S
        while True:
            try:
                return await self._store.records.resume(record.thread_id, record.transcript_head)
            except StateLocked:
                if time.monotonic() > until:
                    raise
            await anyio.sleep(_LOOK_AGAIN_S)

    # Run

    async def _run(self) -> RemoteEnding:
        tokens = (self.cancellation, self._ctx.cancellation)
        ending: RemoteEnding | None = None
        with bounded_by(*tokens, deadline=self._deadline):
            if not is_cancelled(*tokens):
                ending = await self._carry_out()
        if ending is not None:
            return ending
        if is_cancelled(*tokens):
            return await self._stopped_ending()
        if await self._is_nowhere():
            return self._unreported("The node couldn't be reached within the run's time.")
        ending = await self._stop_on_node(kill=False)
        why = "The node sent no report within the run's time."
        return ending or self._unreported(f"{why} What it may have spent is charged in full.")

    async def _carry_out(self) -> RemoteEnding:
        """Request the run, follow it, and read its report."""
        if self._followed is None and self._is_adopted:
            return await self._never_left()
        try:
            return await self._ended_by(await self._reported())
        except RequestRefused as refused:
            await self._free()
            raise refused.error from None

    async def _reported(self) -> RunState:
        """Request the run, unless another process has, and follow it to its report.

        Where the project changes before the node has its files, the run is requested anew.
        """
        if self._followed is not None:
            return await self._followed.follow(None)
        for tried in count(1):
            followed = self._followed = await self._make_request()
            self.is_running = followed.is_running
            try:
                return await followed.follow(await followed.request())
            except RequestRefused as refused:
                if refused.error.problem != "snapshot_missing" or tried == _MAX_SNAPSHOTS:
                    raise
        raise AssertionError("the loop has no end of its own")

    def _show_tree(self, tree: Mapping[str, Any]) -> None:
        """Keep what the node shows of its threads, for views of this and other processes."""
        with suppress(StateError):
            if keep_tree(self._store.node_files(self.run_id), tree):
                self._store.announce(self.run_id)

    async def _never_left(self) -> RemoteEnding:
        """Return the ending of a run whose process died before it sent the request."""
        await self._free()
        text = "Its process died before the request left: nothing ran, and nothing was spent."
        return RemoteEnding("error", self._error_result(text, "process"))

    async def _free(self) -> None:
        """Free what is held for a request that the node never got."""
        if self._spends is not None:
            if self._followed is None:  # its process died: there may be nothing to free
                await self._spends.hold()
            self._spends.free()

    async def _make_request(self) -> FollowedRun:
        """Hold the run's budget, and record the request: both before anything leaves."""
        ceiling = self._ceiling
        body = self._ask(
            ExecuteBody(
                thread_id=self._asked_id,
                item_id=self.item_id,
                parameters=dict(self._inputs),
                thread="inline",
                snapshot=await self._node.snapshot(self._request.ref),
                ryecore=own_version(),
                collect=self._request.collect,
                deadline_s=_left_s(self._ctx.deadline),
                capabilities=None if self._held is None else tuple(sorted(self._held)),
            )
        )
        spends = RemoteSpending(self.run_id, self._store.ledger, ceiling)
        await spends.hold()
        self._spends = spends
        place = {"remote": self._node.remote, "node_key": self._node.key.pem.decode()}
        self._log.append(REQUESTED, {**place, "item_id": self.item_id, "body": WIRE.write(body)})
        await self._log.commit()
        self._requests.append(body)
        is_sent = self._followed is not None and self._followed.may_run  # it may arrive yet
        own = (self._log, self._record, self._ctx)
        return FollowedRun(self._node, body, *own, show_tree=self._show_tree, is_sent=is_sent)

    async def _ended_by(self, found: RunState) -> RemoteEnding:
        """Prove the report, note its cost, and fetch what belongs to it."""
        report = read_report(found.report or {}, self._node.key)
        if self._requests:
            check_report(report, self._requests, self._node)
        if self._spends is not None:
            self._spends.report(report.cost, assumed=report.assumed)
        self._log.append(REPORTED, {"item_id": self.item_id, "report": dict(found.report or {})})
        await self._log.flush()
        await self._pull(report, found.report or {})
        status: Status = report.status if report.status != "running" else "error"
        return RemoteEnding(status, self._read_report(report))

    def _read_report(self, report: RunReport) -> Mapping[str, Any]:
        """Return the result that a report has."""
        return report.result

    async def _pull(self, report: RunReport, document: Mapping[str, Any]) -> None:
        """Fetch the files of the run. What can't be fetched doesn't change how it ended."""
        with anyio.move_on_after(_PULL_S), suppress(RemoteError, StateError):
            files = self._store.node_files(self.run_id)
            await pull_files(self._node, report, document, files)

    # End

    async def _finalize_stopped(self) -> None:
        """Stop the run with who started it; who only follows it leaves it running."""
        if self._is_adopted and not is_cancelled(self.cancellation, self._ctx.cancellation):
            await self._forget()
            return
        await super()._finalize_stopped()

    async def _stopped_ending(self) -> RemoteEnding:
        """Return the ending of a run that was asked to stop: the node's, if it reports in time."""
        row = await self._store.registry.get_thread(self.run_id)
        is_kill = row.kill_requested
        if await self._is_nowhere():
            return self._stopped(killed=is_kill)
        return await self._stop_on_node(kill=is_kill) or self._stopped(killed=is_kill)

    async def _is_nowhere(self) -> bool:
        """Return whether the node can't have got the request. Then nothing is charged."""
        if await self._is_taken_over() or (self._followed is not None and self._followed.may_run):
            return False
        await self._free()
        return True

    async def _stop_on_node(self, *, kill: bool) -> RemoteEnding | None:
        """Ask the node to stop the run; None where no report comes within a bounded time."""
        if self._followed is None or await self._is_taken_over():
            return None
        self._is_confirmed = False
        with anyio.move_on_after(_GRACE_S), suppress(RemoteError):
            found = await self._followed.stop(kill=kill)
            self._is_confirmed = True
            return None if found is None else await self._ended_by(found)
        return None

    @property
    def _unconfirmed(self) -> str:
        """What to know where the node was to stop the run, and has not said that it did."""
        if self._is_confirmed:
            return ""
        return (
            f" The node {self._node.remote} has not confirmed that, and may still run it: whoever "
            "opens the project when it can be reached again stops it there."
        )

    async def _is_taken_over(self) -> bool:
        row = await self._store.registry.get_thread(self.run_id)
        return row.fence != self._fence

    async def _close(self, ending: RemoteEnding) -> ResultT:
        """Close the run, unless another process follows it by now: then only that one writes."""
        if await self._is_taken_over():
            await self._forget()
            raise ThreadConflict(
                f"Another process follows {self.run_id} by now.",
                next_step=f"Wait for it: rye threads wait {self.run_id}",
                thread_id=self.run_id,
                state="running",
            )
        return await super()._close(ending)

    async def _forget(self) -> None:
        FOLLOWED.discard(self._followed_key)
        await super()._forget()

    def _status_of(self, ending: RemoteEnding) -> Status:
        return ending.status

    def _stopped(self, *, killed: bool) -> RemoteEnding:
        status: Status = "killed" if killed else "cancelled"
        text = f"The thread was {status}.{self._unconfirmed}"
        return RemoteEnding(status, self._error_result(text, status))

    def _failed(self, error: Exception) -> RemoteEnding:
        code = error.error_type if isinstance(error, RyeError) else "internal"
        return RemoteEnding("error", self._error_result(str(error), code))

    def _unreported(self, why: str) -> RemoteEnding:
        return RemoteEnding("error", self._error_result(why, "remote_unavailable"))

    def _error_result(self, error: str, code: str) -> dict[str, object]:
        return {"status": "error", "error": error, "error_code": code}

    async def _log_end(self, ending: RemoteEnding, cost: Cost, total: Amount) -> None:
        payload: dict[str, object] = {"cost": cost.to_dict()}
        if ending.result.get("error"):
            payload["error"] = ending.result["error"]
        self._log.append(f"thread_{ending.status}", payload)
        await self._log.close_turn(1)

    async def _log_failure(self, error: BaseException, cost: Cost) -> None:
        await self._log_end(self._ending_of(error), cost, NOTHING)

    def _failure_result(self, error: BaseException) -> tuple[Status, dict[str, object]]:
        ending = self._ending_of(error)
        about = {"item_id": self.item_id, "thread_id": self.run_id}
        return ending.status, {**ending.result, **about}

    def _ending_of(self, error: BaseException) -> RemoteEnding:
        return self._failed(error) if isinstance(error, Exception) else self._stopped(killed=False)


def _thread_file_of(document: Mapping[str, Any]) -> ThreadFile:
    from ryecore.convert.strict import RECORDS  # noqa: PLC0415 - for a run that is taken over

    return RECORDS.read({k: v for k, v in document.items() if k != "_signature"}, ThreadFile)


def _until(record: ThreadRecord, *seconds: Decimal | float | None) -> float | None:
    """Return until when a run that is taken over is followed, in monotonic seconds.

    Each of `seconds` bounds it, counted from its start.

    Its report is asked for at least once more, however late it is.
    """
    bounds = [float(one) for one in seconds if one is not None]
    if not bounds:
        return None
    left_s = unix_s(record.created_at) + min(bounds) - time.time()
    return time.monotonic() + max(left_s, 0.0) + LEASE_S


def _left_s(deadline: float | None) -> float | None:
    return None if deadline is None else max(deadline - time.monotonic(), 0.0)
