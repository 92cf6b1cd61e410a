"""Runs: each request to execute an item becomes one run, however often it is sent.

Source: docs/design/remote.md#on-the-node; decisions 67 to 75.
"""

import json
import time
from collections.abc import Mapping
from typing import Any, Final

import anyio
from attrs import define, field

from ryecore import __version__
from ryecore.convert.strict import WIRE
from ryecore.display.sanitize import warn
from ryecore.errors import CallCancelled, RyeError
from ryecore.frozen import frozen
from ryecore.items.signature import utc_now
from ryecore.lillux.keys import SigningKey
from ryecore.node.callers import Caller
from ryecore.node.content import NodeContent
from ryecore.node.hosts import Host, HostOptions, HostPool
from ryecore.node.problems import NodeProblem, refusal
from ryecore.node.run_table import RunRow, RunTable
from ryecore.policy import CallContext, CancelToken
from ryecore.policy.permissions import attenuate
from ryecore.remote.protocol.error_documents import write_error
from ryecore.remote.protocol.models import (
    MAX_PARAMETER_BYTES,
    MAX_WAIT_S,
    ExecuteBody,
    RunState,
    RunStatus,
    is_thread_id,
)
from ryecore.remote.protocol.reports import (
    Change,
    ReportedFile,
    RunReport,
    TranscriptHead,
    sign_report,
)
from ryecore.runs.tasks import Tasks
from ryecore.state.database import Database
from ryecore.state.model import Cost
from ryecore.state.waiting import run_in_thread

__all__ = ["NodeRuns"]

_NO_COST: Final = Cost()


@frozen
class _Outcome:
    """How a run ended; `assumed` says that a part of its cost is assumed."""

    status: RunStatus
    result: Mapping[str, Any]
    cost: Cost = _NO_COST
    assumed: bool = False
    run_key: str | None = None
    transcript: TranscriptHead | None = None
    files: tuple[ReportedFile, ...] = ()
    changes: tuple[Change, ...] | None = None


@define(eq=False)
class _Live:
    """A run of this process that has not ended."""

    row: RunRow
    caller: Caller
    cancellation: CancelToken = field(factory=CancelToken)
    ended: anyio.Event = field(factory=anyio.Event)


