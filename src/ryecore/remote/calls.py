"""Inline tools on a node: one request under an id of its own, repeated under it.

Source: docs/design/remote.md#at-home; decisions 70 and 71.
"""

import hashlib
import json
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from typing import Any, Final

import anyio
from attrs import define, evolve, field

from ryecore.convert.json_text import make_encoder
from ryecore.convert.strict import WIRE
from ryecore.errors import CallCancelled, RemoteError, RemoteUnavailable, RemoteUntrusted
from ryecore.items.refs import ItemRef
from ryecore.policy import CallContext
from ryecore.policy.cancelling import cancelled_by
from ryecore.policy.reports import ToolCaller, report_of
from ryecore.remote.connection import ConnectedNode
from ryecore.remote.ports import Delivery, Node
from ryecore.remote.protocol.models import (
    MAX_WAIT_S,
    CancelBody,
    Ceiling,
    ExecuteBody,
    RunState,
)
from ryecore.remote.protocol.reports import RunReport, read_report
from ryecore.remote.results import RemoteResult, read_result

__all__ = ["call_tool", "check_report", "own_version"]

_canonical: Final = make_encoder(sort_keys=True)
_CANCEL_WITHIN_S: Final = 5.0
_MAX_SNAPSHOTS: Final = 3
_ASK_AGAIN_S: Final = 0.2
_LAST_REPORTS_S: Final = 2.0
"""How long what a tool reported may take to come home once its result is there, in seconds."""

_HOMEWARD_S: Final = 1.0
"""How much of the caller's time is left for the result to come home, in seconds."""


async def call_tool(
    node: ConnectedNode,
    ref: ItemRef,
    parameters: Mapping[str, Any],
    ctx: CallContext,
    *,
    timeout_s: float | None = None,
    is_graph: Callable[[str], Awaitable[bool]],
) -> RemoteResult | None:
    """Run a tool on a node, and wait for its result; None for a graph, of which nothing is sent.

    A node that can't be reached is tried again until the deadline of the caller; without one, for
    the tool's timeout and then the remote's `timeout_s`.

    Args:
        node: The node.
        ref: The tool.
        parameters: Its parameters.
        ctx: The caller.
        timeout_s: The seconds after which the tool is ended.
        is_graph: Returns whether it is a graph in the project of a snapshot's id.

    Raises:
        RemoteUnavailable: The node couldn't be reached in this time. A tool that was started there
            continues.
        RemoteError: The node refuses the call, or can't be trusted.
        RyeError: The tool didn't run; the error is the same as locally.
    """
    call = _Call(node, ref, parameters, ctx, timeout_s, is_graph)
    if ctx.cancellation is None:
        return await call.run()
    with cancelled_by(ctx.cancellation):
        return await call.run()
    raise CallCancelled(f"{ref} was cancelled by its caller.")


