"""What callers of graphs pass, checked."""

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
    """Return how a run is resumed; the run is still to be found."""
    answers = result is not ...
    answer = result if answers else None
    return GoingOn(
        "", at, again, rerun, answers, answer, dict(members or {}), changed, checked_state(state)
    )


def checked_node(given: str) -> str:
    """Return a node's id.

    Raises:
        InputError: It is not text.
    """
    if not isinstance(given, str):  # None would be all nodes
        raise InputError(f"{given!r} is no node.", next_step="Pass a node's id.")
    return given


def checked_state(given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return values of a state.

    Raises:
        InputError: They are not a mapping.
    """
    return checked_mapping(given, "Values of the state", '{"total": 0}')


def checked_limits(given: Limits | Mapping[str, float] | None) -> Limits:
    """Return the limits that a caller names; none by default.

    Raises:
        InputError: They are not limits.
    """
    if given is None:
        return Limits()
    if isinstance(given, Limits):
        return given
    try:
        return read_limits(checked_mapping(given, "Limits", "{'spend': 0.5}"))
    except ValueError as problem:
        raise InputError(f"{problem}.", next_step="Pass such as {'spend': 0.5}.") from None
