"""What a graph calls, against what the called items declare. Pure: who asks looks them up."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from ryecore.errors import RyeError
from ryecore.graph.model import ActionVertex, ForeachVertex, Graph
from ryecore.graph.validation.problems import Place, Problems, key_path
from ryecore.graph.validation.programs import calls_of_hooks, check_programs
from ryecore.graph.validation.scopes import Known, Scope, Writer
from ryecore.graph.validation.values import misfits
from ryecore.items.refs import ItemRef
from ryecore.policy.expressions import Template, read_template

__all__ = ["SchemaLookup", "called_items", "check_calls"]

SchemaLookup: TypeAlias = Callable[[ItemRef], Mapping[str, object] | None]
"""The JSON Schema of an item's parameters or inputs; None where it takes anything."""


def called_items(graph: Graph) -> tuple[ItemRef, ...]:
    """The items that a graph's nodes execute, and the tools of its hooks, each once."""
    by_nodes = (vertex.action.ref for vertex in _calling(graph))
    by_hooks = (ref for _, ref, _ in calls_of_hooks(graph))
    return tuple(dict.fromkeys((*by_nodes, *by_hooks)))


def check_calls(graph: Graph, lookup: SchemaLookup) -> Problems:
    """Check what the actions of a graph are given against what their items declare.

    Args:
        graph: The graph.
        lookup: Finds an item's schema. It raises RyeError where the item can't be used.

    Returns:
        What is wrong, by its place in the file.
    """
    problems = Problems()
    found: dict[ItemRef, Mapping[str, object] | None] = {}
    broken: dict[ItemRef, RyeError] = {}
    for ref in called_items(graph):
        try:
            found[ref] = lookup(ref)
        except RyeError as error:
            broken[ref] = error
    known = Known.of(
        graph.input_schema,
        graph.state,
        graph.state_schema,
        [
            Writer(one.type, one.assign, getattr(one, "collect", None))
            for one in graph.nodes.values()
        ],
    )
    for vertex in _calling(graph):
        place: Place = ("config", "nodes", vertex.id, "action")
        ref = vertex.action.ref
        if ref in broken:
            problems.error((*place, "item_id"), f"{ref} can't be used: {broken[ref]}")
            continue
        schema = found[ref]
        if schema is not None:
            scope = known.before(as_=vertex.as_ if isinstance(vertex, ForeachVertex) else None)
            _check_params(vertex.action.params, schema, scope, ref, place, problems)
    programs = check_programs(graph, found)
    problems.errors.extend(programs.errors)
    return problems


def _calling(graph: Graph) -> Sequence[ActionVertex | ForeachVertex]:
    return [one for one in graph.nodes.values() if isinstance(one, ActionVertex | ForeachVertex)]


def _check_params(
    params: Template,
    schema: Mapping[str, object],
    scope: Scope,
    ref: ItemRef,
    place: Place,
    problems: Problems,
) -> None:
    given = params.source if isinstance(params.source, Mapping) else {}
    declared = schema.get("properties")
    properties = declared if isinstance(declared, Mapping) else {}
    where = (*place, "params")
    for name, value in given.items():
        if name in properties:
            template = read_template(value)
            for part, why in misfits(
                template, properties[name], schema, scope, coerces=ref.kind == "directive"
            ):
                at: Place = (*where, name, *part)
                problems.error(at, f"{key_path(at[len(where) :])} doesn't fit {ref}: {why}.")
        else:
            _check_undeclared(name, schema, properties, ref, (*where, name), problems)
    required = schema.get("required")
    for name in required if isinstance(required, list) else ():
        one = properties.get(name)
        has_default = isinstance(one, Mapping) and "default" in one
        if given.get(name) is None and not has_default:
            problems.error(where if given else place, f"{ref} requires {name!r}.")


def _check_undeclared(
    name: str,
    schema: Mapping[str, object],
    properties: Mapping[str, object],
    ref: ItemRef,
    place: Place,
    problems: Problems,
) -> None:
    others = schema.get("additionalProperties")
    message = f"{ref} declares no {name!r}.{problems.guess(name, properties)}"
    if others is False and "patternProperties" not in schema:
        problems.error(place, message)
    elif others is None and properties and "patternProperties" not in schema:
        problems.warn(place, message)
