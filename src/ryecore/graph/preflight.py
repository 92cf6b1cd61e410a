"""The checks of a graph's needs before its run is registered, and the plan of a dry run."""

import json
from collections.abc import Callable, Collection

from ryecore.chain.model import ValidChain
from ryecore.chain.plan import checked_parameters
from ryecore.errors import ConfigError, ContentChanged, InputError
from ryecore.graph.journal.recovery import RecoveredRun
from ryecore.graph.model import GRAPH_RUNTIME, Graph
from ryecore.graph.reading import read_graph, refuse_spliced
from ryecore.graph.rendering import does_text
from ryecore.lillux.schema import SchemaValidator
from ryecore.runs.host import RunHost
from ryecore.runs.programs import ChainLookup
from ryecore.runs.request import RunRequest

__all__ = ["check_inputs", "check_preflight", "plan_graph"]


async def check_inputs(
    graph: Graph, request: RunRequest, found: RecoveredRun | None
) -> dict[str, object]:
    """Return a run's inputs with their defaults, or those of the run that it resumes.

    They must fit the schema, and the graph must be the one that the run was planned with.
    """
    given = request.inputs if found is None else found.started.get("inputs", {})
    if request.graph.digest not in (None, graph.digest):
        raise ContentChanged(
            f"{graph.ref} has changed since its run was planned.",
            next_step="Run it again: a run uses exactly the planned file.",
        )
    schema = graph.input_schema
    validator = SchemaValidator(json.dumps(schema)) if schema is not None else None
    return dict(await checked_parameters(graph.ref.id, schema, validator, given))


def check_preflight(
    graph: Graph, host: RunHost, variables: Callable[[], Collection[str]], only: str | None
) -> None:
    """Check that the variables, models and node that a run needs exist.

    `variables` lists those that tools can ask for; `only` is the single node to run, if any. Raises
    ConfigError, also where the project's `.env` can't be read; InputError without such a node.
    """
    missing = _missing_variables(graph, variables)
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
    agents = [node.id for node in graph.agents]
    if agents and not host.has_models:
        raise ConfigError(
            f"{graph.ref} asks models at {', '.join(agents)}, but no models are configured.",
            next_step="Open the Rye with agent=AgentRunnerDeps(...); for a child process name "
            "what makes them again there: deps_factory, on the command line --deps.",
        )


async def plan_graph(chain: ValidChain, called: ChainLookup) -> dict[str, object] | None:
    """Plan a graph for a dry run; return None for a tool that isn't a graph of ryecore's.

    `called` verifies the tools that it calls. Raises GraphInvalid with all problems and lines.
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


def _missing_variables(graph: Graph, variables: Callable[[], Collection[str]]) -> list[str]:
    """Return the missing environment variables of a graph and its nodes, as text for people."""
    required = [(name, "it") for name in graph.env_requires]
    required += [(n, f"node '{one.id}'") for one in graph.nodes.values() for n in one.env_requires]
    known = variables() if required else ()
    return [f"{who} requires {name}" for name, who in required if name not in known]
