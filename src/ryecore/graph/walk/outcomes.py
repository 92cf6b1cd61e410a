"""What the executor's outcomes mean to the schedule, and back. Pure."""

from collections.abc import Mapping
from typing import Final, cast, get_args

from ryecore.agent.outcome import ErrorCode, NodeOutcome
from ryecore.graph.schedule import NodeError, NodeResult

__all__ = ["outcome_of", "result_of"]

_CODES: Final = frozenset(get_args(ErrorCode))


def result_of(node_id: str, outcome: NodeOutcome, *, has_members: bool = False) -> NodeResult:
    """What an outcome means to the schedule.

    Args:
        node_id: The node.
        outcome: What came of it.
        has_members: Whether it is a foreach, whose members' errors count.
    """
    failure, value = outcome.failure, outcome.output
    if failure is not None:
        error = NodeError(node_id, failure.message, failure.code, failure.effect_unknown)
        return NodeResult(error=error, retryable=failure.retryable)
    if has_members and isinstance(value, Mapping):
        passed_over = tuple(
            NodeError(
                f"{node_id}[{one['index']}]",
                str(one["error"]),
                str(one["code"]),
                one.get("effect_unknown") is True,
            )
            for one in value["errors"]
        )
        return NodeResult(value, passed_over=passed_over, suppressed=value["failed"])
    return NodeResult(value)


def outcome_of(result: NodeResult) -> NodeOutcome:
    """The outcome that a kept result was of."""
    error = result.error
    if error is None:
        return NodeOutcome("completed", result.value)
    code = cast("ErrorCode", error.code if error.code in _CODES else "internal")
    return NodeOutcome.failed(
        code, error.error, retryable=result.retryable, effect_unknown=error.effect_unknown
    )
