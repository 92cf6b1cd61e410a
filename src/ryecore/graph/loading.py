"""The loader of graphs, which verifies them as tools and parses each content once."""

import hashlib
from typing import Final

from attrs import frozen

from ryecore.caches import BoundedDict
from ryecore.chain.model import ValidChain
from ryecore.errors import GraphInvalid, InputError
from ryecore.graph.model import GRAPH_RUNTIME, Graph
from ryecore.graph.reading import GraphReport, examine_graph, located, read_graph
from ryecore.graph.validation.calls import check_programs, tools_with_expressions
from ryecore.items.refs import ItemRef
from ryecore.items.verification import VerifiedItem
from ryecore.policy import CallContext
from ryecore.runs.ports import Dispatcher
from ryecore.runs.programs import ChainLookup, tool_schema

__all__ = ["GraphLoader", "LoadedGraph", "refuse_spliced"]

_MAX_REMEMBERED: Final = 256


@frozen
class LoadedGraph:
    """A graph and its verified chain: the graph, its runtime, the primitive."""

    graph: Graph
    chain: ValidChain


async def refuse_spliced(graph: Graph, item: VerifiedItem, chain: ChainLookup) -> None:
    """Raise GraphInvalid, with each place, where a graph puts a value into a program.

    `chain` verifies the tools that it calls, which may change without the graph.
    """
    schemas = {ref: await tool_schema(ref, chain) for ref in tools_with_expressions(graph)}
    found = check_programs(graph, schemas).errors
    if found:
        text = item.content.decode("utf-8", "replace")
        raise GraphInvalid.of(graph.ref, located(found, text, item.source.path))


class GraphLoader:
    """The loader of graphs; the dispatcher verifies each chain before its use."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._read: BoundedDict[tuple[ItemRef, str], Graph] = BoundedDict(_MAX_REMEMBERED)

    async def __call__(self, ref: ItemRef, ctx: CallContext) -> LoadedGraph:
        """Load a graph, if it can be verified, has no errors, and ryecore itself runs it."""
        chain, item = await self._found(ref, ctx)
        key = (ref, hashlib.sha256(item.content).hexdigest())
        graph = self._read.get(key)
        if graph is None:
            graph = self._read[key] = read_graph(item, chain.head.spec)
        await refuse_spliced(graph, item, self._dispatcher.chain)
        return LoadedGraph(graph, chain)

    async def examine(self, ref: ItemRef, ctx: CallContext) -> tuple[GraphReport, str]:
        """Return the report of errors and warnings of a graph's file, and the file's text."""
        chain, item = await self._found(ref, ctx)
        return examine_graph(item, chain.head.spec), item.content.decode("utf-8", "replace")

    async def _found(self, ref: ItemRef, ctx: CallContext) -> tuple[ValidChain, VerifiedItem]:
        chain = await self._dispatcher.chain(ref, ctx=ctx)
        head = chain.head
        if head.item is None or head.spec.executor_id != GRAPH_RUNTIME:
            raise InputError(
                f"{ref} is not a graph: its executor is {head.spec.executor_id}.",
                next_step=f"A graph has executor_id: {GRAPH_RUNTIME}",
            )
        if not chain.is_own_process:
            space = chain.elements[1].space
            raise InputError(
                f"{ref} is run by a runtime of the {space} space, which replaces ryecore's own.",
                next_step=f"Run it with that: rye execute {ref}",
            )
        return chain, head.item
