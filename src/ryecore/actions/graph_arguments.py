"""Check the arguments that callers of graphs pass."""

from collections.abc import Mapping
from typing import Any

from ryecore.actions.given import checked_mapping
from ryecore.errors import InputError
from ryecore.graph.wish import GoingOn
from ryecore.policy.limits import Limits, read_limits

__all__ = ["checked_limits", "checked_node", "checked_state", "resume_options"]


def resume_options(
    at: int | None,
    again: bool,
    rerun: bool,
    result: Any,
    members: Mapping[int, Any] | None,
    changed: bool,
    state: Mapping[str, Any] | None,
) -> GoingOn:
    """Return the options of a resume. The run's id is filled in once it is found."""
    answers = result is not ...
    answer = result if answers else None
    return GoingOn(
        "", at, again, rerun, answers, answer, dict(members or {}), changed, checked_state(state)
    )


def checked_node(node: str) -> str:
    """Return a node's id.

    Raises:
        InputError: It is not text.
    """
    if not isinstance(node, str):
        raise InputError(
            f"A node is named by its id, and {node!r} is not text.",
            next_step="Pass the id of a node of the graph.",
        )
    return node


def checked_state(state: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return values of a state.

    Raises:
        InputError: They are not a mapping.
    """
    return checked_mapping(state, "Values of the state", '{"total": 0}')


def checked_limits(limits: Limits | Mapping[str, float] | None) -> Limits:
    """Return the limits that a caller names; none by default.

    Raises:
        InputError: They are not limits.
    """
    if limits is None:
        return Limits()
    if isinstance(limits, Limits):
        return limits
    try:
        return read_limits(checked_mapping(limits, "Limits", "{'spend': 0.5}"))
    except ValueError as problem:
        raise InputError(
            f"{problem}.",
            next_step="Pass such as {'spend': 0.5}; on the command line --limit spend=0.5.",
        ) from None
