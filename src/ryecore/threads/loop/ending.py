"""How a thread ended, told from how its turns did. Pure.

Source: docs/design/threads.md#states; decisions 42 to 45.
"""

from collections.abc import Mapping
from typing import Final

from attrs import field, frozen

from ryecore.agent.outcome import failure_of
from ryecore.agent.turns import TurnResult
from ryecore.errors import LlmError, RyeError
from ryecore.runs.limit_hit import LimitHit
from ryecore.state.model import Status
from ryecore.threads.calls.returning import Returned

__all__ = ["Ending", "ending_of_error", "ending_of_stop", "ending_of_turns"]

_CANCELLED: Final = "It was asked to stop."


@frozen
class Ending:
    """How a thread ended.

    Attributes:
        status: Its last status; `completed` until it is known that it goes on in another thread.
        text: What the model said last.
        outputs: What it returned.
        error: What went wrong; None where nothing did.
        code: Why, for a program; where it is to be handed off, the limit that it is for.
        hands_off: Whether another thread is to go on with it.
    """

    status: Status
    text: str = ""
    outputs: Mapping[str, object] = field(factory=dict)
    error: str | None = None
    code: str = ""
    hands_off: bool = False


def ending_of_turns(
    result: TurnResult, returned: Returned | None, limit: LimitHit | None
) -> Ending:
    """The ending that turns led to.

    Args:
        result: How the turns ended.
        returned: What the model handed over; None where it didn't.
        limit: The limit that was met.
    """
    text = result.last.text if result.last else ""
    if result.ended == "handed_off" or (result.ended, result.reason) == ("stopped", "handoff"):
        return Ending("completed", text, code=limit.code if limit else "", hands_off=True)
    if returned is not None and result.ended == "finished":
        if returned.status == "error":
            error = returned.error_detail or "The model says that it can't go on."
            return Ending("error", text, returned.outputs, error, "returned_error")
        return Ending("completed", text, returned.outputs)
    if result.ended == "stopped":
        if result.reason == "cancelled":
            return Ending("cancelled", text, error=_CANCELLED, code="cancelled")
        if limit is not None:
            return Ending("error", text, error=limit.message, code=limit.code)
        return Ending("error", text, error=f"It was stopped by {result.reason}.", code="stopped")
    return Ending("completed", text)


def ending_of_error(error: Exception) -> Ending:
    """The ending that an error led to."""
    if isinstance(error, LlmError) or not isinstance(error, RyeError):
        failure = failure_of(error)
        return Ending("error", error=failure.message, code=failure.code)
    code = str(error.facts.get("code") or error.error_type)
    return Ending("error", error=str(error), code=code)


def ending_of_stop(*, killed: bool) -> Ending:
    """The ending of a thread that was asked to stop."""
    if killed:
        return Ending("killed", error="It was killed.", code="killed")
    return Ending("cancelled", error=_CANCELLED, code="cancelled")
