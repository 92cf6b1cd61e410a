"""The safety harness of a thread: limits, capabilities and cancellation.

Source: docs/design/threads.md#harness; docs/design/threads.md#turn-loop; decisions 40, 41 and 46.
"""

import time
from collections.abc import Callable, Iterable
from decimal import Decimal

from attrs import Factory, evolve, field

from ryecore.frozen import frozen
from ryecore.policy import CallContext, CancelToken, allows
from ryecore.policy.limits import LimitHit, Limits
from ryecore.state.model import Cost

__all__ = ["SafetyHarness", "limits_until"]


def _frozen(capabilities: Iterable[str]) -> frozenset[str]:
    return frozenset(capabilities)


def _deadline_of(harness: "SafetyHarness") -> float | None:
    duration_s = harness.limits.duration_s
    return None if duration_s is None else harness.started + float(duration_s)


@frozen
class SafetyHarness:
    """The bounds of one thread. It makes decisions and has no effects.

    Attributes:
        limits: The limits of the thread, every layer and its parent's bounds applied.
        capabilities: Its capabilities, never more than its parent's.
        cancellation: Cancelled when it is to stop, by any process.
        started: The time of its start, on the clock `now`.
        now: A monotonic clock, in seconds.
        deadline: The time at which it must end, on its clock; None without such a limit.
    """

    limits: Limits
    capabilities: frozenset[str] = field(converter=_frozen)
    cancellation: CancelToken = field(factory=CancelToken, repr=False)
    started: float = field(factory=time.monotonic, repr=False)
    now: Callable[[], float] = field(default=time.monotonic, repr=False)
    deadline: float | None = field(
        init=False, repr=False, default=Factory(_deadline_of, takes_self=True)
    )

    def acting_as(self, thread_id: str, caller: CallContext) -> CallContext:
        """Return the context of the thread's own calls: its account, deadline and capabilities.

        Args:
            thread_id: The thread.
            caller: The context of its caller.
        """
        return CallContext(
            capabilities=self.capabilities,
            budget_account=thread_id,
            depth=caller.depth + 1,
            deadline=self.deadline,
            cancellation=self.cancellation,
            parent=caller.call_id,
            labels=caller.labels,
            report_sink=caller.report_sink,
            ask=caller.ask,
        )

    def within(self, limits: Limits) -> "SafetyHarness":
        """Return the same harness with other limits."""
        return SafetyHarness(limits, self.capabilities, self.cancellation, self.started, self.now)

    @property
    def is_cancelled(self) -> bool:
        """Whether the thread was asked to stop."""
        return self.cancellation.cancelled

    def check_limits(self, cost: Cost) -> LimitHit | None:
        """Return the first limit that is met: turns, tokens, spend, duration; None where none is.

        Args:
            cost: The thread's own cost. The ledger counts that of its children.
        """
        return self.limits.hit_by(cost) or self.check_duration()

    def check_duration(self) -> LimitHit | None:
        """Return the hit of the duration limit; None while there is time."""
        deadline = self.deadline
        now = self.now()
        if deadline is None or now < deadline:
            return None
        return LimitHit("duration_exceeded", round(now - self.started, 3), deadline - self.started)

    def ends_within(self, wait_s: float) -> bool:
        """Return whether the deadline comes before the end of a wait."""
        return self.deadline is not None and self.now() + wait_s >= self.deadline

    def time_is_up(self) -> LimitHit:
        """Return the hit of its deadline, or of one that was set from outside."""
        passed_s = self.now() - self.started
        most_s = float(self.limits.duration_s or 0)
        return self.check_duration() or LimitHit("duration_exceeded", passed_s, most_s)

    def check_permission(self, capability: str) -> bool:
        """Return whether the thread has a capability, by name or by wildcard."""
        return allows(self.capabilities, capability)


def limits_until(limits: Limits, deadline: float | None) -> Limits:
    """Return limits whose duration ends at a deadline, in monotonic seconds, at the latest."""
    if deadline is None:
        return limits
    left_s = Decimal(max(deadline - time.monotonic(), 0.0))
    own_s = limits.duration_s
    return evolve(limits, duration_s=left_s if own_s is None else min(own_s, left_s))
