"""What a dry run says of a graph."""

from ryecore.chain.model import ValidChain
from ryecore.graph.loading import refuse_spliced
from ryecore.graph.model import GRAPH_RUNTIME
from ryecore.graph.reading import read_graph
from ryecore.graph.rendering import does_text
from ryecore.runs.programs import ChainLookup

__all__ = ["graph_plan"]


async def graph_plan(chain: ValidChain, called: ChainLookup) -> dict[str, object] | None:
    """What a graph would do; None where the chain's tool is none that ryecore itself walks.

    Args:
        chain: The tool's verified chain.
        called: Verifies the tools that it calls.

    Raises:
        GraphInvalid: It has problems; all are listed, each with its line.
    """
    head = chain.head
    is_graph = head.spec.executor_id == GRAPH_RUNTIME and chain.is_own_process
    if head.item is None or not is_graph:
        return None
    graph = read_graph(head.item, head.spec)
    await refuse_spliced(graph, head.item, called)
    return {
        "start": graph.start,
        "max_steps": graph.max_steps,
        "permissions": list(graph.permissions),
        "nodes": {
            node.id: f"{node.type} {does_text(node)}".rstrip() for node in graph.nodes.values()
        },
    }
