"""A request to a node, sent once and followed until the node's report is there.

Source: docs/design/remote.md#at-home; decisions 70 and 71.
"""

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, ClassVar, Final

import anyio

from ryecore.errors import RemoteError, RemoteUnavailable, RemoteUntrusted
from ryecore.policy import CallContext
from ryecore.policy.reports import report_of
from ryecore.remote.ports import Delivery, Node
from ryecore.remote.protocol.models import CancelBody, ExecuteBody, RunState
from ryecore.runs.elsewhere import REQUESTED
from ryecore.state.events import Recorder
from ryecore.state.model import ThreadRecord

__all__ = [
    "ACCEPTED",
    "REPORTED",
    "REQUESTED",
    "FollowedRun",
    "RemoteRecorder",
    "RequestRefused",
    "unix_s",
]

ACCEPTED: Final = "remote_accepted"
REPORTED: Final = "remote_reported"

_POLL_S: Final = 30.0
_RETRY_S: Final = (0.1, 5.0)
_RESEND_S: Final = 3600.0
"""How long a request without a known answer is sent again, in seconds since its run began."""


class RemoteRecorder(Recorder):
    """The recorder at home of a run on a node."""

    steps: ClassVar[frozenset[str]] = frozenset({"thread_started", REQUESTED, ACCEPTED, REPORTED})
    subject: ClassVar[str] = "item_id"


class RequestRefused(Exception):
    """The node refuses a request that it never had before: nothing runs. `error` says why."""

    def __init__(self, error: RemoteError) -> None:
        super().__init__(str(error))
        self.error = error


