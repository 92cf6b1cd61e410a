"""The protocol of model providers: requests, answers, streams, errors, fallback and costs."""

from typing import TYPE_CHECKING

from ryecore._lazy import lazy_names

if TYPE_CHECKING:
    from ryecore.errors.agents import RETRYABLE_KINDS as RETRYABLE_KINDS
    from ryecore.errors.agents import LlmError as LlmError
    from ryecore.errors.agents import LlmErrorKind as LlmErrorKind
    from ryecore.llm.attachments import Media as Media
    from ryecore.llm.cost import AttemptCost as AttemptCost
    from ryecore.llm.cost import CostTracker as CostTracker
    from ryecore.llm.cost import Price as Price
    from ryecore.llm.cost import PriceLookup as PriceLookup
    from ryecore.llm.fallback import FallbackChain as FallbackChain
    from ryecore.llm.fallback_rules import GO as GO
    from ryecore.llm.fallback_rules import AttemptOutcome as AttemptOutcome
    from ryecore.llm.fallback_rules import AttemptRecord as AttemptRecord
    from ryecore.llm.fallback_rules import AttemptVerdict as AttemptVerdict
    from ryecore.llm.fallback_rules import Backoff as Backoff
    from ryecore.llm.fallback_rules import ChainOptions as ChainOptions
    from ryecore.llm.fallback_rules import FallbackPlanEntry as FallbackPlanEntry
    from ryecore.llm.fallback_rules import Go as Go
    from ryecore.llm.fallback_rules import Refuse as Refuse
    from ryecore.llm.media import FolderMediaStore as FolderMediaStore
    from ryecore.llm.media import MediaStore as MediaStore
    from ryecore.llm.media import MemoryMediaStore as MemoryMediaStore
    from ryecore.llm.media import ObjectMediaStore as ObjectMediaStore
    from ryecore.llm.messages import SavedJson as SavedJson
    from ryecore.llm.messages import messages_from_json as messages_from_json
    from ryecore.llm.messages import messages_to_json as messages_to_json
    from ryecore.llm.network import allow_model_requests as allow_model_requests
    from ryecore.llm.network import check_model_requests_allowed as check_model_requests_allowed
    from ryecore.llm.network import refuse_model_requests as refuse_model_requests
    from ryecore.llm.parts import MediaPart as MediaPart
    from ryecore.llm.parts import Message as Message
    from ryecore.llm.parts import Part as Part
    from ryecore.llm.parts import ReasoningPart as ReasoningPart
    from ryecore.llm.parts import ResultContent as ResultContent
    from ryecore.llm.parts import Role as Role
    from ryecore.llm.parts import TextPart as TextPart
    from ryecore.llm.parts import ToolCallPart as ToolCallPart
    from ryecore.llm.parts import ToolResultPart as ToolResultPart
    from ryecore.llm.provider import LlmProvider as LlmProvider
    from ryecore.llm.provider import MediaJob as MediaJob
    from ryecore.llm.provider import MediaOutcome as MediaOutcome
    from ryecore.llm.provider import MediaProvider as MediaProvider
    from ryecore.llm.provider import MediaRequest as MediaRequest
    from ryecore.llm.provider import MediaResult as MediaResult
    from ryecore.llm.rate_rules import RateLimit as RateLimit
    from ryecore.llm.redaction import redact as redact
    from ryecore.llm.request import CacheLifetime as CacheLifetime
    from ryecore.llm.request import Capabilities as Capabilities
    from ryecore.llm.request import LlmRequest as LlmRequest
    from ryecore.llm.request import ReasoningEffort as ReasoningEffort
    from ryecore.llm.request import ResponseFormat as ResponseFormat
    from ryecore.llm.request import ToolChoice as ToolChoice
    from ryecore.llm.request import ToolSpec as ToolSpec
    from ryecore.llm.request import missing_capabilities as missing_capabilities
    from ryecore.llm.result import LlmResult as LlmResult
    from ryecore.llm.result import StopReason as StopReason
    from ryecore.llm.result import Usage as Usage
    from ryecore.llm.stream import MediaChunk as MediaChunk
    from ryecore.llm.stream import ReasoningDelta as ReasoningDelta
    from ryecore.llm.stream import StreamChunk as StreamChunk
    from ryecore.llm.stream import StreamEnd as StreamEnd
    from ryecore.llm.stream import StreamFold as StreamFold
    from ryecore.llm.stream import TextDelta as TextDelta
    from ryecore.llm.stream import ToolCallDelta as ToolCallDelta
    from ryecore.llm.stream import ToolCallStart as ToolCallStart
    from ryecore.llm.stream import UsageUpdate as UsageUpdate
else:
    __getattr__, __dir__ = lazy_names(__name__)
