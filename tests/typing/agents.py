"""What a type checker sees of models, tools and agents. Checked by mypy and pyright, never run."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, TypedDict, assert_never, assert_type

from ryecore import (
    Agent,
    AgentNode,
    AgentRunnerDeps,
    AgentSession,
    AgentToken,
    AgentToolCall,
    AgentToolResult,
    AgentTurnLimits,
    ApprovalRequested,
    ApprovalResolved,
    CallContext,
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
    SyncRye,
    ToolDef,
    ToolRegistry,
    create_agent_node_executor,
    tool,
)
from ryecore.agent import (
    AgentEnd,
    AgentEvent,
    AgentReasoning,
    Compact,
    CompactionFailed,
    ConversationCompacted,
    Observer,
    OtelObserver,
    Reply,
    Retry,
    SessionStream,
)
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
    messages_from_json,
    messages_to_json,
)
from ryecore.results import Envelope, EventsMissed, EventStream, ThreadResult
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
    assert_type(plain.parallel_safe, bool | None)
    assert_type(plain.runs_in_parallel, bool)
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


@dataclass
class Invoice:
    number: str
    total: float


class Refund(TypedDict):
    invoice: str


def checked(invoice: Invoice) -> None:
    if invoice.total < 0:
        raise Retry("The total is never negative.")


async def rounded(invoice: Invoice) -> Invoice | None:
    return Invoice(invoice.number, round(invoice.total, 2))


async def typed_output() -> None:
    billing = Agent(name="billing", provider="mine", model="m", output_type=Invoice)
    assert_type(billing, Agent[Invoice])
    conversation = AgentSession(billing, deps)
    assert_type(conversation, AgentSession[Invoice])
    saved = conversation.to_json()
    assert_type(saved, str)
    again = AgentSession.from_json(billing, deps, saved, session_id="s", on_event=None)
    assert_type(again, AgentSession[Invoice])
    AgentSession.from_json(billing, deps, {"format": "ryecore.session"})
    AgentSession.from_json(billing, deps, 5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    AgentSession.from_json(billing, deps, saved, messages=())  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert_type(messages_from_json(messages_to_json(again.messages)), tuple[Message, ...])
    reply = await conversation.send("Bill it.")
    assert_type(reply, Reply[Invoice])
    assert_type(reply.output, Invoice)
    assert_type((await conversation.retry()).output, Invoice)
    async with conversation.stream("Again.") as events:
        assert_type(events, SessionStream[Invoice])
    assert_type(events.reply.output, Invoice)
    reply.output.sum  # type: ignore[attr-defined]  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]
    any_agent: Agent = billing
    assert any_agent.name
    assert_type(agent, Agent)
    assert_type((await AgentSession(agent, deps).send("Hello.")).output, object)


async def typed_output_of_a_node(node: AgentNode) -> None:
    billing = Agent(name="billing", provider="mine", model="m", output_type=Invoice)
    ctx = NodeExecContext(vertex=node, resolved_agent=billing)
    outcome = await create_agent_node_executor(deps)(ctx)
    assert_type(outcome, NodeOutcome[Invoice])
    assert_type(outcome.output, Invoice | None)


def typed_outputs_of_a_thread(rye: SyncRye) -> None:
    result = rye.start("directive:acme/bill").result()
    assert_type(result, ThreadResult)
    assert_type(result.outputs_as(Invoice), Invoice)
    assert_type(result.outputs_as(Refund), Refund)


async def typed_output_of_any_form() -> None:
    either = Agent[Invoice | Refund](
        name="a", provider="mine", model="m", output_type=Invoice | Refund
    )
    assert_type((await AgentSession(either, deps).send("")).output, Invoice | Refund)
    several = Agent(name="a", provider="mine", model="m", output_type=list[Invoice])
    assert_type((await AgentSession(several, deps).send("")).output, list[Invoice])
    text = Agent(name="a", provider="mine", model="m", output_type=str)
    assert_type((await AgentSession(text, deps).send("")).output, str)
    mood = Agent[Literal["good", "bad"]](
        name="a", provider="mine", model="m", output_type=Literal["good", "bad"]
    )
    assert_type((await AgentSession(mood, deps).send("")).output, Literal["good", "bad"])
    Agent(name="a", provider="p", model="m", output_type=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def several_agents() -> None:
    billing = Agent(name="billing", provider="mine", model="m", output_type=Invoice)
    conversation = AgentSession(agent, deps).hand_to(billing)
    assert_type(conversation, AgentSession[Invoice])
    assert_type((await conversation.send("Bill it.")).output, Invoice)
    assert_type(conversation.hand_to(agent), AgentSession)
    conversation.hand_to("billing")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    asks = billing.as_tool(deps, description="Bills.", needs_approval=True)
    assert_type(asks, ToolDef)
    Agent(name="boss", provider="mine", model="m", tools=[billing.as_tool(), add])
    billing.as_tool(timeout="5")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def opened_by_name() -> None:
    session = AgentSession.open("mine/m", tools=[add, "look"], system_prompt="Be brief.")
    assert_type(session, AgentSession)
    assert_type((await session.send("")).output, object)
    billing = AgentSession.open("mine/m", output_type=Invoice, deps=deps, session_id="s")
    assert_type((await billing.send("")).output, Invoice)
    AgentSession.open("mine/m", output_type=Invoice, output_check=rounded)
    AgentSession.open("mine/m", sytem_prompt="")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    Agent(name="a", provider="mine", model="m", tools=[add, look_up])
    AgentRunnerDeps(resolve_provider=provider_of, key_for=tenant_key)
    assert_type(AgentRunnerDeps.from_env(), AgentRunnerDeps)


def provider_of(provider_id: str, call: CallContext) -> LlmProvider | None:
    return PROVIDERS.get(provider_id) if call.depth == 0 else None


async def tenant_key(provider_id: str, call: CallContext) -> str:
    return KEYS[f"{provider_id}/{call.budget_account}"]


def output_checks() -> None:
    common: dict[str, Any] = {"name": "a", "provider": "mine", "model": "m"}
    Agent(**common, output_type=Invoice, output_check=checked)
    Agent(**common, output_type=Invoice, output_check=rounded)
    Agent(**common, output_type=Refund, output_check=checked)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def in_a_word(messages: tuple[Message, ...]) -> str:
    return messages[-1].text


async def in_a_while(messages: tuple[Message, ...]) -> str:
    return messages[-1].text


def long_conversations(agent: Agent[Invoice], deps: AgentRunnerDeps) -> None:
    AgentSession(agent, deps, compact=Compact(at=0.7, by=in_a_word))
    AgentSession.open("mine/m", compact=Compact(by=in_a_while))
    Compact(by=agent, window_tokens=8_000)
    Compact(by=rounded)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def told(event: AgentEvent) -> str:
    """Every event is one of these, and no other."""
    match event:
        case AgentToken():
            return event.token
        case AgentToolCall() | AgentToolResult() | ApprovalRequested() | ApprovalResolved():
            return event.tool_id
        case AgentReasoning():
            return event.text
        case ConversationCompacted():
            return event.summary
        case CompactionFailed():
            return event.reason
        case CostUpdated() | AgentEnd():
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
    watching: Observer = OtelObserver()
    AgentRunnerDeps(resolve_provider=PROVIDERS.get, key_for=key_of, observer=watching)
