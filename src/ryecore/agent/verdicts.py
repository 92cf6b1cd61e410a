"""The policy of the turn core: frozen verdicts, by which its callers differ without forking it.

Source: decision 49.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, TypeAlias

from attrs import frozen

from ryecore.agent.outcome import ErrorCode, failure_of, is_correctable
from ryecore.errors import LlmError, ToolCallError
from ryecore.llm.options import GO, AttemptVerdict, Go, Refuse
from ryecore.llm.parts import Message, ToolCallPart, ToolResultPart
from ryecore.llm.plan import FallbackPlanEntry
from ryecore.llm.request import LlmRequest
from ryecore.llm.result import LlmResult
from ryecore.tools.definition import ToolDef
from ryecore.tools.results import ToolOutcome

__all__ = [
    "ACCEPT",
    "CONTINUE",
    "DISPATCH",
    "GO",
    "KEEP",
    "RAISE",
    "THE_TEXT",
    "Accept",
    "Continue",
    "Dispatch",
    "Fail",
    "Feed",
    "Finish",
    "Go",
    "GoWithin",
    "HandOff",
    "Keep",
    "Nudge",
    "Raise",
    "Refuse",
    "Replace",
    "RetryTurn",
    "Stop",
    "TurnPolicy",
    "TurnState",
]


@frozen
class GoWithin:
    """Ask for an answer of bounded length.

    Attributes:
        max_output_tokens: How long it may be.
    """

    max_output_tokens: int


@frozen
class Stop:
    """End here, with what there is.

    Attributes:
        reason: Why, in a word or two.
    """

    reason: str


@frozen
class Dispatch:
    """Call the tool."""


@frozen
class Feed:
    """Tell the model this in place of a result.

    Attributes:
        text: What it is told.
        is_error: Whether that is an error.
        is_correction: Whether it counts against the correction budget.
    """

    text: str
    is_error: bool = True
    is_correction: bool = True


@frozen
class Fail:
    """End as a failure; whether it is retryable follows from its code.

    Attributes:
        code: Why.
        message: What happened.
    """

    code: ErrorCode
    message: str


@frozen
class Finish:
    """End well, with this output. The turn's other calls are answered as not run.

    Attributes:
        output: The output.
    """

    output: object


@frozen
class Keep:
    """Give the model the result as it is."""


class _TheText(Enum):
    """Stands for the answer's own text, where a value could be anything, null too."""

    THE_TEXT = "the text"


THE_TEXT: Final = _TheText.THE_TEXT


@frozen
class Accept:
    """The text is the answer.

    Attributes:
        output: The output, where it isn't the text itself.
    """

    output: object = THE_TEXT


@frozen
class Nudge:
    """The text is not the answer yet: send this to the model and take another turn.

    Attributes:
        text: What it is told, as the user.
        is_correction: Whether it counts against the correction budget.
        code: What it fails with once the budget is used up.
    """

    text: str
    is_correction: bool = True
    code: ErrorCode = "validation"


@frozen
class Raise:
    """The error ends the turns."""


@frozen
class RetryTurn:
    """Ask again.

    Attributes:
        delay_s: After how many seconds.
    """

    delay_s: float = 0.0


@frozen
class Continue:
    """Take the next turn."""


@frozen
class Replace:
    """Take the next turn with another conversation.

    Attributes:
        messages: The whole conversation.
    """

    messages: tuple[Message, ...]


@frozen
class HandOff:
    """End here, because another thread continues.

    Attributes:
        data: What they need.
    """

    data: Mapping[str, object]


DISPATCH: Final = Dispatch()
KEEP: Final = Keep()
ACCEPT: Final = Accept()
RAISE: Final = Raise()
CONTINUE: Final = Continue()

BeforeTurn: TypeAlias = Go | GoWithin | Stop
OnCall: TypeAlias = Dispatch | Feed | Fail | Finish
OnResult: TypeAlias = Keep | Feed | Fail
OnText: TypeAlias = Accept | Nudge | Fail
OnError: TypeAlias = Raise | RetryTurn | Stop
AfterTurn: TypeAlias = Continue | Replace | HandOff | Stop


@frozen
class TurnState:
    """Where the turns stand.

    Attributes:
        turn: Which turn it is, from 1.
        messages: The conversation so far; it goes on growing.
        corrections: How many turns were spent on corrections.
        errors: How many errors were met by asking again, since the last answer.
    """

    turn: int
    messages: Sequence[Message]
    corrections: int = 0
    errors: int = 0


class TurnPolicy:
    """What the turn core does at each point where its callers differ; by default, as an agent node.

    Source: docs/design/agent-node.md#failures; decision 49.
    """

    async def before_turn(self, state: TurnState) -> BeforeTurn:
        """Before a model is asked."""
        return GO

    async def before_attempt(
        self, entry: FallbackPlanEntry, request: LlmRequest, number: int
    ) -> AttemptVerdict:
        """Before each try of a turn leaves for a provider: the fallback chain asks this.

        Args:
            entry: Whom it would go to.
            request: What would be sent.
            number: Which try of this call it is, from 1.
        """
        return GO

    async def on_answer(self, state: TurnState, result: LlmResult) -> LlmResult:
        """When the model has answered, before anything is done about it.

        Returns:
            The answer to go on with.
        """
        return result

    async def on_call(self, state: TurnState, call: ToolCallPart, tool: ToolDef | None) -> OnCall:
        """For each call of a turn, before the first of them is dispatched.

        Args:
            state: Where the turns stand.
            call: The call.
            tool: What its name stands for; None where it stands for nothing.
        """
        return DISPATCH

    async def on_result(
        self, state: TurnState, call: ToolCallPart, came: ToolOutcome | ToolCallError
    ) -> OnResult:
        """When a call has ended, well or not."""
        if isinstance(came, ToolCallError):
            return ladder_verdict(came)
        return KEEP

    def on_told(self, state: TurnState, part: ToolResultPart) -> None:
        """When it is certain what the model will see of a call, of one that was not run too."""

    async def on_text(self, state: TurnState, result: LlmResult) -> OnText:
        """When the model answers and calls nothing."""
        return ACCEPT

    async def on_error(self, state: TurnState, error: LlmError) -> OnError:
        """When no provider of the plan could answer."""
        return RAISE

    async def after_turn(self, state: TurnState, result: LlmResult) -> AfterTurn:
        """When a turn's tool results stand in the conversation."""
        return CONTINUE


def ladder_verdict(error: ToolCallError) -> Feed | Fail:
    """Return what an agent node does about a tool's error.

    Source: docs/design/agent-node.md#failures.
    """
    if is_correctable(error):
        return Feed(str(error))
    failure = failure_of(error)
    return Fail(failure.code, failure.message)
