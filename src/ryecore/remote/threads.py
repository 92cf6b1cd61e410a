"""A directive's thread on a node, as a run at home.

Source: docs/design/remote.md#at-home; decisions 70 to 73.
"""

import time
from collections.abc import Mapping
from typing import Any

from attrs import evolve

from ryecore.chain.trace import Trace
from ryecore.policy.budget import Amount
from ryecore.policy.limits import LayeredLimits
from ryecore.policy.permissions import attenuate, capability_of
from ryecore.remote.lifecycle import RemoteEnding, RemoteLifecycle
from ryecore.remote.protocol.models import Ceiling, ExecuteBody
from ryecore.remote.protocol.reports import RunReport
from ryecore.remote.results import errors_at_home
from ryecore.runs.bounds import check_depth, count_child, within_bounds
from ryecore.state.model import Cost
from ryecore.threads.harness import limits_until
from ryecore.threads.result import ThreadResult, kept_result

__all__ = ["RemoteThreadLifecycle"]


class RemoteThreadLifecycle(RemoteLifecycle[ThreadResult]):
    """The lifecycle of a directive's thread on a node. Its inputs are checked at home first."""

    _to_begin: tuple[str, ...] = ()
    """The caller's capability to execute the directive, beside what the thread may do itself."""

    async def _plan(self) -> LayeredLimits:
        """Check the directive and its inputs, and bound the run by its parent."""
        request, planner, trace = self._request, self._planner, Trace(self._ctx.event_sink)
        loaded = planner.load(request.ref, trace)
        self._inputs = planner.inputs(loaded, request.inputs, trace)
        self._item_hash = loaded.item.integrity
        if self.execution is not None:
            self.execution.item = loaded.item
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
            needed = capability_of("execute", request.ref.kind, request.ref.id)
            self._to_begin = attenuate((needed,), self._held)
            self._held = frozenset(attenuate(wanted, self._held))
        return evolve(layered, limits=limits_until(limits, self._ctx.deadline))

    def _ask(self, body: ExecuteBody) -> ExecuteBody:
        ceiling, held = self._ceiling, body.capabilities
        return evolve(
            body,
            capabilities=None if held is None else tuple(sorted({*held, *self._to_begin})),
            thread="fork",
            model=self._request.model,
            limits=self._limits.to_dict(),
            ceiling=Ceiling(ceiling.spend_microcents, ceiling.tokens),
        )

    def _read_report(self, report: RunReport) -> Mapping[str, Any]:
        """Return the result of the thread; an error that the node raised names the remote."""
        result = errors_at_home(report.result, self._node.spaces)
        if "error_type" not in result:
            return result
        named = {
            "error": f"On {self._node.remote}: {result.get('error')}",
            "error_code": result["error_type"],
        }
        return {**result, **named}

    def _make_result(self, ending: RemoteEnding, cost: Cost, total: Amount) -> ThreadResult:
        row = evolve(self._record, status=ending.status, cost=cost)
        duration_ms = (time.monotonic() - self._started) * 1000
        return evolve(kept_result(row, ending.result, total), duration_ms=duration_ms)
