"""The lifecycle at home of a directive's thread that a node runs.

It is that of every run: a row, an account, a signed file and a log of its own. Its body is one
request to the node, and the wait for the node's report.

Source: docs/design/remote.md#at-home; decisions 70 to 74.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar, Final

import anyio
from attrs import evolve
from typing_extensions import override

from ryecore.chain.trace import Trace
from ryecore.convert.strict import WIRE
from ryecore.errors import RemoteError, RemoteUnavailable, RemoteUntrusted, RyeError
from ryecore.frozen import frozen
from ryecore.policy import CallContext
from ryecore.policy.budget import NOTHING, Amount
from ryecore.policy.cancelling import bounded_by, is_cancelled
from ryecore.policy.limits import LayeredLimits
from ryecore.policy.permissions import attenuate
from ryecore.remote.ports import Node
from ryecore.remote.protocol.models import CancelBody, Ceiling, ExecuteBody, RunState, read_answer
from ryecore.remote.protocol.reports import RunReport, read_report
from ryecore.remote.spending import RemoteSpending
from ryecore.runs.bounds import check_depth, count_child, within_bounds
from ryecore.runs.host import RunHost
from ryecore.runs.lifecycle import RunLifecycle
from ryecore.runs.request import RunRequest
from ryecore.state.events import Recorder
from ryecore.state.model import Cost, RemotePlace, Status, ThreadRecord
from ryecore.state.owners import LEASE_S
from ryecore.state.thread_file import ThreadFile
from ryecore.threads.harness import limits_until
from ryecore.threads.planner.planning import DirectivePlanner
from ryecore.threads.result import ThreadResult, kept_result

__all__ = ["RemoteEnding", "RemoteLifecycle"]

_POLL_S: Final = 30.0
_GRACE_S: Final = 30.0
_RETRY_S: Final = (0.1, 5.0)
_REQUESTED: Final = "remote_requested"
_REPORTED: Final = "remote_reported"


@frozen
class RemoteEnding:
    """How a run ended: its status, its result as JSON, and the code of its error."""

    status: Status
    result: Mapping[str, Any]


class RemoteRecorder(Recorder):
    """The recorder at home of a run on a node."""

    steps: ClassVar[frozenset[str]] = frozenset({"thread_started", _REQUESTED, _REPORTED})
    subject: ClassVar[str] = "item_id"


class RemoteLifecycle(RunLifecycle[RemoteEnding, ThreadResult]):
    """The lifecycle of one run on a node.

    Args:
        host: The host of runs.
        node: The node.
        planner: The planner of directives, which checks the inputs at home.
        request: The request.
        ctx: The caller.
    """

    _record: ThreadRecord
    _inputs: Mapping[str, Any]
    _held: frozenset[str] | None
    _body: ExecuteBody | None

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
        self._body = None
        self._is_adopted = False

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
        deadline, duration_s = self._ctx.deadline, self._limits.duration_s
        if duration_s is None:
            return deadline
        until = self._started + float(duration_s) + LEASE_S
        return until if deadline is None else min(deadline, until)

    # Begin

    async def _plan(self) -> LayeredLimits:
        """Check the directive and its inputs, and bound the run by its parent."""
        request, planner, trace = self._request, self._planner, Trace(self._ctx.event_sink)
        loaded = planner.load(request.ref, trace)
        self._inputs = planner.inputs(loaded, request.inputs, trace)
        self._item_hash = loaded.item.integrity
        layered = planner.limits(loaded.directive.limits, request.limits, trace)
        limits = layered.limits
        if self._parent is not None:
            limits = limits.capped_by(self._parent.limits)
        check_depth(self._parent)
        if self._parent is not None and request.registered is None:
            await count_child(self._store, self._parent)
        parent = self._parent.capabilities if self._parent else None
        self._held = within_bounds(self._ctx.capabilities, parent)
        if self._held is not None:
            wanted = planner.compose(loaded, None, trace).permissions.capabilities
            self._held = frozenset(attenuate(wanted, self._held))
        return evolve(layered, limits=limits_until(limits, self._ctx.deadline))

    async def _claim(self) -> int:
        """Claim the row, and write where the run is, in one transaction."""
        fence = await super()._claim()
        place = RemotePlace(self._node.remote, self._node.key.fingerprint)
        await self._store.registry.set_place(self.run_id, place, fence=fence)
        return fence

    async def _open_log(self, record: ThreadRecord) -> None:
        store = self._store
        self._record = record
        capabilities = tuple(sorted(self._held or ()))
        self._file = self._thread_file(record, item_hash=self._item_hash, capabilities=capabilities)
        await store.write_file(self._file)
        log = await store.records.create(self.run_id)
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
        self._fence = fence = await store.registry.take_over(record.thread_id)
        try:
            log, recovery = await store.records.resume(record.thread_id, record.transcript_head)
            self._recorder = RemoteRecorder(record.thread_id, log, store.records, None)
            self._recorder.head = recovery.head
            async for one in store.records.read(record.thread_id):
                if one.type == _REQUESTED:
                    self._body = read_answer(one.payload["body"], ExecuteBody)
            self._file = _thread_file_of(await store.read_file(record.thread_id))
            account = await store.ledger.account(record.thread_id)
            self._record, self._inputs = record, {}
            self._limits = self._request.limits
            if self._body is not None and self._body.ceiling is not None:
                held = self._body.ceiling
                ceiling = Amount(held.spend_microcents, held.tokens)
            else:
                ceiling = account.ceiling
            self._spends = RemoteSpending(self.run_id, store.ledger, ceiling)
            self._host.supervisor.add(self.run_id, fence, self)
            self._host.running[self.run_id] = self
        except BaseException as error:
            await self._give_up(error)
            raise

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
        return self._unreported("The node sent no report within the run's time.")

    async def _carry_out(self) -> RemoteEnding:
        """Request the run, follow it, and read its report."""
        if self._body is None:
            self._body = await self._make_body()
        elif (found := await self._node.state(self.run_id)) is not None:
            return await self._follow(found)
        try:
            found = await self._node.execute(self._body)
        except RemoteUnavailable:
            return await self._follow(None)
        except RemoteError:
            if self._spends is not None:
                self._spends.free()
            raise
        return await self._follow(found)

    async def _make_body(self) -> ExecuteBody:
        """Hold the run's budget, and record the request: both before anything leaves."""
        request, limits = self._request, self._limits
        ceiling = Amount(limits.spend_microcents or 0, limits.tokens or 0)
        body = ExecuteBody(
            thread_id=self.run_id,
            item_id=self.item_id,
            parameters=dict(self._inputs),
            thread="fork",
            snapshot=await self._node.snapshot(),
            ryecore=_version(),
            model=request.model,
            limits=limits.to_dict(),
            deadline_s=_left_s(self._ctx.deadline),
            capabilities=None if self._held is None else tuple(sorted(self._held)),
            ceiling=Ceiling(ceiling.spend_microcents, ceiling.tokens),
        )
        self._spends = RemoteSpending(self.run_id, self._store.ledger, ceiling)
        await self._spends.hold()
        place = {"remote": self._node.remote, "node": self._node.key.fingerprint}
        self._log.append(_REQUESTED, {**place, "item_id": self.item_id, "body": WIRE.write(body)})
        await self._log.commit()
        return body

    async def _follow(self, found: RunState | None) -> RemoteEnding:
        """Follow the run until its report is there."""
        failed: Exception | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._show_events)
            try:
                return await self._ended_by(await self._reported(found))
            except Exception as error:  # which the group would wrap
                failed = error
            finally:
                group.cancel_scope.cancel()
        raise failed or AssertionError("the task group is left by the return above")

    async def _reported(self, found: RunState | None) -> RunState:
        """Return the state of the run once it has a report; while the node is silent, try again."""
        pause_s = _RETRY_S[0]
        while found is None or found.report is None:
            try:
                found = await self._node.state(self.run_id, wait_s=_POLL_S)
                if found is None and self._body is not None:
                    found = await self._node.execute(self._body)
                pause_s = _RETRY_S[0]
            except RemoteUnavailable:
                await anyio.sleep(pause_s)
                pause_s = min(pause_s * 2, _RETRY_S[1])
        return found

    async def _show_events(self) -> None:
        """Pass the node's events on to whoever listens here. Nothing depends on them."""
        after = 0
        while True:
            try:
                async for event in self._node.events(self.run_id, after=after):
                    after = event.id
                    self._log.show(f"remote_{event.event}", event.data)
                return
            except RemoteError:
                await anyio.sleep(_RETRY_S[1])

    async def _ended_by(self, found: RunState) -> RemoteEnding:
        """Prove the report, note its cost, and fetch what belongs to it."""
        report = read_report(found.report or {}, self._node.key)
        _check(report, self._body, self._node, self.item_id)
        if self._spends is not None:
            self._spends.report(report.cost, assumed=report.assumed)
        self._log.append(_REPORTED, {"item_id": self.item_id, "report": dict(found.report or {})})
        await self._log.flush()
        status: Status = report.status if report.status != "running" else "error"
        return RemoteEnding(status, report.result)

    # End

    async def _finalize_stopped(self) -> None:
        """Stop the run with who started it; who only follows it leaves it running."""
        if self._is_adopted and not is_cancelled(self.cancellation, self._ctx.cancellation):
            await self._forget()
            return
        await super()._finalize_stopped()

    async def _stopped_ending(self) -> RemoteEnding:
        """Ask the node to stop the run, and wait a bounded time for its report."""
        row = await self._store.registry.get_thread(self.run_id)
        if self._body is not None:
            with anyio.move_on_after(_GRACE_S), suppress(RemoteError):
                found = await self._node.cancel(self.run_id, CancelBody(kill=row.kill_requested))
                while found is not None and found.report is None:
                    found = await self._node.state(self.run_id, wait_s=_POLL_S)
                if found is not None:
                    return await self._ended_by(found)
        return self._stopped(killed=row.kill_requested)

    def _status_of(self, ending: RemoteEnding) -> Status:
        return ending.status

    def _stopped(self, *, killed: bool) -> RemoteEnding:
        status: Status = "killed" if killed else "cancelled"
        return RemoteEnding(status, self._error_result(f"The thread was {status}.", status))

    def _failed(self, error: Exception) -> RemoteEnding:
        code = error.error_type if isinstance(error, RyeError) else "internal"
        return RemoteEnding("error", self._error_result(str(error), code))

    def _unreported(self, why: str) -> RemoteEnding:
        text = f"{why} What it may have spent is charged in full."
        return RemoteEnding("error", self._error_result(text, "remote_unavailable"))

    def _error_result(self, error: str, code: str) -> dict[str, object]:
        return {"status": "error", "error": error, "error_code": code}

    def _make_result(self, ending: RemoteEnding, cost: Cost, total: Amount) -> ThreadResult:
        row = evolve(self._record, status=ending.status, cost=cost)
        duration_ms = (time.monotonic() - self._started) * 1000
        return evolve(kept_result(row, ending.result, total), duration_ms=duration_ms)

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


def _check(report: RunReport, body: ExecuteBody | None, node: Node, item_id: str) -> None:
    """Check that a report is the one of this run: the node signs those of other runs, too."""
    asked = body.thread_id if body is not None else report.thread_id
    snapshot = body.snapshot if body is not None else report.snapshot
    said = (report.thread_id, report.item_id, report.caller, report.node, report.snapshot)
    if said != (asked, item_id, node.caller, node.key.fingerprint, snapshot):
        raise RemoteUntrusted(
            f"The report of {asked} from the remote {node.remote} is that of another run.",
            next_step="Ask the node's operator; what the run may have spent is charged in full.",
            remote=node.remote,
        )


def _thread_file_of(document: Mapping[str, Any]) -> ThreadFile:
    from ryecore.convert.strict import RECORDS  # noqa: PLC0415 - for a run that is taken over

    return RECORDS.read({k: v for k, v in document.items() if k != "_signature"}, ThreadFile)


def _left_s(deadline: float | None) -> float | None:
    return None if deadline is None else max(deadline - time.monotonic(), 0.0)


def _version() -> str:
    from ryecore import __version__  # noqa: PLC0415 - the package imports this room

    return __version__
