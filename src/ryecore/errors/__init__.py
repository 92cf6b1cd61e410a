"""Every error that ryecore raises on purpose.

RyeError
├── ItemError               an item can't be found, named or read
│   ├── InvalidItemId           (also a ValueError)
│   ├── ItemNotFound            (also a LookupError)
│   ├── AmbiguousItem           two files, or two kinds, answer to one name
│   ├── LinkLeavesSpace         a write would follow a link out of its space
│   ├── MetadataError           broken Python, YAML, JSON or header
│   └── GraphInvalid            a state graph that can't run; every problem is listed
├── IntegrityError          what stands on disk is not what a trusted key signed
│   ├── UnsignedItem
│   ├── MalformedSignature
│   ├── ContentChanged
│   ├── BadSignature            moved, renamed, back-dated or forged
│   └── UntrustedKey
│       └── RevokedKey          revoked, or past its `not_after`
├── SigningError            a key or a signature can't be made
├── ChainError              tool -> runtime -> primitive does not hold
│   ├── ChainTooDeep
│   ├── CircularDependency
│   ├── ExecutorNotFound        (also a ValueError)
│   ├── MissingExecutorId
│   ├── IncompatibleChain       spaces, inputs and outputs, versions
│   ├── InterpreterNotFound
│   └── AnchorError
├── ConfigError             a configuration file can't be used
│   ├── PlaceholderInScript     a value would become part of a program
│   └── UnresolvedPlaceholder   a command line names what has no value
├── InputError              the caller asked for something that can't be done
│   ├── InvalidParameters       every failing path is listed
│   ├── InvalidInputs           a directive's; what it declares is listed
│   ├── InvalidQuery            a search query, with the place that can't be read
│   ├── NotApproved             the host's approval is missing or was refused
│   ├── UnsupportedExecution    a cell of the execution matrix that is refused
│   └── NotAvailableYet         a part that this version lacks
├── StateError              `.ai/state` can't be used
│   ├── ThreadNotFound          (also a LookupError)
│   ├── ThreadConflict          the thread's status doesn't allow what was asked for
│   │   └── AlreadyStarted          the same, with the same idempotency key
│   ├── LimitReached            a limit of a thread, which `limit_code` names
│   ├── StateLocked             another process holds a lock for too long
│   ├── UnattestedState         it was made elsewhere, or by another user space
│   └── BudgetError             a thread's budget doesn't allow what was asked for
│       ├── InsufficientBudget      less is left than was asked for, or nothing more is held
│       └── BudgetNotRegistered     (also a LookupError)
├── McpError                an MCP server can't be reached, or broke off
│   └── McpToolChanged          a tool is not the one that was pinned
├── LlmError                a model's provider failed; `kind` says how
├── ToolCallError           a model's call of a tool can't be served
│   ├── UnknownToolError        (also a LookupError) the model can correct it
│   ├── ToolArgsInvalidError    the model can correct it
│   ├── ToolPolicyError         denied: by grant, policy or approval
│   ├── ToolExecutionError      the tool ran and failed, or was too slow
│   ├── ToolCancelledError      cancelled while it ran
│   └── HostCapabilityMissing   the host doesn't offer what the tool needs
├── AgentTurnError          an agent's turns ended without a result; `code` says why
├── MissingExtra            an optional dependency is not installed
├── TextTooLong             a text can't be searched for a signed regular expression
├── ToolFailed              a tool ran and failed (raised by `raise_for_status` alone)
├── CallCancelled           the caller's token cancelled the call
├── RyeClosed               the Rye was closed while the call ran, or before
└── ProcessError            lillux: processes, content store
    ├── SpawnFailed
    └── StoreError

Each carries its facts as attributes, and `next_step` says what to do about it.
"""

from ryecore.errors.agents import (
    AgentTurnError,
    HostCapabilityMissing,
    LlmError,
    ToolArgsInvalidError,
    ToolCallError,
    ToolCancelledError,
    ToolExecutionError,
    ToolPolicyError,
    UnknownToolError,
)
from ryecore.errors.base import (
    RyeError,
)
from ryecore.errors.calls import (
    AlreadyStarted,
    CallCancelled,
    InputError,
    InvalidInputs,
    InvalidParameters,
    InvalidQuery,
    McpError,
    McpToolChanged,
    MissingExtra,
    NotApproved,
    NotAvailableYet,
    RyeClosed,
    StateError,
    TextTooLong,
    ThreadConflict,
    ThreadNotFound,
    ToolFailed,
    UnsupportedExecution,
)
from ryecore.errors.graphs import (
    GraphInvalid,
)
from ryecore.errors.items import (
    AmbiguousItem,
    AnchorError,
    BadSignature,
    ChainError,
    ChainTooDeep,
    CircularDependency,
    ConfigError,
    ContentChanged,
    ExecutorNotFound,
    IncompatibleChain,
    IntegrityError,
    InterpreterNotFound,
    InvalidItemId,
    ItemError,
    ItemNotFound,
    LinkLeavesSpace,
    MalformedSignature,
    MetadataError,
    MissingExecutorId,
    PlaceholderInScript,
    ProcessError,
    RevokedKey,
    SigningError,
    SpawnFailed,
    StoreError,
    UnresolvedPlaceholder,
    UnsignedItem,
    UntrustedKey,
)
from ryecore.errors.state import (
    StateLocked,
    UnattestedState,
)
from ryecore.errors.threads import (
    BudgetError,
    BudgetNotRegistered,
    InsufficientBudget,
    LimitReached,
)

__all__ = [
    "AgentTurnError",
    "AlreadyStarted",
    "AmbiguousItem",
    "AnchorError",
    "BadSignature",
    "BudgetError",
    "BudgetNotRegistered",
    "CallCancelled",
    "ChainError",
    "ChainTooDeep",
    "CircularDependency",
    "ConfigError",
    "ContentChanged",
    "ExecutorNotFound",
    "GraphInvalid",
    "HostCapabilityMissing",
    "IncompatibleChain",
    "InputError",
    "InsufficientBudget",
    "IntegrityError",
    "InterpreterNotFound",
    "InvalidInputs",
    "InvalidItemId",
    "InvalidParameters",
    "InvalidQuery",
    "ItemError",
    "ItemNotFound",
    "LimitReached",
    "LinkLeavesSpace",
    "LlmError",
    "MalformedSignature",
    "McpError",
    "McpToolChanged",
    "MetadataError",
    "MissingExecutorId",
    "MissingExtra",
    "NotApproved",
    "NotAvailableYet",
    "PlaceholderInScript",
    "ProcessError",
    "RevokedKey",
    "RyeClosed",
    "RyeError",
    "SigningError",
    "SpawnFailed",
    "StateError",
    "StateLocked",
    "StoreError",
    "TextTooLong",
    "ThreadConflict",
    "ThreadNotFound",
    "ToolArgsInvalidError",
    "ToolCallError",
    "ToolCancelledError",
    "ToolExecutionError",
    "ToolFailed",
    "ToolPolicyError",
    "UnattestedState",
    "UnknownToolError",
    "UnresolvedPlaceholder",
    "UnsignedItem",
    "UnsupportedExecution",
    "UntrustedKey",
]
