"""The execution of one run: its space, its tool or thread, its outcome.

Source: docs/design/remote.md#on-the-node; decisions 67 to 75.
"""

import logging
import os
import time
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, Final

import anyio
from attrs import define, evolve, field

from ryecore.actions.reports import ThreadReport
from ryecore.actions.targets.queue_tools import kill_call
from ryecore.errors import (
    CallCancelled,
    ProcessError,
    RyeError,
    SigningError,
    StateError,
    ThreadNotFound,
)
from ryecore.items.refs import ItemRef
from ryecore.lillux.keys import BoxKey, open_envelope
from ryecore.lillux.processes import kill_processes
from ryecore.node.callers import Caller
from ryecore.node.content import CallerContent, NodeContent
from ryecore.node.events import EventLog
from ryecore.node.hosts import Host, HostPool
from ryecore.node.problems import NodeProblem, refusal
from ryecore.node.run_table import RunRow, RunTable
from ryecore.node.spaces import FileStats, RunSpace
from ryecore.node.threads import (
    Outcome,
    Run,
    follow,
    has_thread,
    id_of,
    resume,
    start,
    thread_outcome,
)
from ryecore.policy import CallContext, CancelToken
from ryecore.policy.context import THREAD_MARK, place_id, thread_mark
from ryecore.policy.environment import is_short_listed, is_variable_name, may_set_from_dotenv
from ryecore.policy.permissions import attenuate
from ryecore.policy.reports import ToolReport, run_event_of
from ryecore.remote.protocol.error_documents import map_errors, write_error
from ryecore.remote.protocol.models import ExecuteBody, RunStatus
from ryecore.rye import Rye
from ryecore.state.events import RunEvent
from ryecore.state.model import Cost
from ryecore.state.waiting import run_in_thread

__all__ = [
    "Execution",
    "LiveRun",
    "call_id_of_run",
    "collect",
    "context_of",
    "error_of",
    "failed_outcome",
    "open_secrets",
    "stopped_outcome",
    "stopped_status",
    "without_folder",
]

_log: Final = logging.getLogger("ryecore.node")
_MAX_ENVELOPE: Final = 2 * 1024 * 1024
_TELL_OPERATOR: Final = "Tell the node's operator; its log says more."
_MAX_ATTEMPTS: Final = 20
"""How often a run is started that died each time before it began."""


@define(eq=False)
class LiveRun:
    """A run of this process that has not ended.

    Attributes:
        row: Its row, as it is now.
        caller: Whose it is.
        log: Its events.
        max_spend_microcents: The most that it may spend, held of the caller's quota; None for no
            bound.
        was_left: Whether an earlier process of the node had begun it.
        cancellation: Cancels it.
        ended: Set once its end is written.
        handle: The handle of its thread, once it has one.
    """

    row: RunRow
    caller: Caller
    log: EventLog
    max_spend_microcents: int | None = None
    was_left: bool = False
    cancellation: CancelToken = field(factory=CancelToken)
    ended: anyio.Event = field(factory=anyio.Event)
    handle: Run | None = None


