"""The outcome of a node, and the ladder that maps errors to failures. Pure.

Source: docs/design/agent-node.md#failures; decisions 49 to 53 and 59.
"""

from typing import TYPE_CHECKING, Final, Generic, Literal, Self, TypeAlias, get_args

from attrs import asdict, field

from ryecore.chain.primitives import with_unknown_effect
from ryecore.convert.fields import omitted_at_default, written_by
from ryecore.convert.strict import WIRE
from ryecore.errors import (
    AgentTurnError,
    HostCapabilityMissing,
    LlmError,
    RyeError,
    ToolArgsInvalidError,
    ToolCallError,
    ToolCancelledError,
    ToolExecutionError,
    ToolPolicyError,
    UnknownToolError,
)
from ryecore.errors.agents import facts_of_kind
from ryecore.frozen import frozen
from ryecore.llm.parts import MediaPart
from ryecore.llm.redaction import redact
from ryecore.llm.result import StopReason
from ryecore.tools.results import as_json

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    OutputT = TypeVar("OutputT", default=object)
    OutputT_co = TypeVar("OutputT_co", covariant=True, default=object)
else:
    from typing import TypeVar

    OutputT = TypeVar("OutputT")
    OutputT_co = TypeVar("OutputT_co", covariant=True)

__all__ = [
    "ERROR_CODES",
    "RETRYABLE_CODES",
    "ErrorCode",
    "NodeFailure",
    "NodeOutcome",
    "OutputT",
    "OutputT_co",
    "TokensUsed",
    "failure_of",
    "is_correctable",
    "turn_error",
]

ErrorCode: TypeAlias = Literal[
    "cancelled",
    "tool_denied",
    "tool_failed",
    "turn_limit",
    "validation",
    "budget_exceeded",
    "provider_auth",
    "provider_rate_limit",
    "provider_unavailable",
    "content_filter",
    "integrity",
    "internal",
]
"""The reasons why a node fails: a closed set. `integrity` is only for a graph's nodes: an item of
theirs isn't what a trusted key signed."""

ERROR_CODES: Final[tuple[ErrorCode, ...]] = get_args(ErrorCode)
_BY_NAME: Final[dict[str, ErrorCode]] = {code: code for code in ERROR_CODES}

RETRYABLE_CODES: Final[frozenset[ErrorCode]] = frozenset(
    {"tool_failed", "provider_rate_limit", "provider_unavailable"}
)


@frozen
class NodeFailure:
    """The failure of a node.

    Attributes:
        code: The reason, one of a closed set.
        message: The failure and the next step, without secrets.
        retryable: Whether the same run may succeed later.
        effect_unknown: Whether a tool was interrupted and may have had its effect.
        node: The id of the graph's node; empty for a node that runs outside of a graph.
    """

    code: ErrorCode
    message: str
    retryable: bool = False
    effect_unknown: bool = field(default=False, metadata=omitted_at_default())
    node: str = field(default="", metadata=omitted_at_default())

    def to_dict(self) -> dict[str, object]:
        """Return the failure as JSON types; `effect_unknown` and `node` only where they are set."""
        failure: dict[str, object] = WIRE.write(self)
        return failure


@frozen
class TokensUsed:
    """The tokens of a whole run, in all tries.

    Attributes:
        input: All tokens that were read.
        output: All tokens that were written, reasoning included.
        model: The model that answered last.
        estimated: Whether a part of them is an estimate, because a provider reported no tokens.
    """

    input: int = 0
    output: int = 0
    model: str = ""
    estimated: bool = field(default=False, metadata=omitted_at_default())

    def to_dict(self) -> dict[str, object]:
        """Return the tokens as JSON types, with `estimated` only if a part is an estimate."""
        counted: dict[str, object] = WIRE.write(self)
        return counted


def _json_ready(output: object) -> object:
    if output is None or isinstance(output, str):
        return output
    media = output.get("media") if isinstance(output, dict) else None
    if not isinstance(output, dict) or not isinstance(media, list):
        return as_json(output)
    return output | {"media": [asdict(one) if isinstance(one, MediaPart) else one for one in media]}


@frozen
class NodeOutcome(Generic[OutputT_co]):
    """The outcome of a node.

    Attributes:
        status: `completed`, `failed`, or `pending` while a job of the provider runs.
        output: The answer: text, a value of the agent's `output_type`, the JSON value of a schema,
            or `{"text", "media"}` if it has media.
        tokens_used: The tokens.
        failure: The failure, if it failed.
        stop_reason: Why the model stopped, if it was asked; `length` means that it was cut off.
        job_id: The id to poll while it is pending; opaque.

    Source: docs/design/agent-node.md; decision 59.
    """

    status: Literal["completed", "failed", "pending"]
    output: OutputT_co | None = field(default=None, metadata=written_by(_json_ready))
    tokens_used: TokensUsed = TokensUsed()
    failure: NodeFailure | None = None
    stop_reason: StopReason | None = None
    job_id: str | None = None

    @classmethod
    def failed(
        cls,
        code: ErrorCode,
        message: str,
        *,
        retryable: bool | None = None,
        tokens_used: TokensUsed | None = None,
        effect_unknown: bool = False,
    ) -> Self:
        """Return a failure. Its code decides whether it is retryable, unless that is passed.

        If the effect is unknown, the last sentence of the message says so.
        """
        failure = NodeFailure(
            code,
            with_unknown_effect(message) if effect_unknown else message,
            code in RETRYABLE_CODES if retryable is None else retryable,
            effect_unknown,
        )
        return cls("failed", None, tokens_used or TokensUsed(), failure)

    def to_dict(self) -> dict[str, object]:
        """Return the outcome as JSON types, with media by their handles.

        Raises:
            TypeError: The output has no JSON form.
        """
        outcome: dict[str, object] = WIRE.write(self)
        return outcome


def turn_error(code: ErrorCode, message: str, *, next_step: str = "") -> AgentTurnError:
    """Return an error that ends an agent's turns."""
    return AgentTurnError(
        message, next_step=next_step, code=code, retryable=code in RETRYABLE_CODES
    )


def is_correctable(error: ToolCallError) -> bool:
    """Return whether the model can correct the error if it sees it."""
    return isinstance(error, UnknownToolError | ToolArgsInvalidError)


def failure_of(error: Exception) -> NodeFailure:
    """Return the failure for an error, by its type and kind, never by its text.

    A cancellation takes precedence over every error, which the caller ensures.
    """
    code, retryable = _classified(error)
    return NodeFailure(code, _text(error), retryable)


def _text(error: Exception) -> str:
    """Return the safe text of an error: one that isn't ours may quote secrets."""
    if isinstance(error, RyeError):
        return str(error)
    try:
        said = str(error)
    except Exception:
        said = "its text can't be read"
    return redact(f"{type(error).__name__}: {said}")


def _classified(error: Exception) -> tuple[ErrorCode, bool]:
    match error:
        case AgentTurnError():
            return _BY_NAME.get(error.code, "internal"), error.retryable
        case LlmError():
            return _BY_NAME[facts_of_kind(error.kind).node_code], error.retryable
        case ToolCancelledError():
            return "cancelled", False
        case ToolPolicyError():
            return "tool_denied", False
        case HostCapabilityMissing():
            return "internal", False
        case ToolExecutionError() | UnknownToolError() | ToolArgsInvalidError():
            return "tool_failed", True
        case _:
            return "internal", False
