"""The checks of a graph's calls against its permissions and the called items. Pure.

No expression stands within a program that a graph passes to a tool.

Source: decision 79; ADR 020.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from ryecore.convert.config import did_you_mean
from ryecore.convert.lines import Place, key_path, quoted
from ryecore.errors import RyeError
from ryecore.graph.model import CallingVertex, ForeachVertex, Graph
from ryecore.graph.validation.drafts import Draft
from ryecore.graph.validation.problems import Problems
from ryecore.graph.validation.scopes import Known, Scope, Writer, misfits
from ryecore.items.refs import ItemRef
from ryecore.policy.expressions import BrokenExpression, Template, read_template
from ryecore.policy.hooks import HOOK_PLACEHOLDER, Hook
from ryecore.policy.permissions import ASK_KINDS, allows, capability_of
from ryecore.policy.scripts import has_placeholders, spliced_scripts

__all__ = [
    "SchemaLookup",
    "called_items",
    "check_calls",
    "check_permissions",
    "check_programs",
    "tools_with_expressions",
]

SchemaLookup: TypeAlias = Callable[[ItemRef], Mapping[str, object] | None]
"""The JSON Schema of an item's parameters or inputs; None where it takes anything."""


def called_items(graph: Graph) -> tuple[ItemRef, ...]:
    """Return the items that a graph's nodes execute, and the tools of its hooks, each once."""
    by_nodes = (vertex.action.ref for vertex in _calling(graph))
    by_hooks = (ref for _, ref, _ in calls_of_hooks(graph))
    return tuple(dict.fromkeys((*by_nodes, *by_hooks)))


def check_calls(graph: Graph, lookup: SchemaLookup) -> Problems:
    """Return the problems between the parameters of a graph's actions and their items' schemas.

    `lookup` finds an item's schema; it raises RyeError where the item can't be used.
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


def _calling(graph: Graph) -> Sequence[CallingVertex]:
    return [one for one in graph.nodes.values() if isinstance(one, CallingVertex)]


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
            problems.error(where if given else place, f"{ref} requires {quoted(name)}.")


def _check_undeclared(
    name: str,
    schema: Mapping[str, object],
    properties: Mapping[str, object],
    ref: ItemRef,
    place: Place,
    problems: Problems,
) -> None:
    others = schema.get("additionalProperties")
    message = f"{ref} declares no {quoted(name)}.{problems.guess(name, properties)}"
    if others is False and "patternProperties" not in schema:
        problems.error(place, message)
    elif others is None and properties and "patternProperties" not in schema:
        problems.warn(place, message)


def tools_with_expressions(graph: Graph) -> tuple[ItemRef, ...]:
    """Return the tools that a graph or its hooks pass expressions to, each once."""
    by_nodes = (
        one.action.ref
        for one in graph.nodes.values()
        if isinstance(one, CallingVertex)
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
    """Return the expressions that stand within a program that a graph passes to a tool.

    Tools that are absent from `schemas` are broken, and left out.
    """
    problems = Problems()
    for vertex in graph.nodes.values():
        if not isinstance(vertex, CallingVertex):
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


_SEGMENT: Final = re.compile(r"[A-Za-z0-9_*][A-Za-z0-9_*-]*")
_ACTIONS: Final = ("execute", "fetch", "sign", "ask")
_KINDS: Final = ("tool", "directive", "knowledge")
_FORM: Final = "it is rye.<execute|fetch|sign>.<tool|directive|knowledge>.<dotted id>"


def check_permissions(
    declared: tuple[str, ...] | None,
    drafts: Mapping[str, Draft],
    hooks: tuple[Hook, ...],
    agents_have_tools: bool,
    problems: Problems,
) -> None:
    """Report malformed permissions, actions that no permission covers, and unused permissions.

    `declared` is None where the graph's permissions can't be read. Hooks act within the same ones.
    """
    if declared is None:
        return
    for index, one in enumerate(declared):
        why = _what_is_wrong(one)
        if why:
            problems.error(("permissions", index), f"{quoted(one)} is not a permission: {why}")
    needed: list[tuple[Place, str, str]] = [
        (
            draft.at("action"),
            capability_of("execute", draft.item.kind, draft.item.id),
            str(draft.item),
        )
        for draft in drafts.values()
        if draft.item is not None
    ]
    needed += [
        (("config", "hooks"), capability_of(action.primary, action.item.kind, action.item.id),
         f"{action.item} of the hook {quoted(hook.id)}")
        for hook in hooks
        for action in hook.actions
        if action.primary is not None and action.item is not None
    ]  # fmt: skip
    for place, capability, item in needed:
        if not allows(declared, capability):
            problems.error(place, f"No permission covers {item}: add {capability}.")
    _warn_of_tools(declared, drafts, problems)
    if agents_have_tools or any(
        d.item is not None and d.item.kind != "tool" for d in drafts.values()
    ):
        return  # the items that those call are not known here
    used = {capability for _, capability, _ in needed}
    for index, one in enumerate(declared):
        is_asked = one.startswith("rye.ask.")  # by a tool while it runs
        if "*" not in one and one not in used and not is_asked and not _what_is_wrong(one):
            problems.warn(("permissions", index), f"No action of the graph needs {one}.")


def _warn_of_tools(
    declared: tuple[str, ...], drafts: Mapping[str, Draft], problems: Problems
) -> None:
    """Warn of signed tools that an agent is offered and may not call.

    The host decides what its own functions need.
    """
    for draft in drafts.values():
        if draft.agent is None:
            continue
        narrowed = draft.agent.node.tools
        for name in draft.agent.agent.tool_names if narrowed is None else narrowed:
            if not name.startswith("tool:"):
                continue
            capability = capability_of("execute", "tool", name.removeprefix("tool:"))
            if not allows(declared, capability):
                problems.warn(
                    draft.at("tools" if narrowed is not None else "agent_ref"),
                    f"No permission covers {name}, which the agent may call: add {capability}.",
                )


def _what_is_wrong(permission: str) -> str:
    """Return what is wrong with a permission; empty where nothing is."""
    if "/" in permission:
        return f"ids are dotted here, as in {permission.replace('/', '.')}."
    parts = permission.split(".")
    if parts[0] != "rye" or len(parts) == 1:
        return f"{_FORM}, or rye.* for everything."
    if not all(_SEGMENT.fullmatch(part) for part in parts):
        return f"{_FORM}, with * for any text."
    kinds = ASK_KINDS if parts[1] == "ask" else _KINDS
    for part, known in zip(parts[1:], (_ACTIONS, kinds), strict=False):
        if "*" not in part and part not in known:
            return f"{quoted(part)} must be one of: {', '.join(known)}.{did_you_mean(part, known)}"
    if parts[1] == "sign" and "*" in permission:
        return "no wildcard grants signing; name the item."
    if len(parts) < 4 and "*" not in parts[-1]:
        return f"{_FORM}."
    return ""
