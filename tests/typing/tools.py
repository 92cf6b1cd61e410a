"""What a type checker sees of tools. Checked by mypy, never run."""

from collections.abc import Mapping
from typing import Any, assert_type

from ryecore import Agent, AgentRunnerDeps, AgentSession, Rye
from ryecore.llm.parts import ToolCallPart
from ryecore.llm.request import ToolSpec
from ryecore.tools import (
    FolderResultStore,
    FunctionTool,
    ItemExecutor,
    MemoryResultStore,
    ResultStore,
    ToolApprovalRequest,
    ToolCalled,
    ToolContext,
    ToolDef,
    ToolFunction,
    ToolOutcome,
    ToolPolicy,
    ToolRegistry,
    ToolReturned,
    read_result_tool,
    tool,
)


@tool
def add(a: int, b: int = 2) -> int:
    return a + b


@tool(parallel_safe=True, timeout_s=2, policy=ToolPolicy(url_args=("url",)))
async def fetch(url: str, ctx: ToolContext) -> bytes:
    return url.encode()


class Shop:
    @tool
    def price(self, item: str) -> float:
        return float(len(item))


def plain(a: str) -> str:
    return a


async def run(arguments: Mapping[str, Any], ctx: ToolContext) -> object:
    return dict(arguments)


@tool
async def stock(item: str, ctx: ToolContext[Shop]) -> float:
    assert_type(ctx.deps, Shop)
    return ctx.deps.price(item)


async def run_in_shop(arguments: Mapping[str, Any], ctx: ToolContext[Shop]) -> object:
    return ctx.deps.price(arguments["item"])


async def dependencies(ctx: ToolContext, agent: Agent, deps: AgentRunnerDeps) -> None:
    assert_type(ctx.deps, object)
    in_shop: ToolContext[Shop] = ToolContext(deps=Shop())
    assert_type(in_shop.as_call("1").deps, Shop)
    assert_type(await stock("tea", in_shop), float)
    await stock("tea", ToolContext(deps="no shop"))  # type: ignore[arg-type]
    any_deps: list[ToolContext] = [in_shop]
    assert_type(any_deps[0].deps, object)
    ToolDef(name="own", description="", parameters={}, run=run_in_shop)
    session = AgentSession(agent, deps, tool_deps=Shop())
    await session.send("Hi", deps=Shop())


async def approve(request: ToolApprovalRequest, /) -> bool:
    return request.tool_name == "add"


def told(event: ToolCalled | ToolReturned) -> None:
    assert_type(event.tool_name, str)


async def functions(shop: Shop, ctx: ToolContext) -> None:
    assert_type(add(1, 2), int)
    assert_type(await fetch("x", ctx), bytes)
    assert_type(shop.price("tea"), float)
    assert_type(shop.price.spec, ToolSpec)
    as_def: ToolDef = add
    assert_type(as_def.spec.parameters, Mapping[str, Any])
    made = ToolDef.from_function(plain, name="x")
    assert_type(made("a"), str)
    assert_type(made.function("a"), str)
    add("1")  # type: ignore[arg-type]
    shop.price(3)  # type: ignore[arg-type]
    ToolDef.from_function(plain, speed=3)  # type: ignore[call-arg]
    tool(name=3)(plain)  # type: ignore[call-overload]


async def registries(rye: Rye, shop: Shop, store: ResultStore) -> None:
    function: ToolFunction = run
    executor: ItemExecutor = rye
    own = ToolDef(name="own", description="", parameters={}, run=function)
    item = await ToolDef.from_item(executor, "tool:acme/x", config={"a": 1})
    pinned = await ToolDef.from_mcp(rye, "tool:mcp/servers/notes")
    assert_type(pinned, tuple[ToolDef, ...])
    registry = ToolRegistry([add, fetch, shop.price, plain, own, item, *pinned])
    registry.add(read_result_tool(store))
    assert_type(registry.get("add"), ToolDef | None)
    assert_type(registry.specs(["add"]), tuple[ToolSpec, ...])
    ctx = ToolContext(approve=approve, results=MemoryResultStore())
    done = await registry.dispatch(ToolCallPart("1", "add", "{}"), ctx, told)
    assert_type(done, ToolOutcome)
    assert_type(done.value, object)
    kept: ResultStore = FolderResultStore("results")
    assert_type(kept.put(b""), str)


def narrowed(one: ToolDef) -> None:
    if isinstance(one, FunctionTool):
        assert_type(one.is_unbound, bool)
