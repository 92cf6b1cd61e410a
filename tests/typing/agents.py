"""What a type checker sees of models, tools and agents. Checked by mypy and pyright, never run."""

from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Literal, assert_never, assert_type

from ryecore import (
    Agent,
    AgentNode,
    AgentRunnerDeps,
    AgentSession,
    AgentToken,
    AgentToolCall,
    AgentToolResult,
    AgentTurnLimits,
    CostTracker,
    CostUpdated,
    ErrorCode,
    EventBus,
    FallbackChain,
    FallbackPlanEntry,
    LlmProvider,
    MediaSurface,
    NodeExecContext,
    NodeExecutor,
    NodeFailure,
    NodeOutcome,
    ToolDef,
    ToolRegistry,
    create_agent_node_executor,
    tool,
)
from ryecore.agent import AgentEvent, AgentObserver, OtelObserver, Reply
from ryecore.llm import (
    AttemptRecord,
    Capabilities,
    ChainOptions,
    LlmRequest,
    LlmResult,
    MediaStore,
    Message,
    Price,
    StreamChunk,
    StreamEnd,
    StreamFold,
    TextDelta,
    Usage,
)
from ryecore.results import Envelope, EventsMissed, EventStream
from ryecore.testing import ScriptedProvider, call, say
from ryecore.tools import ToolContext


class MyProvider:
    """Somebody's own provider, which inherits from nothing."""

    @property
    def provider_id(self) -> str:
        return "mine"

    def capabilities(self, model: str) -> Capabilities:
        return Capabilities(reasoning=True, input_media={"image/png"})

    async def stream(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> AsyncIterator[StreamChunk]:
        yield TextDelta("hello")
        yield StreamEnd("stop", Usage(1, 1))

    async def generate(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> LlmResult:
        fold = StreamFold(self.provider_id, request.model)
        async for chunk in self.stream(request, key=key, media=media):
            fold.add(chunk)
        return fold.result()


mine: LlmProvider = MyProvider()
scripted: LlmProvider = ScriptedProvider([call("add", {"a": 1, "b": 2}), say("3")])
PROVIDERS: dict[str, LlmProvider] = {"mine": mine, "scripted": scripted}
KEYS: dict[str, str] = {"mine": "", "scripted": ""}


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(name="look", parallel_safe=True, timeout_s=2.5, needs={"net"})
async def look_up(word: str, ctx: ToolContext) -> list[str]:
    """Look a word up."""
    return [word]


def tools_stay_functions() -> None:
    assert_type(add(1, b=2), int)
    add("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    plain: ToolDef = add
    assert_type(plain.parallel_safe, bool)
    assert_type(ToolDef.from_function(len).name, str)


async def async_tools_stay_async(ctx: ToolContext) -> None:
    assert_type(await look_up("tide", ctx), list[str])


def on_cost(record: AttemptRecord) -> None:
    tracker = CostTracker(lambda provider, model: Price("3", "15") if model == "m" else None)
    assert_type(tracker.record(record).cost_usd, Decimal)
    assert_type(tracker.cost_usd, Decimal)


async def refresh(provider_id: str) -> bool:
    return provider_id == "mine"


async def key_of(provider_id: str) -> str:
    return KEYS[provider_id]


def surface(model: str) -> MediaSurface | None:
    return "generative" if model == "painter" else None


deps = AgentRunnerDeps(
    resolve_provider=PROVIDERS.get,
    key_for=KEYS.__getitem__,
    registry=ToolRegistry([add, look_up]),
    limits=AgentTurnLimits(max_tool_turns=8),
    on_auth_error=refresh,
    resolve_media_surface=surface,
    host_capabilities={"net"},
)
awaited = AgentRunnerDeps(resolve_provider=PROVIDERS.get, key_for=key_of, tools=[add])
agent = Agent(name="helper", provider="mine", model="m", tools=["add", "look"])


async def executor(node: AgentNode) -> NodeOutcome:
    execute: NodeExecutor = create_agent_node_executor(deps)
    outcome = await execute(NodeExecContext(vertex=node, resolved_agent=agent))
    assert_type(outcome, NodeOutcome)
    assert_type(outcome.status, Literal["completed", "failed", "pending"])
    assert_type(outcome.failure, NodeFailure | None)
    if outcome.failure is not None:
        code: ErrorCode = outcome.failure.code
        assert code != "tool_denied" or not outcome.failure.retryable
    return outcome


async def waits(ctx: NodeExecContext, /) -> NodeOutcome:
    return NodeOutcome("completed", ctx.inputs)


handled: NodeExecutor = create_agent_node_executor(deps, handlers={"wait": waits})


async def session() -> None:
    conversation = AgentSession(agent, deps)
    reply = await conversation.send("1 + 2?")
    assert_type(reply, Reply)
    assert_type(reply.text, str)
    assert_type(conversation.messages, tuple[Message, ...])
    async with conversation.stream("And now?") as events:
        async for event in events:
            told(event)
    assert_type(events.reply, Reply)


def told(event: AgentEvent) -> str:
    """Every event is one of four, and no other."""
    match event:
        case AgentToken():
            return event.token
        case AgentToolCall() | AgentToolResult():
            return event.tool_id
        case CostUpdated():
            return str(event.cost_usd)
        case _:
            assert_never(event)


async def bus() -> None:
    events: EventBus[AgentEvent] = EventBus("run-1")
    await AgentSession(agent, deps, on_event=events.emit).send("Hello.")
    stream = events.subscribe(from_start=True)
    assert_type(stream, EventStream[AgentEvent])
    async for came in stream:
        if isinstance(came, EventsMissed):
            assert_type(came.count, int)
        else:
            assert_type(came, Envelope[AgentEvent])
            told(came.event)


async def chain(request: LlmRequest) -> None:
    plan = [FallbackPlanEntry(mine, "large", max_attempts=2), FallbackPlanEntry(scripted, "small")]
    asked = FallbackChain(plan, ChainOptions(key_for=KEYS.__getitem__))
    assert_type(await asked.stream(request, lambda chunk: None), LlmResult)


def observer() -> None:
    watching: AgentObserver = OtelObserver()
    AgentRunnerDeps(resolve_provider=PROVIDERS.get, key_for=key_of, observer=watching)