class Execution:
    """The executor of runs, each in a space."""

    def __init__(
        self,
        hosts: HostPool,
        content: NodeContent,
        table: RunTable,
        box_key: BoxKey | None,
        hold: Callable[[LiveRun], Awaitable[None]],
    ) -> None:
        self._hosts = hosts
        self._content = content
        self._table = table
        self._box_key = box_key
        self._hold = hold

    async def perform(self, live: LiveRun) -> Outcome:
        """Execute a run to its end. What goes wrong is its outcome."""
        row = live.row
        try:
            borrowed = self._hosts.borrow(
                live.caller,
                row.body.snapshot,
                space=row.space if live.was_left else None,
                alone=row.body.collect,
                secrets=open_secrets(row.body, self._box_key),
            )
            async with borrowed as host:
                outcome = await self._perform_on(live, host)
                return without_folder(outcome, host.space)
        except (NodeProblem, RyeError, OSError) as problem:
            return failed_outcome(live.row, problem)

    async def _perform_on(self, live: LiveRun, host: Host) -> Outcome:
        """Execute a run on a host, and collect what it changed."""
        is_collected = live.row.body.collect
        before = await run_in_thread(host.space.stats) if is_collected else {}
        try:
            outcome = await self._perform_in(live, host)
        except (NodeProblem, RyeError, OSError) as problem:
            return failed_outcome(live.row, problem)
        if not is_collected:
            return outcome
        return await collect(
            host, before, self._content.of(live.caller), outcome, live.row.body.item_id
        )

    async def _perform_in(self, live: LiveRun, host: Host) -> Outcome:
        row = live.row
        is_left = live.was_left and row.space is not None
        ctx = context_of(live)
        if row.space != host.space.folder.name:
            await self._table.place(row.caller, row.thread_id, host.space.folder.name)
        if await has_thread(host, row.body.item_id, ctx):
            await self._table.synced()  # no effect before the row is durable
            if row.body.thread == "inline" and row.body.timeout_s is not None:
                until = time.monotonic() + row.body.timeout_s
                ctx = evolve(ctx, deadline=min(until, ctx.deadline or until))
            outcome = await self._run_thread(live, host, ctx, is_left=is_left)
            if outcome.status == "cancelled":  # also by its token, before it had a thread
                outcome = evolve(outcome, status=stopped_status(live.row))
            return outcome
        if is_left:
            await _kill_what_it_started(row)
            return Outcome("error", _effect_unknown(row.body.item_id))
        ctx = evolve(ctx, call_id=call_id_of_run(row), intent=self._table.synced)
        return await _run_tool(live, host, ctx)

    async def _run_thread(
        self, live: LiveRun, host: Host, ctx: CallContext, *, is_left: bool
    ) -> Outcome:
        row, content = live.row, self._content.of(live.caller)
        if is_left and row.node_thread_id is not None:
            await _kill_what_threads_started(host, row.node_thread_id)
        if row.stop is not None and is_left:
            if row.node_thread_id is None:
                return stopped_outcome(row, may_have_begun=True)
            stopped = _stopped(row)
            outcome = await thread_outcome(host, row.node_thread_id, stopped, content)
            return evolve(outcome, status=stopped_status(row))
        if row.body.thread == "inline" and not is_left:  # a graph, which may spend
            await self._hold(live)
            await self._table.bound(row.caller, row.thread_id, live.max_spend_microcents)
        try:
            run = await self._begin(live, host.rye, ctx, is_left=is_left)
        except RyeError as error:
            if live.row.node_thread_id is None:
                raise
            error.next_step = "See what it has done, then start it anew: the node can't resume it."
            return await thread_outcome(host, live.row.node_thread_id, error, content)
        if isinstance(run, ThreadReport):
            result = run.result if isinstance(run.result, Mapping) else {}
            return await thread_outcome(host, run.thread_id, result, content)
        node_thread_id = id_of(run)
        await self._table.begin(row.caller, row.thread_id, node_thread_id)
        live.row = evolve(live.row, node_thread_id=node_thread_id)
        live.handle = run
        live.log.add("status", {"status": "running", "node_thread_id": node_thread_id})
        done = await follow(host.rye, run, live.log)
        try:
            return await thread_outcome(host, node_thread_id, done, content)
        except ThreadNotFound:
            return _outcome_without_records(live.row, done)

    async def _begin(
        self, live: LiveRun, rye: Rye, ctx: CallContext, *, is_left: bool
    ) -> Run | ThreadReport:
        """Start a run, or resume what the node's last process left of it."""
        row, most = live.row, live.max_spend_microcents
        is_graph = row.body.thread == "inline"
        if row.node_thread_id is not None:
            left = await resume(rye, row.node_thread_id, ctx, is_graph=is_graph)
            if left is not None:
                return left
        for attempt in range(_MAX_ATTEMPTS):
            run = await start(rye, row.body, ctx, most, attempt)
            if not is_left or not (await run.record()).ended:
                return run
            live.row = evolve(row, node_thread_id=id_of(run))
            left = await resume(rye, id_of(run), ctx, is_graph=is_graph)
            if left is not None:
                return left
            live.row = row
        raise StateError(
            f"The node ended {_MAX_ATTEMPTS} times before the run began.",
            next_step="Tell the node's operator.",
        )


