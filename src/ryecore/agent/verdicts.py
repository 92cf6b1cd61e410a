"""The policy of the turn core: frozen verdicts, by which its callers can differ.

Source: decision 49.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, TypeAlias

from ryecore.agent.outcome import ErrorCode, failure_of, is_correctable
from ryecore.errors import LlmError, ToolCallError
from ryecore.frozen import frozen
from ryecore.llm.fallback_rules import GO, AttemptVerdict, FallbackPlanEntry, Go, Refuse
from ryecore.llm.parts import Message, ToolCallPart, ToolResultPart
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
    """The verdict to request an answer of bounded length."""

    max_output_tokens: int


@frozen
class Stop:
    """The verdict to end here, with the results so far. The reason is a word or two."""

    reason: str


@frozen
class Dispatch:
    """The verdict to call the tool."""


@frozen
class Feed:
    """The verdict to send the model a text in place of a result; perhaps it spends a correction."""

    text: str
    is_error: bool = True
    is_correction: bool = True


@frozen
class Fail:
    """The verdict to end as a failure; the code decides whether it is retryable."""

    code: ErrorCode
    message: str


@frozen
class Finish:
    """The verdict to end with an output. The turn's other calls are answered as not run."""

    output: object


@frozen
class Keep:
    """The verdict to send the model the result unchanged."""


class _TheText(Enum):
    """A placeholder for the answer's own text, as any value, even null, could be an output."""

    THE_TEXT = "the text"


THE_TEXT: Final = _TheText.THE_TEXT


@frozen
class Accept:
    """The verdict that the text is the answer, or else its output."""

    output: object = THE_TEXT


@frozen
class Nudge:
    """The verdict to send the model a user message and take another turn.

    If it is a correction, `code` is the failure's code once the correction budget is used up.
    """

    text: str
    is_correction: bool = True
    code: ErrorCode = "validation"


@frozen
class Raise:
    """The verdict that the error ends the turns."""


@frozen
class RetryTurn:
    """The verdict to ask again, after a delay."""

    delay_s: float = 0.0


@frozen
class Continue:
    """The verdict to take the next turn."""


@frozen
class Replace:
    """The verdict to go on, or to ask again, with another conversation, passed as a whole."""

    messages: tuple[Message, ...]


@frozen
class HandOff:
    """The verdict to end here, because another thread continues with the data."""

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
OnError: TypeAlias = Raise | RetryTurn | Replace | Stop
AfterTurn: TypeAlias = Continue | Replace | HandOff | Stop


@frozen(slots=False)
class TurnState:
    """The state of the turns.

    `turn` counts from 1, `corrections` the turns spent on corrections, and `errors` those since the
    last answer that led to a retry. `messages` continues to grow.
    """

    turn: int
    messages: Sequence[Message]
    corrections: int = 0
    errors: int = 0


class TurnPolicy:
    """The decisions of a caller of the turn core; by default those of an agent node.

    Source: docs/design/agent-node.md#failures; decision 49.
    """

    async def before_turn(self, state: TurnState) -> BeforeTurn:
        """Decide before a model is asked."""
        return GO

    async def before_attempt(
        self, entry: FallbackPlanEntry, request: LlmRequest, number: int
    ) -> AttemptVerdict:
        """Decide before each try of a turn, numbered from 1; the fallback chain calls this."""
        return GO

    async def on_answer(self, state: TurnState, result: LlmResult) -> LlmResult:
        """Process an answer before anything else does, and return the one to continue with."""
        return result

    async def on_call(self, state: TurnState, call: ToolCallPart, tool: ToolDef | None) -> OnCall:
        """Decide on each call of a turn before the first is dispatched. The tool may not exist."""
        return DISPATCH

    async def on_result(
        self, state: TurnState, call: ToolCallPart, came: ToolOutcome | ToolCallError
    ) -> OnResult:
        """Decide after the end of a call, successful or not."""
        if isinstance(came, ToolCallError):
            return ladder_verdict(came)
        return KEEP

    async def on_final_result(self, state: TurnState, part: ToolResultPart) -> None:
        """Take the final result of a call for the model, also of a call that wasn't run."""

    async def on_text(self, state: TurnState, result: LlmResult) -> OnText:
        """Decide on an answer without tool calls."""
        return ACCEPT

    async def on_error(self, state: TurnState, error: LlmError) -> OnError:
        """Decide after no provider of the plan could answer."""
        return RAISE

    async def after_turn(self, state: TurnState, result: LlmResult) -> AfterTurn:
        """Decide once a turn's tool results are in the conversation."""
        return CONTINUE


def ladder_verdict(error: ToolCallError) -> Feed | Fail:
    """Return an agent node's verdict on a tool's error.

    Source: docs/design/agent-node.md#failures.
    """
    if is_correctable(error):
        return Feed(str(error))
    failure = failure_of(error)
    return Fail(failure.code, failure.message)
