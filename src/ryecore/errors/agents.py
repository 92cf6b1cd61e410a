"""Errors of models, of their tool calls, and of the turns of an agent."""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from ryecore.errors.base import RyeError
from ryecore.frozen import frozen

__all__ = [
    "ERROR_KINDS",
    "RETRYABLE_KINDS",
    "AgentTurnError",
    "ErrorKind",
    "HostCapabilityMissing",
    "LlmError",
    "LlmErrorKind",
    "Retry",
    "ToolArgsInvalidError",
    "ToolCallError",
    "ToolCancelledError",
    "ToolExecutionError",
    "ToolPolicyError",
    "UnknownToolError",
    "facts_of_kind",
]


LlmErrorKind: TypeAlias = Literal[
    "auth",
    "rate_limit",
    "unavailable",
    "content_filter",
    "bad_request",
    "context_length",
    "refused",
    "cancelled",
    "unknown",
]
"""How a provider failed. `refused`: the host refused before anything was sent."""


@frozen
class ErrorKind:
    """What follows from the kind of a provider's failure.

    Attributes:
        node_code: The code with which an agent node fails; one of `ErrorCode`.
        next_step: The next step for people; empty where none is known.
        ends_call: Whether no other entry of a fallback plan is asked.
    """

    node_code: str
    next_step: str = ""
    is_retryable: bool = False
    ends_call: bool = False


ERROR_KINDS: Final[Mapping[str, ErrorKind]] = {
    "auth": ErrorKind(
        "provider_auth", "Look whether the key is valid, has credit, and may use this model."
    ),
    "rate_limit": ErrorKind(
        "provider_rate_limit",
        "Wait, ask for a higher limit, or add an entry to the fallback chain.",
        is_retryable=True,
    ),
    "unavailable": ErrorKind(
        "provider_unavailable",
        "Try again later, or add an entry to the fallback chain.",
        is_retryable=True,
    ),
    "content_filter": ErrorKind(
        "content_filter", "Ask for something else, or ask another model.", ends_call=True
    ),
    "bad_request": ErrorKind(
        "validation",
        "Look at the model's name, at base_url, and at what was asked.",
        ends_call=True,
    ),
    "context_length": ErrorKind(
        "validation", "Shorten the conversation, or plan a model that reads more."
    ),
    "refused": ErrorKind("budget_exceeded", ends_call=True),
    "cancelled": ErrorKind("cancelled", ends_call=True),
    "unknown": ErrorKind("internal"),
}
"""All that follows from each kind: a new kind is an entry here, and a name in `LlmErrorKind`.

How a thread classes the kinds stands in `agent/error_classification.yaml`.

Source: docs/design/agent-node.md#failures; decision 50.
"""

RETRYABLE_KINDS: Final[frozenset[str]] = frozenset(
    kind for kind, facts in ERROR_KINDS.items() if facts.is_retryable
)
"""The kinds of failures that may pass when tried again."""


def facts_of_kind(kind: str) -> ErrorKind:
    """Return what follows from a kind of failure; one that nobody knows counts as `unknown`."""
    return ERROR_KINDS.get(kind, ERROR_KINDS["unknown"])


class LlmError(RyeError):
    """A model's provider failed; `kind` says how. No text of it holds a key.

    Attributes:
        kind: The kind of failure.
        provider: The provider's id.
        model: The model that was called.
        retry_after_s: The wait that the provider asks for, in seconds.
        status: The HTTP status, if any.
        code: The host's reason, where the host refused.
    """

    error_type = "llm"
    kind: LlmErrorKind = "unknown"
    provider: str = ""
    model: str = ""
    retry_after_s: float | None = None
    status: int | None = None
    code: str = ""

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.kind in RETRYABLE_KINDS


class ToolCallError(RyeError):
    """A model's call of a tool can't be served.

    Source: docs/design/agent-node.md#failures.
    """

    error_type = "tool_call"
    tool_name: str


class UnknownToolError(ToolCallError, LookupError):
    """The model called a tool that doesn't exist. It can correct that."""

    error_type = "unknown_tool"
    known: tuple[str, ...] = ()


class ToolArgsInvalidError(ToolCallError):
    """The arguments aren't JSON, or don't fit the tool's schema. The model can correct that."""

    error_type = "tool_args_invalid"
    failures: tuple[str, ...] = ()


class ToolPolicyError(ToolCallError):
    """The call is denied: not granted, against the tool's policy, or not approved."""

    error_type = "tool_denied"


class ToolExecutionError(ToolCallError):
    """The tool ran and failed, or took too long."""

    error_type = "tool_execution"


class ToolCancelledError(ToolCallError):
    """The tool was cancelled while it ran."""

    error_type = "tool_cancelled"


class HostCapabilityMissing(ToolCallError):
    """The host doesn't offer what the tool needs."""

    error_type = "host_capability_missing"
    capability: str


class Retry(RyeError):
    """An agent's output isn't accepted: raised by an `output_check`, and told to the model."""

    error_type = "retry"


class AgentTurnError(RyeError):
    """An agent's turns ended without a result; `code` says why.

    Attributes:
        code: One of the closed set `ErrorCode`.
        retryable: Whether the same run may succeed later.
    """

    error_type = "agent_turn"
    code: str
    retryable: bool = False
