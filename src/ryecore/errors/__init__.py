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
│   ├── InvalidConversation     damaged, or tool calls without results
│   ├── InvalidInputs           of a directive; the declared inputs are listed
│   ├── InvalidQuery            a search query can't be parsed
│   ├── NotApproved             the host's approval is missing or was refused
│   ├── UnsupportedExecution    refused by the execution matrix
│   └── NotAvailableYet         not part of this version
├── AuditError              the audit log can't be written, so nothing runs
├── StateError              `.ai/state` can't be used
│   ├── ThreadNotFound          (also a LookupError)
│   ├── ThreadConflict          the thread's status rules the request out
│   │   └── AlreadyStarted          with the same idempotency key
│   ├── LimitReached            a limit of a thread, which `limit_code` names
│   ├── StateLocked             another process held a lock for too long
│   ├── StateUnreachable        its server is away, or refuses the user
│   ├── UnattestedState         made elsewhere, or by another user space
│   └── BudgetError             a thread's budget doesn't allow the request
│       ├── InsufficientBudget      less is left than was requested
│       └── BudgetNotRegistered     (also a LookupError)
├── RemoteError             a node refuses a request, or can't be used
│   ├── RemoteUnavailable       it can't be reached; what it runs continues
│   └── RemoteUntrusted         what came isn't signed by the node's key
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
├── Retry                   an agent's output isn't accepted (raised by an `output_check`)
├── MissingExtra            an optional dependency is not installed
├── TextTooLong             a text can't be searched for a signed regular expression
├── ToolFailed              a tool ran and failed (raised only by `raise_for_status`)
│   └── ThreadFailed            a directive's thread failed; `code` says why
├── CallCancelled           the caller's token cancelled the call
├── RyeClosed               the Rye was closed while the call ran, or before
└── ProcessError            lillux: processes, content store
    ├── SpawnFailed
    └── StoreError

Each carries its facts as attributes, and `next_step` says what to do about it.
"""

from typing import TYPE_CHECKING

from ryecore._lazy import lazy_names

if TYPE_CHECKING:
    from ryecore.errors.agents import AgentTurnError as AgentTurnError
    from ryecore.errors.agents import HostCapabilityMissing as HostCapabilityMissing
    from ryecore.errors.agents import LlmError as LlmError
    from ryecore.errors.agents import Retry as Retry
    from ryecore.errors.agents import ToolArgsInvalidError as ToolArgsInvalidError
    from ryecore.errors.agents import ToolCallError as ToolCallError
    from ryecore.errors.agents import ToolCancelledError as ToolCancelledError
    from ryecore.errors.agents import ToolExecutionError as ToolExecutionError
    from ryecore.errors.agents import ToolPolicyError as ToolPolicyError
    from ryecore.errors.agents import UnknownToolError as UnknownToolError
    from ryecore.errors.base import RyeError as RyeError
    from ryecore.errors.items import AmbiguousItem as AmbiguousItem
    from ryecore.errors.items import AnchorError as AnchorError
    from ryecore.errors.items import BadSignature as BadSignature
    from ryecore.errors.items import ChainError as ChainError
    from ryecore.errors.items import ChainTooDeep as ChainTooDeep
    from ryecore.errors.items import CircularDependency as CircularDependency
    from ryecore.errors.items import ConfigError as ConfigError
    from ryecore.errors.items import ContentChanged as ContentChanged
    from ryecore.errors.items import ExecutorNotFound as ExecutorNotFound
    from ryecore.errors.items import GraphInvalid as GraphInvalid
    from ryecore.errors.items import IncompatibleChain as IncompatibleChain
    from ryecore.errors.items import IntegrityError as IntegrityError
    from ryecore.errors.items import InterpreterNotFound as InterpreterNotFound
    from ryecore.errors.items import InvalidItemId as InvalidItemId
    from ryecore.errors.items import ItemError as ItemError
    from ryecore.errors.items import ItemNotFound as ItemNotFound
    from ryecore.errors.items import LinkLeavesSpace as LinkLeavesSpace
    from ryecore.errors.items import MalformedSignature as MalformedSignature
    from ryecore.errors.items import MetadataError as MetadataError
    from ryecore.errors.items import MissingExecutorId as MissingExecutorId
    from ryecore.errors.items import PlaceholderInScript as PlaceholderInScript
    from ryecore.errors.items import ProcessError as ProcessError
    from ryecore.errors.items import RevokedKey as RevokedKey
    from ryecore.errors.items import SigningError as SigningError
    from ryecore.errors.items import SpawnFailed as SpawnFailed
    from ryecore.errors.items import StoreError as StoreError
    from ryecore.errors.items import UnresolvedPlaceholder as UnresolvedPlaceholder
    from ryecore.errors.items import UnsignedItem as UnsignedItem
    from ryecore.errors.items import UntrustedKey as UntrustedKey
    from ryecore.errors.requests import AuditError as AuditError
    from ryecore.errors.requests import CallCancelled as CallCancelled
    from ryecore.errors.requests import InputError as InputError
    from ryecore.errors.requests import InvalidConversation as InvalidConversation
    from ryecore.errors.requests import InvalidInputs as InvalidInputs
    from ryecore.errors.requests import InvalidParameters as InvalidParameters
    from ryecore.errors.requests import InvalidQuery as InvalidQuery
    from ryecore.errors.requests import McpError as McpError
    from ryecore.errors.requests import McpToolChanged as McpToolChanged
    from ryecore.errors.requests import MissingExtra as MissingExtra
    from ryecore.errors.requests import NotApproved as NotApproved
    from ryecore.errors.requests import NotAvailableYet as NotAvailableYet
    from ryecore.errors.requests import RemoteError as RemoteError
    from ryecore.errors.requests import RemoteUnavailable as RemoteUnavailable
    from ryecore.errors.requests import RemoteUntrusted as RemoteUntrusted
    from ryecore.errors.requests import RyeClosed as RyeClosed
    from ryecore.errors.requests import TextTooLong as TextTooLong
    from ryecore.errors.requests import ThreadFailed as ThreadFailed
    from ryecore.errors.requests import ToolFailed as ToolFailed
    from ryecore.errors.requests import UnsupportedExecution as UnsupportedExecution
    from ryecore.errors.state import AlreadyStarted as AlreadyStarted
    from ryecore.errors.state import BudgetError as BudgetError
    from ryecore.errors.state import BudgetNotRegistered as BudgetNotRegistered
    from ryecore.errors.state import InsufficientBudget as InsufficientBudget
    from ryecore.errors.state import LimitReached as LimitReached
    from ryecore.errors.state import StateError as StateError
    from ryecore.errors.state import StateLocked as StateLocked
    from ryecore.errors.state import StateUnreachable as StateUnreachable
    from ryecore.errors.state import ThreadConflict as ThreadConflict
    from ryecore.errors.state import ThreadNotFound as ThreadNotFound
    from ryecore.errors.state import UnattestedState as UnattestedState
else:
    __getattr__, __dir__ = lazy_names(__name__)