class FollowedRun:
    """One run on a node, as its follower sees it.

    Args:
        node: The node.
        body: The request.
        log: The run's log at home.
        record: The run's row.
        ctx: The run's caller, who gets what its tools report.
        show_tree: Takes the tree of the run's threads on the node, after each change.
        is_accepted: Whether the node is known to have taken the request.
        is_sent: Whether the node may get it from another process, or an earlier one under its id.
    """

    def __init__(
        self,
        node: Node,
        body: ExecuteBody,
        log: RemoteRecorder,
        record: ThreadRecord,
        ctx: CallContext,
        *,
        show_tree: Callable[[Mapping[str, Any]], None],
        is_accepted: bool = False,
        is_sent: bool = False,
    ) -> None:
        self._node = node
        self._show_tree = show_tree
        self._log = log
        self._record = record
        self._ctx = ctx
        self._is_accepted = is_accepted
        self._delivery = Delivery(is_sent)
        self.body = body
        self.is_running = anyio.Event()
        """Set once the node has answered that it carries the run out."""

    @property
    def may_run(self) -> bool:
        """Whether the node may have the request, or get it yet."""
        return self._is_accepted or self._delivery.is_possible

    async def request(self) -> RunState | None:
        """Send the request; None where it is unknown whether the node has got it.

        Raises:
            RequestRefused: The node refuses it.
            RemoteUntrusted: What answers isn't the node. Whether the run has begun is unknown.
        """
        try:
            return await self._execute()
        except RemoteError as problem:
            if _may_pass(problem):
                return None
            raise

    async def follow(self, found: RunState | None) -> RunState:
        """Return the state of the run once it has a report; show its events meanwhile.

        Raises:
            RequestRefused: The node never had the request, and refuses it now.
            RemoteError: The node doesn't know the run any more, or can't be trusted.
        """
        failed: Exception | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._show_events)
            try:
                return await self._reported(found)
            except Exception as error:  # which the group would wrap
                failed = error
            finally:
                group.cancel_scope.cancel()
        raise failed or AssertionError("the task group is left by the return above")

    async def stop(self, *, kill: bool) -> RunState | None:
        """Ask the node to stop the run, and wait for its report; None where it knows no such run.

        Raises:
            RemoteError: The node can't be reached, or refuses it.
        """
        found = await self._node.cancel(self.body.thread_id, CancelBody(kill=kill))
        while found is not None and found.report is None:
            found = await self._node.state(self.body.thread_id, wait_s=_POLL_S)
        return found

    async def _reported(self, found: RunState | None) -> RunState:
        """Return the state of the run once it has a report; while the node is silent, try again."""
        pause_s = _RETRY_S[0]
        while found is None or found.report is None:
            if found is not None:
                await self._note_accepted(found)
                self.is_running.set()
            wait_s = 0.0 if found is None else _POLL_S  # at once, whether the node has it at all
            try:
                found = await self._node.state(self.body.thread_id, wait_s=wait_s)
                if found is None:
                    found = await self._send_again()
                pause_s = _RETRY_S[0]
            except RemoteError as problem:
                if not _may_pass(problem):
                    raise
                await anyio.sleep(pause_s)
                pause_s = min(pause_s * 2, _RETRY_S[1])
        return found

    async def _note_accepted(self, found: RunState) -> None:
        """Record once that the node has taken the run, so that it is never sent again."""
        if not self._is_accepted:
            self._is_accepted = True
            about = {"item_id": self.body.item_id, "node_thread_id": found.node_thread_id}
            self._log.append(ACCEPTED, about)
            await self._log.commit()

    async def _send_again(self) -> RunState:
        """Send a request whose answer was lost, of which the node knows nothing.

        Raises:
            RequestRefused: The node refuses it.
            RemoteError: The node had taken it, or could have long ago: it might run twice.
        """
        age_s = time.time() - unix_s(self._record.created_at)
        if self._is_accepted or age_s > _RESEND_S:
            raise RemoteError(
                f"The node {self._node.remote} doesn't know the run any more. What it may have "
                "spent is charged in full.",
                next_step="Ask the node's operator what became of it; then execute it again.",
                remote=self._node.remote,
                problem="not_found",
            )
        return await self._execute()

    async def _execute(self) -> RunState:
        """Send the request, and return what came of it on the node.

        Raises:
            RequestRefused: The node refuses it, and has no such run.
            RemoteError: The node can't be reached, can't be trusted, or had an earlier request.
        """
        try:
            return await self._node.execute(self.body, delivery=self._delivery)
        except (RemoteUnavailable, RemoteUntrusted):
            raise
        except RemoteError as problem:
            # It may have failed once the run had begun, or come after one whose answer was lost.
            is_other = problem.problem == "other_request"  # an earlier one came late, and runs
            if problem.status >= 500 or self._delivery.is_possible or is_other:
                found = await self._node.state(self.body.thread_id)
                if found is not None:
                    return found
            if is_other:  # it ran, and was forgotten
                raise
            raise RequestRefused(problem) from None

    async def _show_events(self) -> None:
        """Pass the node's events on to whoever listens here. Nothing depends on them."""
        after = 0
        while True:
            try:
                async for event in self._node.events(self.body.thread_id, after=after):
                    after = event.id
                    self._log.show(f"remote_{event.event}", event.data)
                    if event.event == "tree":
                        self._show_tree(event.data)
                    elif event.event == "run":
                        self._pass_report_on(event.data)
                return
            except RemoteError:
                await anyio.sleep(_RETRY_S[1])

    def _pass_report_on(self, event: Mapping[str, Any]) -> None:
        """Pass an event on that is the report of a tool."""
        kind = str(event.get("event_type"))
        report = report_of(kind, event.get("payload"), self._ctx.call_id)
        if report is not None and self._ctx.report_sink is not None:
            self._ctx.report_sink(report)


def _may_pass(problem: RemoteError) -> bool:
    """Return whether a later request may be answered: the run on the node continues meanwhile."""
    is_busy = problem.status == 429 or problem.status >= 500
    # A clock that is wrong at either end may be set right, and the run is none the worse for it.
    return isinstance(problem, RemoteUnavailable) or is_busy or problem.problem == "clock"


def unix_s(text: str) -> float:
    """Return a time of the registry in seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()
