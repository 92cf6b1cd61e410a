"""The tools of a graph's agents: the host's functions, and signed tools.

Source: decisions 30, 41 and 43.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from attrs import evolve, frozen

from ryecore.agent.deps import AgentRunnerDeps
from ryecore.agent.model import Agent, AgentNode
from ryecore.errors import InputError, IntegrityError
from ryecore.graph.model import AgentVertex, Graph
from ryecore.items.refs import ItemRef
from ryecore.runs.host import guarded
from ryecore.runs.ports import Dispatcher
from ryecore.tools.definition import ToolDef
from ryecore.tools.items import ItemRunner, shape_of
from ryecore.tools.registry import ToolRegistry

__all__ = ["AgentTools", "find_agent_tools"]

_ITEM: Final = "tool:"


@frozen
class AgentTools:
    """The host's dependencies with the tools of one run's agents.

    Attributes:
        names: The models' names of the signed tools that agents name.
    """

    deps: AgentRunnerDeps
    names: Mapping[str, str]

    def with_tools(self, vertex: AgentVertex) -> tuple[Agent, AgentNode]:
        """Return an agent and its vertex, with their tools by the models' names."""
        agent, node = vertex.agent, vertex.node
        if not self.names:
            return agent, node
        tools = None if node.tools is None else self._named(node.tools)
        return evolve(agent, tools=self._named(agent.tools)), evolve(node, tools=tools)

    def _named(self, tools: Iterable[str]) -> tuple[str, ...]:
        return tuple(self.names.get(one, one) for one in tools)


async def find_agent_tools(
    graph: Graph, deps: AgentRunnerDeps, dispatcher: Dispatcher
) -> AgentTools:
    """Find the tools of a graph's agents, verified.

    An agent is offered the tools that the graph's signed file names. Each call is checked against
    the capabilities of the run; a function of the host's needs one too.
    """
    vertices = [one for one in graph.nodes.values() if isinstance(one, AgentVertex)]
    if not vertices:
        return AgentTools(deps, {})
    wanted = dict.fromkeys(
        name
        for vertex in vertices
        for name in (*vertex.agent.tools, *(vertex.node.tools or ()))
        if name.startswith(_ITEM)
    )
    items = {name: await _item_tool(ItemRef.parse(name, "tool"), dispatcher) for name in wanted}
    hosts = [guarded(tool) for tool in deps.registry]
    try:
        registry = ToolRegistry([*hosts, *items.values()], limits=deps.registry.limits)
    except ValueError as problem:
        raise InputError(
            f"The agents of {graph.ref} can't be told their tools apart: {problem}",
            next_step="Rename the function, or the item.",
        ) from None
    told = None if deps.tools is None else (*deps.tools, *items.values())
    names = {name: tool.name for name, tool in items.items()}
    return AgentTools(evolve(deps, registry=registry, tools=told), names)


async def _item_tool(ref: ItemRef, dispatcher: Dispatcher) -> ToolDef:
    chain = await dispatcher.chain(ref)
    head = chain.head
    if head.item is not None and not head.item.is_verified:
        raise IntegrityError(f"{ref} is not verified, so it can't be offered to a model.")
    shape = shape_of(ref, chain)
    return ToolDef(
        name=shape.name,
        description=shape.description,
        parameters=shape.parameters,
        run=ItemRunner(dispatcher, ref, shape.name),
        timeout_s=ItemRunner.timeout_s,
        capability=shape.capability,
        origin="item" if shape.server is None else "mcp",
        source=str(ref),
    )