async def collect(
    host: Host,
    before: Mapping[str, FileStats],
    content: CallerContent,
    outcome: Outcome,
    item_id: str,
) -> Outcome:
    """Add the changed files to an outcome; without room for them it is an error."""
    try:
        changes = await run_in_thread(host.space.changes, before, content)
    except (NodeProblem, OSError) as problem:
        result = write_error(error_of(problem).during(item_id))
        return evolve(outcome, status="error", result=result)
    return evolve(outcome, changes=changes)


def failed_outcome(row: RunRow, problem: Exception, *, may_have_begun: bool = False) -> Outcome:
    """Return the outcome of a run that the node couldn't bring to its end.

    Where its thread had begun, all that it may have spent is assumed.
    """
    outcome = Outcome("error", write_error(error_of(problem).during(row.body.item_id)))
    if row.node_thread_id is None and not may_have_begun:
        return outcome
    tokens = 0 if row.body.ceiling is None else row.body.ceiling.tokens
    cost = Cost(input_tokens=tokens, spend_microcents=row.max_spend_microcents or 0)
    return evolve(outcome, cost=cost, assumed=True, node_thread_id=row.node_thread_id)


def error_of(problem: Exception) -> RyeError:
    """Return the error that a caller is told where a run can't be brought to its end."""
    if isinstance(problem, RyeError):
        return problem
    if isinstance(problem, NodeProblem):
        return RyeError(problem.problem.title, next_step=problem.problem.next_step)
    if isinstance(problem, OSError):
        _log.error("A run can't be executed: %s", problem)
        why = problem.strerror or problem
        return ProcessError(f"The node can't run it: {why}.", next_step=_TELL_OPERATOR)
    name = type(problem).__name__
    return RyeError(f"The node failed: {name}.", next_step=_TELL_OPERATOR)


def _outcome_without_records(row: RunRow, done: Mapping[str, Any] | RyeError) -> Outcome:
    """Return the outcome of a run that removed its own records; all it may have spent is assumed.

    Args:
        row: The run's row.
        done: Its result, or the error where its end couldn't be written.
    """
    lost = StateError(
        "The run removed the folder of its own records on the node (.ai/state of the project), so "
        "that its result is lost, and its real cost isn't known.",
        next_step="See that its tools leave .ai alone; then execute it again.",
    )
    outcome = failed_outcome(row, lost)
    if isinstance(done, RyeError) or done.get("status") != "success":
        return outcome
    return evolve(outcome, status="completed", result=done)


async def _run_tool(live: LiveRun, host: Host, ctx: CallContext) -> Outcome:
    body = live.row.body
    try:
        done = await host.rye.execute(
            body.item_id, body.parameters, timeout_s=body.timeout_s, ctx=ctx
        )
    except CallCancelled as cancelled:
        if live.row.stop == "kill":
            await _kill_what_it_started(live.row)
        return Outcome(stopped_status(live.row), write_error(cancelled.during(body.item_id)))
    unknown = {"effect_unknown": True} if done.effect_unknown else {}
    return Outcome("completed" if done.success else "error", {**done.to_dict(), **unknown})


def call_id_of_run(row: RunRow) -> str:
    """Return the id of a tool's call, by which a later process of the node knows it, too."""
    return place_id("remote", row.caller, row.thread_id)


async def _kill_what_it_started(row: RunRow) -> None:
    """Kill what a tool has started and its end left, also in process groups of their own."""
    body = row.body
    await kill_call(call_id_of_run(row), ItemRef.parse(body.item_id), body.parameters)


