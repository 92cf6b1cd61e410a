"""The errors of ryecore, one tree.

RyeError
├── ItemError               an item can't be found, named or read
│   ├── InvalidItemId           (also a ValueError)
│   ├── ItemNotFound            (also a LookupError)
│   ├── AmbiguousItem           one name matches two files, or two kinds
│   ├── LinkLeavesSpace         a write would follow a link out of its space
│   ├── MetadataError           broken Python, YAML, JSON or header
│   └── GraphInvalid            a state graph that can't run; every problem is listed
├── IntegrityError          a file is not what a trusted key signed
│   ├── UnsignedItem
│   ├── MalformedSignature
│   ├── ContentChanged
│   ├── BadSignature            moved, renamed, back-dated or forged
│   └── UntrustedKey
│       └── RevokedKey          revoked, or past its `not_after`
├── SigningError            a key or a signature can't be made
├── ChainError              the chain tool -> runtime -> primitive is invalid
│   ├── ChainTooDeep
│   ├── CircularDependency
│   ├── ExecutorNotFound        (also a ValueError)
│   ├── MissingExecutorId
│   ├── IncompatibleChain       spaces, inputs and outputs, versions
│   ├── InterpreterNotFound
│   └── AnchorError
├── ConfigError             a configuration file or an option can't be used
│   ├── PlaceholderInScript     a value would become part of a program
│   └── UnresolvedPlaceholder   a placeholder of a command line has no value
├── InputError              a request can't be carried out as it was made
│   ├── InvalidParameters       every failing path is listed
│   ├── InvalidInputs           of a directive; the declared inputs are listed
│   ├── InvalidQuery            a search query can't be parsed
│   ├── NotApproved             the host's approval is missing or was refused
│   ├── UnsupportedExecution    refused by the execution matrix
│   └── NotAvailableYet         not part of this version
├── StateError              `.ai/state` can't be used
│   ├── ThreadNotFound          (also a LookupError)
│   ├── ThreadConflict          the thread's status rules the request out
│   │   └── AlreadyStarted          with the same idempotency key
│   ├── LimitReached            a limit of a thread, which `limit_code` names
│   ├── StateLocked             another process held a lock for too long
│   ├── UnattestedState         made elsewhere, or by another user space
│   └── BudgetError             a thread's budget doesn't allow the request
│       ├── InsufficientBudget      less is left than was requested
│       └── BudgetNotRegistered     (also a LookupError)
├── McpError                an MCP server can't be reached, or hung up
│   └── McpToolChanged          a tool differs from the one that was pinned
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
    TextTooLong,
    ToolFailed,
    UnsupportedExecution,
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
    GraphInvalid,
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
    AlreadyStarted,
    BudgetError,
    BudgetNotRegistered,
    InsufficientBudget,
    LimitReached,
    StateError,
    StateLocked,
    ThreadConflict,
    ThreadNotFound,
    UnattestedState,
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
