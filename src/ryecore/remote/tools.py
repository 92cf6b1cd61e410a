"""A tool, or a graph, on a node, as a run at home: an asynchronous one.

Source: docs/design/remote.md#at-home; decisions 70 to 73.
"""

import time
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, TypeGuard

from attrs import evolve, field

from ryecore.chain.model import ExecutionResult, ValidChain
from ryecore.chain.trace import Trace
from ryecore.errors import CallCancelled, RyeError
from ryecore.frozen import frozen
from ryecore.policy import CancelToken
from ryecore.policy.budget import Amount
from ryecore.policy.cancelling import is_cancelled
from ryecore.policy.limits import LayeredLimits, Limits
from ryecore.remote.lifecycle import RemoteEnding, RemoteLifecycle
from ryecore.remote.protocol.models import Ceiling, ExecuteBody
from ryecore.remote.protocol.reports import RunReport
from ryecore.remote.results import read_result
from ryecore.runs.bounds import check_depth, within_bounds
from ryecore.state.model import Cost
from ryecore.threads.harness import limits_until

__all__ = ["RemoteToolLifecycle", "RemoteToolResult"]

_NO_CHAIN: Final = ValidChain(())
_NOTHING: Final = Limits(spend_usd=0, tokens=0)


@frozen(kw_only=True)
class RemoteToolResult(ExecutionResult):
    """The result of a tool on a node that has a row at home.

    Attributes:
        thread_id: Its id, for `rye.threads`.
        document: The response object, or that of the error.
        failure: The error that the same call raises locally; None where it has a result.
    """

    chain: ValidChain = _NO_CHAIN
    thread_id: str = ""
    document: Mapping[str, Any] = field(factory=dict, repr=False)
    failure: RyeError | None = field(default=None, repr=False)

    def raise_failure(self, cancellation: CancelToken | None) -> None:
        """Raise what the same call raises locally.

        Args:
            cancellation: The token of the caller, who may have cancelled the call.
        """
        if self.failure is not None:
            raise self.failure
        if not self.success and is_cancelled(cancellation):
            raise CallCancelled(f"{self.item_id} was cancelled by its caller.")

    def to_dict(self) -> dict[str, object]:
        """Return the response object."""
        about = self.document.get("metadata")
        known = about if isinstance(about, Mapping) else {}
        return {**self.document, "metadata": {**known, **self.metadata}}


class RemoteToolLifecycle(RemoteLifecycle[RemoteToolResult]):
    """The lifecycle of a tool's run on a node. Only a graph spends anything."""

    _graph_timeout_s: float | None = None
    _envelope: str | None = None
    _failure: RyeError | None = None

    async def _plan(self) -> LayeredLimits:
        """Verify the tool, and bound the run by its parent."""
        request = self._request
        chain = await self._host.dispatcher.chain(request.ref, ctx=self._ctx)
        self._inputs = request.inputs
        self._envelope = await self._node.seal(request.ref)
        self._item_hash = "" if chain.head.item is None else chain.head.item.integrity
        if self.execution is not None:
            self.execution.item = chain.head.item
        parent = self._parent
        check_depth(parent)
        self._held = within_bounds(self._ctx.capabilities, parent.capabilities if parent else None)
        if chain.is_own_process:
            return await self._plan_graph()
        timeout_s = None if request.timeout_s is None else Decimal(request.timeout_s)
        return LayeredLimits(evolve(_NOTHING, duration_s=timeout_s), True, True)

    async def _plan_graph(self) -> LayeredLimits:
        """Plan a graph within the time that it has locally: its timeout, or the caller's."""
        request, parent, ctx = self._request, self._parent, self._ctx
        planned = await self._host.dispatcher.plan(
            request.ref, request.inputs, timeout_s=request.timeout_s, ctx=ctx
        )
        timeout_s = self._graph_timeout_s = planned.plan.timeout_s
        layered = self._planner.limits(Limits(), request.limits, Trace(None))
        limits = evolve(layered.limits, spawns=request.limits.spawns)  # as a graph here
        limits = limits if parent is None else limits.capped_by(parent.limits)
        bounds = request.limits.within(Limits(duration_s=timeout_s))
        limits = evolve(limits, duration_s=bounds.duration_s)
        return evolve(layered, limits=limits_until(limits, ctx.deadline))

    @property
    def _binding_limits(self) -> Limits:
        """The limits; a graph's turns and duration only where the caller asked for them."""
        if self._graph_timeout_s is None:
            return self._limits
        asked = self._request.limits
        return evolve(self._limits, turns=asked.turns, duration_s=asked.duration_s)

    def _ask(self, body: ExecuteBody) -> ExecuteBody:
        body = evolve(body, timeout_s=self._request.timeout_s, envelope=self._envelope)
        if self._graph_timeout_s is None:
            return body
        return evolve(
            body,
            timeout_s=self._graph_timeout_s,
            limits=self._binding_limits.to_dict(),
            ceiling=Ceiling(self._ceiling.spend_microcents, self._ceiling.tokens),
        )

    def _read_report(self, report: RunReport) -> Mapping[str, Any]:
        """Return the response object of a tool that ran, or that of its error."""
        duration_ms = (time.monotonic() - self._started) * 1000
        try:
            document = read_result(report, self._node, duration_ms).to_dict()
        except RyeError as error:
            return self._error_document(error)
        data = document.get("data")
        if report.node_thread_id is not None and _is_of_graph(data):
            document["data"] = {
                **data,
                "graph_run_id": self.run_id,
            }  # the node's means nothing here
        return document

    def _error_document(self, error: RyeError) -> Mapping[str, Any]:
        self._failure = error.during(self.item_id)
        return self._failure.to_dict()

    def _stopped(self, *, killed: bool) -> RemoteEnding:
        error = CallCancelled(f"{self.item_id} was stopped.{self._unconfirmed}")
        return RemoteEnding("killed" if killed else "cancelled", self._error_document(error))

    def _failed(self, error: Exception) -> RemoteEnding:
        if isinstance(error, RyeError):
            return RemoteEnding("error", self._error_document(error))
        return super()._failed(error)

    def _make_result(self, ending: RemoteEnding, cost: Cost, total: Amount) -> RemoteToolResult:
        request, data = self._request, ending.result.get("data")
        document = {**ending.result, "item_id": self.item_id}
        is_called = request.registered is None and not self._is_adopted
        if is_called and (request.collect or not _is_of_graph(data)):
            document["thread_id"] = self.run_id
        error = document.get("error")
        is_unknown = document.get("error_code") == "remote_unavailable"
        return RemoteToolResult(
            status="error" if document.get("status") != "success" else "success",
            item_id=self.item_id,
            data=data,
            error=None if error is None else str(error),
            duration_ms=(time.monotonic() - self._started) * 1000,
            thread_id=self.run_id,
            document=document,
            failure=self._failure,
            effect_unknown=is_unknown or (_is_of_graph(data) and bool(data.get("effect_unknown"))),
        )


def _is_of_graph(data: object) -> TypeGuard[Mapping[str, Any]]:
    """Return whether data of a result are the document of a graph's run."""
    return isinstance(data, Mapping) and isinstance(data.get("graph_run_id"), str)