async def _kill_what_threads_started(host: Host, thread_id: str) -> None:
    """Kill what the tools of a thread, and of all below it, have started and its death left."""
    with suppress(RyeError):  # it hadn't begun, or what can't be ended is as a local kill leaves it
        tree = await host.rye.threads.tree(thread_id)
        dead = [one.thread_id for one in tree.walk() if one.ended]

        def kill() -> None:
            project = os.path.realpath(host.space.project)
            marks = [(THREAD_MARK, thread_mark(project, one)) for one in dead]
            kill_processes((), 0.0, marks=marks)

        await run_in_thread(kill)


def without_folder(outcome: Outcome, space: RunSpace) -> Outcome:
    """Return an outcome whose errors name no folder of the operator's before the run's space."""
    spaces = f"{os.path.dirname(space.folder)}/"
    result = map_errors(outcome.result, lambda text: text.replace(spaces, "/spaces/"))
    return outcome if result is outcome.result else evolve(outcome, result=result)


def stopped_outcome(row: RunRow, *, may_have_begun: bool = False) -> Outcome:
    """Return the outcome of a run that was asked to stop before it had a thread."""
    outcome = failed_outcome(row, _stopped(row), may_have_begun=may_have_begun)
    return evolve(outcome, status=stopped_status(row))


def _stopped(row: RunRow) -> CallCancelled:
    return CallCancelled("The run was stopped.").during(row.body.item_id)


def stopped_status(row: RunRow) -> RunStatus:
    """Return how a run ended that was asked to stop."""
    return "killed" if row.stop == "kill" else "cancelled"


def _effect_unknown(item_id: str) -> Mapping[str, object]:
    error = ProcessError(
        "The node ended while the tool ran: whether it had its effect is unknown.",
        next_step="See what it has done before you call it again.",
    )
    return write_error(error.during(item_id)) | {"effect_unknown": True}


def context_of(live: LiveRun) -> CallContext:
    """Return the context of a run's calls: within the caller's scopes, and never signing."""
    body, scopes = live.row.body, live.caller.scopes
    wanted = scopes if body.capabilities is None else body.capabilities
    held = attenuate(wanted, scopes)
    return CallContext(
        capabilities=frozenset(one for one in held if not one.startswith("rye.sign.")),
        deadline=_deadline_of(live.row),
        cancellation=live.cancellation,
        caller=f"node:{live.caller.key.fingerprint}",
        report_sink=partial(_log_report, live),
    )


def _log_report(live: LiveRun, report: ToolReport) -> None:
    """Log what a tool of a run reports, for the run's caller."""
    kind, payload = run_event_of(report)
    live.log.add("run", RunEvent(live.row.thread_id, time.time(), kind, payload).to_dict())


def _deadline_of(row: RunRow) -> float | None:
    """Return the deadline of a run, counted from the request, on the monotonic clock."""
    if row.body.deadline_s is None:
        return None
    passed_s = max(time.time() - datetime.fromisoformat(row.created_at).timestamp(), 0.0)
    return time.monotonic() + row.body.deadline_s - passed_s


def open_secrets(body: ExecuteBody, key: BoxKey | None) -> Mapping[str, str]:
    """Open the envelope of a request.

    Raises:
        NodeProblem: It isn't sealed for this node, or names a variable that steers programs.
    """
    if body.envelope is None:
        return {}
    try:
        if key is None or len(body.envelope) > _MAX_ENVELOPE:
            raise ValueError
        secrets = open_envelope(key, b64decode(body.envelope, validate=True))
    except (SigningError, ValueError):
        raise refusal(
            "invalid",
            "The envelope isn't sealed for this node.",
            next_step="Compare the node's box key: rye remote check NAME",
        ) from None
    for name in secrets:
        if not is_variable_name(name) or not may_set_from_dotenv(name) or is_short_listed(name):
            raise refusal(
                "invalid",
                f"{name!r:.100} can't be a secret: it steers programs.",
                next_step="Take it out of the remote's secrets.",
            )
    return secrets