class _Call:
    def __init__(
        self,
        node: ConnectedNode,
        ref: ItemRef,
        parameters: Mapping[str, Any],
        ctx: CallContext,
        timeout_s: float | None,
        is_graph: Callable[[str], Awaitable[bool]],
    ) -> None:
        self._is_graph = is_graph
        self._ctx = ctx
        self._execution = ctx.execution
        self._node = node
        self._ref = ref
        self._began_s = time.monotonic()
        self._deadline = ctx.deadline
        self._patience_s = node.settings.timeout_s + (timeout_s or 0.0)
        self._requests = _Requests()
        held = ctx.capabilities
        self._body = ExecuteBody(
            thread_id=str(uuid.uuid4()),
            item_id=str(ref),
            parameters=parameters,
            thread="inline",
            snapshot="",
            ryecore=own_version(),
            timeout_s=timeout_s,
            deadline_s=None if ctx.deadline is None else self._time_there_s(),
            wait_s=min(self._left_s(), MAX_WAIT_S),
            capabilities=None if held is None else tuple(sorted(held)),
            ceiling=Ceiling(0, 0),  # what may spend has an account at home
        )

    async def run(self) -> RemoteResult | None:
        """Send the request, and wait for the node's report within the caller's time."""
        try:
            if self._deadline is None:
                found = await self._listened()
            else:
                with anyio.fail_after(self._left_s()):
                    found = await self._listened()
        except TimeoutError:
            await self._stop()
            raise RemoteUnavailable(
                f"The node {self._node.remote} sent no result of {self._body.item_id} in the time "
                "that its caller has; whether it had its effect is unknown.",
                next_step="Look at its effect before you execute it again.",
                remote=self._node.remote,
            ) from None
        except anyio.get_cancelled_exc_class():
            await self._stop()
            raise
        if found is None:
            return None
        report = read_report(found.report or {}, self._node.key)
        self._requests.check(report, self._node)
        duration_ms = (time.monotonic() - self._began_s) * 1000
        if report.status in ("cancelled", "killed"):
            raise CallCancelled(
                f"{report.item_id} was {report.status} on the node {self._node.remote}."
            )
        return read_result(report, self._node, duration_ms)

    async def _listened(self) -> RunState | None:
        """Wait for the report, and pass on what the tool reports meanwhile, if anybody gets it."""
        caller = ToolCaller(self._ref.id, self._ctx)
        if not caller.wants_reports:
            return await self._reported()
        found: RunState | None = None
        failed: Exception | None = None
        ended, passed_on = anyio.Event(), anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._pass_on, caller, ended, passed_on)
            try:
                found = await self._reported()
            except Exception as error:  # which the group would wrap
                failed = error
            ended.set()
            if found is not None:
                with anyio.move_on_after(_LAST_REPORTS_S):
                    await passed_on.wait()
            tasks.cancel_scope.cancel()
        if failed is not None:
            raise failed
        return found

    async def _pass_on(
        self, caller: ToolCaller, ended: anyio.Event, passed_on: anyio.Event
    ) -> None:
        """Pass the tool's reports on until the node has told them all. Nothing depends on them."""
        after = 0
        while True:
            with anyio.move_on_after(_ASK_AGAIN_S):  # a short call needs no second request before
                await ended.wait()
            is_last = ended.is_set()
            try:
                async for event in self._node.events(self._body.thread_id, after=after):
                    after = event.id
                    kind, payload = event.data.get("event_type"), event.data.get("payload")
                    if event.event == "run" and isinstance(kind, str):
                        report = report_of(kind, payload, self._ctx.call_id)
                        if report is not None:
                            caller.send(report)
                is_last = True
            except RemoteError:  # such as that it has no such run yet
                pass
            if is_last:
                passed_on.set()
                return

    async def _reported(self) -> RunState | None:
        found = await self._requested()
        while found is not None and found.report is None:
            found = await self._state()
        return found

    async def _state(self) -> RunState:
        wait_s = min(self._left_s(), MAX_WAIT_S)
        found = await self._node.state(
            self._body.thread_id, wait_s=wait_s, within_s=self._within_s()
        )
        if found is None:
            raise RemoteError(
                f"The node {self._node.remote} has forgotten the call of "
                f"{self._body.item_id}; whether it had its effect is unknown.",
                next_step="Look at its effect before you execute it again.",
                remote=self._node.remote,
                problem="not_found",
            )
        return found

    async def _requested(self) -> RunState | None:
        """Request the call in the project as it is now; anew where that changes meanwhile.

        None where it is a graph there.
        """
        for tried in count(1):
            snapshot = await self._node.snapshot(self._ref)
            if await self._is_graph(snapshot):
                return None
            sealed = await self._node.seal(self._ref)
            self._body = evolve(self._body, snapshot=snapshot, envelope=sealed)
            self._requests.sent.append(self._body)
            if self._execution is not None:
                await self._execution.begins()
            try:
                return await self._node.execute(
                    self._body, within_s=self._within_s(), delivery=self._requests
                )
            except RemoteError as refused:
                if refused.problem == "other_request":  # an earlier one came late, and runs
                    return await self._state()
                # The node has no run of this id yet.
                if refused.problem != "snapshot_missing" or tried == _MAX_SNAPSHOTS:
                    raise
        raise AssertionError("the loop has no end of its own")

    async def _stop(self) -> None:
        """Ask the node to stop the tool, for a bounded time."""
        with anyio.move_on_after(_CANCEL_WITHIN_S, shield=True):
            try:
                await self._node.cancel(self._body.thread_id, CancelBody(kill=True))
            except RemoteError:
                return  # its deadline or timeout ends it there

    def _left_s(self) -> float:
        if self._deadline is None:
            return MAX_WAIT_S
        return max(self._deadline - time.monotonic(), 0.0)

    def _time_there_s(self) -> float:
        left_s = self._left_s()
        return left_s - min(_HOMEWARD_S, left_s / 10)

    def _within_s(self) -> float:
        return self._patience_s if self._deadline is None else self._left_s()


@define
class _Requests(Delivery):
    """The requests of a call, whose digests are made while the node works.

    Attributes:
        sent: The requests.
    """

    sent: list[ExecuteBody] = field(factory=list)
    _digests: list[str] = field(factory=list)

    async def note(self, event: str, _: object) -> None:
        """Make the digests of what was sent, while the answer is awaited."""
        await super().note(event, _)
        if event.endswith("receive_response_headers.started"):
            self._make_digests()

    def _make_digests(self) -> None:
        self._digests += map(request_digest, self.sent[len(self._digests) :])

    def check(self, report: RunReport, node: Node) -> None:
        """Check that a report is that of one of the requests; see `check_report`."""
        self._make_digests()
        _check_report(report, dict(zip(self._digests, self.sent, strict=True)), node)


def check_report(report: RunReport, requests: Sequence[ExecuteBody], node: Node) -> None:
    """Check that a report is that of a run, whose node signs those of other runs, too.

    Args:
        report: The report.
        requests: The run's requests, all under one id: whichever comes first is carried out.
        node: The node.

    Raises:
        RemoteUntrusted: It is another one's.
    """
    _check_report(report, {request_digest(one): one for one in requests}, node)


def _check_report(report: RunReport, requests: Mapping[str, ExecuteBody], node: Node) -> None:
    """Check a report with the requests by their digests."""
    digest = report.request_sha256
    if digest not in requests:
        *_, digest = requests
    body = requests[digest]
    expected = {
        "thread_id": body.thread_id,
        "item_id": body.item_id,
        "caller": node.caller,
        "node": node.key.fingerprint,
        "snapshot": body.snapshot,
        "request_sha256": digest,
    }
    for name, value in expected.items():
        if getattr(report, name) != value:
            raise RemoteUntrusted(
                f"The node {node.remote} reports another run than {body.item_id}: its {name} is "
                "another one.",
                next_step="Ask the node's operator; whether the tool ran is unknown.",
                remote=node.remote,
            )


def request_digest(body: ExecuteBody) -> str:
    """Return the SHA-256 of a request in canonical form, without `wait_s`."""
    document = json.loads(_canonical(WIRE.write(body)))  # what the node reads
    del document["wait_s"]
    return hashlib.sha256(_canonical(document).encode()).hexdigest()


def own_version() -> str:
    """Return the version of ryecore that requests name."""
    from ryecore import __version__  # noqa: PLC0415 - the package imports this room

    return __version__