class NodeRuns:
    """The runs of a node.

    Args:
        key: The node's key, which signs reports.
        database: The node's database.
        content: The objects and snapshots of the callers.
        options: What the node gives to each Rye.
        max_runs: The most runs at once, of all callers.
    """

    def __init__(
        self,
        key: SigningKey,
        database: Database,
        content: NodeContent,
        options: HostOptions,
        *,
        max_runs: int = 64,
    ) -> None:
        self._key = key
        self._table = RunTable(database)
        self._content = content
        self._tasks = Tasks()
        self._hosts = HostPool(content, self._tasks, options)
        self._max_runs = max_runs
        self._live: dict[tuple[str, str], _Live] = {}

    async def begin(self) -> None:
        """Recover the runs that the last process left, and take new ones."""
        await self._tasks.open()

    async def aclose(self) -> None:
        """Cancel what runs, and wait until nothing of it is left. The next start recovers it."""
        await self._tasks.close()

    async def execute(self, caller: Caller, body: ExecuteBody, request_sha256: str) -> RunState:
        """Start a run, or find the one that the same request started before.

        Args:
            caller: Who asks.
            body: The request.
            request_sha256: The SHA-256 of its canonical form, without `wait_s`.

        Returns:
            Its state, once it has ended or `wait_s` has passed.

        Raises:
            NodeProblem: Nothing runs.
        """
        known = await self._table.find(caller.fingerprint, body.thread_id)
        if known is None:
            self._check(caller, body)
            known = await self._start(caller, body, request_sha256)
        if known.request_sha256 != request_sha256:
            raise refusal(
                "other_request",
                "Another request was made under this id.",
                next_step="Send this one under an id of its own.",
            )
        return await self._state(known, body.wait_s)

    async def state(self, caller: Caller, thread_id: str, wait_s: float = 0.0) -> RunState:
        """Return the state of a caller's run, once it has ended or the time has passed."""
        return await self._state(await self._find(caller, thread_id), wait_s)

    async def _find(self, caller: Caller, thread_id: str) -> RunRow:
        row = await self._table.find(caller.fingerprint, thread_id)
        if row is None:
            raise refusal("not_found", "You have no run of this id here.")
        return row

    async def _state(self, row: RunRow, wait_s: float) -> RunState:
        live = self._live.get((row.caller, row.thread_id))
        if row.report is not None or live is None or wait_s <= 0:
            return row.to_state()
        with anyio.move_on_after(min(wait_s, MAX_WAIT_S)):
            await live.ended.wait()
        return live.row.to_state()

    # Start

    def _check(self, caller: Caller, body: ExecuteBody) -> None:
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
        running = sum(one.caller.fingerprint == caller.fingerprint for one in self._live.values())
        if running >= caller.max_runs:
            raise refusal(
                "too_many_runs",
                f"You have {running} runs at once here, and may have {caller.max_runs}.",
                next_step="Wait for one to end, or ask the node's operator for more.",
                retry_after_s=_RETRY_S,
            )
        if len(self._live) >= self._max_runs:
            raise refusal(
                "busy",
                "The node has as many runs as it takes.",
                next_step="Try again later.",
                retry_after_s=_RETRY_S,
            )

    async def _start(self, caller: Caller, body: ExecuteBody, request_sha256: str) -> RunRow:
        content = self._content.of(caller)
        if await run_in_thread(content.snapshot, body.snapshot) is None:
            raise refusal(
                "snapshot_missing",
                "The snapshot, or an object of it, isn't on this node.",
                next_step="Push it, and repeat the request.",
            )
        key = (caller.fingerprint, body.thread_id)
        is_new = await self._table.insert(
            caller.fingerprint, body, WIRE.write(body), request_sha256
        )
        row = await self._find(caller, body.thread_id)
        if is_new:
            live = self._live[key] = _Live(row, caller)
            self._tasks.start_soon(self._carry_out, live)
        return row

    async def _carry_out(self, live: _Live) -> None:
        """Run to the end, and report it. The task of one run; it raises nothing."""
        row = live.row
        try:
            outcome = await self._perform(live)
            report = self._report(live, outcome)
            signed = await run_in_thread(sign_report, report, self._key)
            await self._table.end(
                row.caller, row.thread_id, outcome.status, signed, outcome.cost.spend_microcents
            )
            found = await self._table.find(row.caller, row.thread_id)
            live.row = found or row
        except Exception as problem:  # of any kind: the node runs on
            warn(f"The run {row.thread_id} of {row.caller} has no report: {problem}")
        finally:
            del self._live[row.caller, row.thread_id]
            live.ended.set()

    async def _perform(self, live: _Live) -> _Outcome:
        body = live.row.body
        try:
            async with self._hosts.borrow(live.caller, body.snapshot, alone=body.collect) as host:
                await self._table.place(
                    live.caller.fingerprint, body.thread_id, host.space.folder.name
                )
                return await self._run_tool(live, host)
        except NodeProblem as refused:
            problem = refused.problem
            error = RyeError(problem.title, next_step=problem.next_step)
            return _Outcome("error", write_error(error.during(body.item_id)))
        except OSError as problem:
            error = RyeError(
                f"The node can't run it: {problem.strerror}.",
                next_step="Tell the node's operator.",
            )
            return _Outcome("error", write_error(error.during(body.item_id)))

    async def _run_tool(self, live: _Live, host: Host) -> _Outcome:
        body = live.row.body
        try:
            done = await host.rye.execute(
                body.item_id,
                body.parameters,
                timeout_s=body.timeout_s,
                ctx=self._context(live),
            )
        except CallCancelled as cancelled:
            return _Outcome("cancelled", write_error(cancelled))
        except RyeError as error:
            return _Outcome("error", write_error(error))
        status: RunStatus = "completed" if done.status == "success" else "error"
        return _Outcome(status, done.to_dict())

    def _context(self, live: _Live) -> CallContext:
        body = live.row.body
        wanted = live.caller.scopes if body.capabilities is None else body.capabilities
        held = attenuate(wanted, live.caller.scopes)
        return CallContext(
            capabilities=frozenset(one for one in held if not one.startswith("rye.sign.")),
            deadline=None if body.deadline_s is None else time.monotonic() + body.deadline_s,
            cancellation=live.cancellation,
        )

    def _report(self, live: _Live, outcome: _Outcome) -> RunReport:
        row = live.row
        return RunReport(
            thread_id=row.thread_id,
            item_id=row.body.item_id,
            caller=row.caller,
            node=self._key.public.fingerprint,
            snapshot=row.body.snapshot,
            request_sha256=row.request_sha256,
            status=outcome.status,
            result=_plain(outcome.result, row.body.item_id),
            cost=outcome.cost,
            assumed=outcome.assumed,
            node_thread_id=row.node_thread_id,
            run_key=outcome.run_key,
            transcript=outcome.transcript,
            files=outcome.files,
            changes=outcome.changes,
            created_at=row.created_at,
            ended_at=utc_now(),
            ryecore=__version__,
        )


_CELLS: Final = frozenset({("tool", "inline"), ("directive", "fork")})
_RETRY_S: Final = 2


def _plain(result: Mapping[str, Any], item_id: str) -> Mapping[str, Any]:
    """Return a result as JSON has it; an error in the place of one that is too large."""
    try:
        text = json.dumps(result, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as problem:
        return RyeError(f"The result isn't JSON: {problem}.").during(item_id).to_dict()
    if len(text) > MAX_PARAMETER_BYTES:
        return (
            RyeError(
                f"The result is {len(text):,} bytes long, more than the "
                f"{MAX_PARAMETER_BYTES:,} that a node reports.",
                next_step="Write it to a file, and collect the changed files.",
            )
            .during(item_id)
            .to_dict()
        )
    return json.loads(text)  # type: ignore[no-any-return]
