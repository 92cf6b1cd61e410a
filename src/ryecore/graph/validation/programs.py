"""Programs that a graph passes to tools: no expression stands within one. Pure.

Source: decision 79; ADR 020.
"""

from collections.abc import Iterator, Mapping

from ryecore.graph.model import ActionVertex, ForeachVertex, Graph
from ryecore.graph.validation.problems import Place, Problems
from ryecore.items.refs import ItemRef
from ryecore.policy.expressions import BrokenExpression, Template, read_template
from ryecore.policy.hooks import HOOK_PLACEHOLDER
from ryecore.policy.scripts import has_placeholders, spliced_scripts

__all__ = ["calls_of_hooks", "check_programs", "tools_with_expressions"]


def tools_with_expressions(graph: Graph) -> tuple[ItemRef, ...]:
    """Return the tools that a graph or its hooks pass expressions to, each once."""
    by_nodes = (
        one.action.ref
        for one in graph.nodes.values()
        if isinstance(one, ActionVertex | ForeachVertex)
        and one.action.ref.kind == "tool"
        and one.action.params.expressions
    )
    by_hooks = (
        ref
        for _, ref, parameters in calls_of_hooks(graph)
        if has_placeholders(parameters, HOOK_PLACEHOLDER)
    )
    return tuple(dict.fromkeys((*by_nodes, *by_hooks)))


def check_programs(
    graph: Graph, schemas: Mapping[ItemRef, Mapping[str, object] | None]
) -> Problems:
    """Check that no expression stands within a program that a graph passes to a tool.

    Args:
        graph: The graph.
        schemas: The JSON Schemas of tools' parameters. The nodes' tools that are absent are left
            out, since they are broken.

    Returns:
        What is wrong, by its place in the file.
    """
    problems = Problems()
    for vertex in graph.nodes.values():
        if not isinstance(vertex, ActionVertex | ForeachVertex):
            continue
        ref, source = vertex.action.ref, vertex.action.params.source
        if ref.kind != "tool" or ref not in schemas or not isinstance(source, Mapping):
            continue
        for one in spliced_scripts(source, schemas[ref], _blank):
            place = ("config", "nodes", vertex.id, "action", "params", *one.place)
            problems.error(place, f"{one.message}. {one.next_step}")
    for place, ref, parameters in calls_of_hooks(graph):
        for one in spliced_scripts(parameters, schemas.get(ref), HOOK_PLACEHOLDER):
            problems.error((*place, "params", *one.place), f"{one.message}. {one.next_step}")
    return problems


def calls_of_hooks(graph: Graph) -> Iterator[tuple[Place, ItemRef, Mapping[str, object]]]:
    """Yield the calls of tools by a graph's hooks, each with its place in the file."""
    for index, hook in enumerate(graph.hooks):
        for number, action in enumerate(hook.actions):
            if action.primary == "execute" and action.item and action.item.kind == "tool":
                several = ("actions", number) if len(hook.actions) > 1 else ("action",)
                yield ("config", "hooks", index, *several), action.item, action.parameters


def _blank(text: str) -> str:
    """Return a text with a NUL in the place of each expression."""
    try:
        template: Template = read_template(text)
    except BrokenExpression:
        return text
    for expression in template.expressions:
        text = text.replace(str(expression), "\0")
    return text
