"""The limits of a run: those of its caller, within what the run that it resumes has left.

Source: decisions 39, 40 and 80.
"""

from attrs import evolve, frozen

from ryecore.graph.host import Declares, GraphHost
from ryecore.graph.journal.recovery import Found
from ryecore.graph.wish import GraphWish
from ryecore.policy import CallContext
from ryecore.policy.limits import Limits
from ryecore.runs.bounds import bounds_of, carried_limits, is_host, read_asked
from ryecore.state.chain_limits import ContinuationLimits

__all__ = ["RunLimits", "limits_of_run"]


@frozen
class RunLimits:
    """The limits of a run.

    Attributes:
        asked: The caller's. Turns and duration bound a run only where the caller sets them.
        limits: All limits, those of configuration included.
        declares: Which of them were declared, and so are reserved.
    """

    asked: Limits
    limits: Limits
    declares: Declares


def limits_of_run(
    host: GraphHost, run_id: str, request: GraphWish, found: Found | None, ctx: CallContext
) -> RunLimits:
    """Return a run's limits, within what the run that it resumes has left.

    Args:
        host: Combines limits with those of configuration, and keeps the rows.
        run_id: The run, which has a row.
        request: The request to start it. Limits that a person or the host resumes with count from
            zero.
        found: The recovered state of the run that it resumes; None for a fresh run.
        ctx: On whose behalf.

    Raises:
        LimitReached: No time is left.
        StateError: The earlier run's limits can't be read.
    """
    if found is None or request.goes_on is None:
        limits, declares = host.limits(request.limits)
        return RunLimits(request.limits, limits, declares)
    previous_id = request.goes_on.run_id
    before = read_asked(previous_id, found.started)
    asked = before.under(request.limits)
    limits, declares = host.limits(asked)
    bounds = bounds_of(previous_id, found.started).limits
    carried = ContinuationLimits(
        previous_id,
        evolve(bounds, turns=before.turns, duration_s=before.duration_s),
        found.ran_s,
        limits,
        request.limits if is_host(ctx) else Limits(),
    )
    limits = carried_limits(host.store, run_id, carried, needs_turns=False)
    asked = evolve(
        asked,
        turns=None if asked.turns is None else limits.turns,
        duration_s=None if asked.duration_s is None else limits.duration_s,
    )
    return RunLimits(asked, limits, declares)
