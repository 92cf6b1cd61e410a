"""Load graphs: verified as tools, read once for each content."""

import hashlib
from collections.abc import Mapping
from typing import Final

from attrs import frozen

from ryecore.chain.model import ValidChain
from ryecore.errors import InputError
from ryecore.graph.model import GRAPH_RUNTIME, Graph
from ryecore.graph.reading import read_graph
from ryecore.items.refs import ItemRef
from ryecore.policy import CallContext
from ryecore.runs.ports import Dispatcher

__all__ = ["GraphLoader", "LoadedGraph", "missing_variables"]

_MAX_REMEMBERED: Final = 256


@frozen
class LoadedGraph:
    """A graph and the chain that vouches for it.

    Attributes:
        graph: The graph.
        chain: Its chain: the graph, its runtime, the primitive.
    """

    graph: Graph
    chain: ValidChain


class GraphLoader:
    """Loads graphs.

    Args:
        dispatcher: The actions of the Rye, which verify each chain before its use.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._read: dict[tuple[ItemRef, str], Graph] = {}

    async def __call__(self, ref: ItemRef, ctx: CallContext) -> LoadedGraph:
        """Load a graph.

        Raises:
            GraphInvalid: It is none that could be walked; with all its problems.
            RyeError: It can't be found or verified, or is no graph.
        """
        chain = await self._dispatcher.chain(ref, ctx=ctx)
        head = chain.head
        if head.item is None or head.spec.executor_id != GRAPH_RUNTIME:
            raise InputError(
                f"{ref} is no graph: its executor is {head.spec.executor_id}.",
                next_step=f"A graph has executor_id: {GRAPH_RUNTIME}",
            )
        key = (ref, hashlib.sha256(head.item.content).hexdigest())
        graph = self._read.get(key)
        if graph is None:
            if len(self._read) >= _MAX_REMEMBERED:
                self._read.clear()
            graph = self._read[key] = read_graph(head.item, head.spec)
        return LoadedGraph(graph, chain)


def missing_variables(graph: Graph, environ: Mapping[str, str]) -> list[str]:
    """What a graph and its nodes require of the environment, and it lacks; as said to a person."""
    missing = [f"it requires {name}" for name in graph.env_requires if name not in environ]
    return missing + [
        f"node '{node.id}' requires {name}"
        for node in graph.nodes.values()
        for name in node.env_requires
        if name not in environ
    ]
