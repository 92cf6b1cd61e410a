"""What must hold before a run is registered: refuse what could only fail on the way."""

import json

from ryecore.chain.plan import checked_parameters
from ryecore.errors import ConfigError, ContentChanged, InputError
from ryecore.graph.host import GraphHost
from ryecore.graph.journal.recovery import Found
from ryecore.graph.model import AgentVertex, Graph
from ryecore.graph.wish import GraphWish
from ryecore.lillux.schema import SchemaValidator

__all__ = ["check_preflight", "checked_inputs"]


async def checked_inputs(graph: Graph, wish: GraphWish, found: Found | None) -> dict[str, object]:
    """A run's inputs with their defaults; of one that goes on with another, that one's.

    Raises:
        ContentChanged: The graph isn't the one that the run was planned with.
        InvalidParameters: They don't fit.
    """
    given = wish.inputs if found is None else found.started.get("inputs", {})
    if wish.digest is not None and graph.digest != wish.digest:
        raise ContentChanged(
            f"{graph.ref} has changed since its run was planned.",
            next_step="Run it again: what is planned is what runs.",
        )
    schema = graph.input_schema
    validator = SchemaValidator(json.dumps(schema)) if schema is not None else None
    return dict(await checked_parameters(graph.ref.id, schema, validator, given))


def check_preflight(graph: Graph, host: GraphHost, only: str | None) -> None:
    """Check that a graph has here what it needs.

    Args:
        graph: The graph.
        host: Where it is to run.
        only: The one node that is to run; all of them where None.

    Raises:
        ConfigError: A variable or the models are missing, or the project's `.env` can't be read.
        InputError: There is no such node.
    """
    missing = _missing_variables(graph, host)
    if missing:
        raise ConfigError(
            f"{graph.ref} can't run here: {'; '.join(missing)}.",
            next_step="Set what is missing in the environment, or in the project's .env.",
        )
    if only is not None and only not in graph.nodes:
        raise InputError(
            f"{graph.ref} has no node '{only}'.",
            next_step=f"Its nodes: {', '.join(graph.nodes)}.",
        )
    agents = [node.id for node in graph.nodes.values() if isinstance(node, AgentVertex)]
    if agents and not host.has_models:
        raise ConfigError(
            f"{graph.ref} asks models at {', '.join(agents)}, and here are none.",
            next_step="Open the Rye with agent=AgentRunnerDeps(...); for a child process name "
            "what makes them again there: deps_factory, on the command line --deps.",
        )


def _missing_variables(graph: Graph, host: GraphHost) -> list[str]:
    """What a graph and its nodes require of the environment, and it lacks; as said to a person."""
    required = [(name, "it") for name in graph.env_requires]
    required += [(n, f"node '{one.id}'") for one in graph.nodes.values() for n in one.env_requires]
    known = host.variables() if required else ()
    return [f"{who} requires {name}" for name, who in required if name not in known]
