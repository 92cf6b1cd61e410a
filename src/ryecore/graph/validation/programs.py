"""Programs that a graph passes to tools: no expression stands within one. Pure.

Source: decision 79; docs/adr/020-text-never-becomes-code.md.
"""

from collections.abc import Mapping

from ryecore.graph.model import ActionVertex, ForeachVertex, Graph
from ryecore.graph.validation.problems import Problems
from ryecore.items.refs import ItemRef
from ryecore.policy.expressions import BrokenExpression, Template, read_template
from ryecore.policy.scripts import spliced_scripts

__all__ = ["check_programs", "tools_with_expressions"]


def tools_with_expressions(graph: Graph) -> tuple[ItemRef, ...]:
    """Return the tools that a graph passes expressions to, each once."""
    return tuple(
        dict.fromkeys(
            one.action.ref
            for one in graph.nodes.values()
            if isinstance(one, ActionVertex | ForeachVertex)
            and one.action.ref.kind == "tool"
            and one.action.params.expressions
        )
    )


def check_programs(
    graph: Graph, schemas: Mapping[ItemRef, Mapping[str, object] | None]
) -> Problems:
    """Check that no expression stands within a program that a graph passes to a tool.

    Args:
        graph: The graph.
        schemas: The JSON Schemas of tools' parameters. Tools that are absent are left out.

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
    return problems


def _blank(text: str) -> str:
    """Return a text with a NUL in the place of each expression."""
    try:
        template: Template = read_template(text)
    except BrokenExpression:
        return text
    for expression in template.expressions:
        text = text.replace(str(expression), "\0")
    return text
