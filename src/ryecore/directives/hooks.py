"""Hooks as files write them: in a directive's XML, and in `agent/hooks.yaml`.

Source: docs/design/threads.md#hooks; decision 42.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, cast

from attrs import evolve

from ryecore.directives.markup import DirectiveProblem, Element
from ryecore.errors import ConfigError, InvalidItemId
from ryecore.items.refs import ItemRef
from ryecore.policy.conditions import AllOf, AnyOf, Comparison, Condition, Negation, read_condition
from ryecore.policy.hooks import CONTROLS, EVENTS, Control, Hook, HookAction, HookLayer

__all__ = ["directive_id", "read_hooks", "read_hooks_element"]

_CONDITIONS: Final = ("condition", "any", "all", "not")
_ACTION_ATTRIBUTES: Final = (
    "primary", "item_type", "kind", "item_id", "set_extends", "control", "position", "wrap",
)  # fmt: skip
_EXECUTED: Final = ("tool", "directive")
_FETCHED: Final = ("tool", "directive", "knowledge")
_PAST_A_LIMIT: Final = ("continue", "retry", "skip")
_HOOK_KEYS: Final = frozenset(
    {"id", "event", "layer", "condition", "action", "actions", "description"}
)
_ACTION_KEYS: Final = frozenset({*_ACTION_ATTRIBUTES, "params", "inputs"})


def directive_id(text: str) -> str:
    """The id of a directive, from the id or its canonical ref.

    Raises:
        ValueError: It names something else.
    """
    try:
        ref = ItemRef.parse(text.strip(), "directive")
    except InvalidItemId as problem:
        raise ValueError(problem.message.rstrip(".")) from None
    if ref.kind != "directive":
        raise ValueError(f"{text!r} is no directive")
    return ref.id


def read_hooks(config: Mapping[str, object], path: Path | str, layer: HookLayer) -> list[Hook]:
    """Read the hooks of a configuration file.

    Args:
        config: What the file holds: a list named `hooks`.
        path: The file, for errors.
        layer: Where it stands.

    Raises:
        ConfigError: A hook can't be read; with its place in the list, and its id.
    """
    declared = config.get("hooks", [])
    place, hooks = "hooks", []
    try:
        if set(config) - {"hooks"}:
            raise ValueError(f"it holds {', '.join(sorted(set(config) - {'hooks'}))}")
        if not isinstance(declared, list):
            raise ValueError("it is no list")
        ids: set[str] = set()
        for number, one in enumerate(declared, start=1):
            place = f"hook {number}"
            if isinstance(one, Mapping) and isinstance(one.get("id"), str):
                place += f" ({one['id']})"
            hook = _from_mapping(one, layer)
            if hook.id in ids:
                raise ValueError("an earlier hook has this id")
            ids.add(hook.id)
            hooks.append(hook)
    except ValueError as problem:
        raise ConfigError(
            f"{path}, {place}: {problem}.", next_step="Mend the file and sign it again."
        ) from None
    return hooks


def _from_mapping(declared: object, layer: HookLayer) -> Hook:
    if not isinstance(declared, Mapping):
        raise ValueError("it is no mapping")
    _check_keys(declared, _HOOK_KEYS)
    actions = declared.get("actions", [declared["action"]] if "action" in declared else [])
    if not isinstance(actions, list):
        raise ValueError("actions is no list")
    condition = declared.get("condition")
    return _hook(
        declared,
        tuple(map(_action_from_mapping, actions)),
        None if condition is None else read_condition(condition),
        layer,
    )


def _action_from_mapping(declared: object) -> HookAction:
    if not isinstance(declared, Mapping):
        raise ValueError("an action is a mapping")
    _check_keys(declared, _ACTION_KEYS)
    if "params" in declared and "inputs" in declared:
        raise ValueError("an action has params or inputs, not both")
    parameters = declared.get("params", declared.get("inputs", {}))
    if not isinstance(parameters, Mapping):
        raise ValueError("the params of an action are a mapping")
    return _action(declared, parameters)


def _check_keys(declared: Mapping[str, object], valid: frozenset[str]) -> None:
    unknown = sorted(map(str, set(declared) - valid))
    if unknown:
        raise ValueError(f"it has {', '.join(unknown)}; valid are {', '.join(sorted(valid))}")


def read_hooks_element(element: Element | None, owner: str) -> tuple[Hook, ...]:
    """Read the `<hooks>` of a directive.

    Args:
        element: The element; None where there is none.
        owner: The directive's name.

    Raises:
        DirectiveProblem: A hook can't be read; with its line.
    """
    if element is None:
        return ()
    element.check(children=("hook",))
    hooks: dict[str, Hook] = {}
    for child in element.children:
        hook = _from_element(child)
        if hook.id in hooks:
            raise child.problem(f"declares {hook.id!r} once more")
        hooks[hook.id] = evolve(hook, owner=owner)
    return tuple(hooks.values())


def _from_element(element: Element) -> Hook:
    element.check(
        attributes=("id", "event", "layer"), children=(*_CONDITIONS, "action", "description")
    )
    conditions = [child for child in element.children if child.tag in _CONDITIONS]
    if len(conditions) > 1:
        raise conditions[1].problem("is a second condition; combine them with <all> or <any>")
    description = element.one("description")
    actions = tuple(map(_action_from_element, element.all("action")))
    condition = _condition(conditions[0]) if conditions else None
    declared: dict[str, object] = {
        **element.attributes,
        "description": description.text if description else "",
    }
    try:
        return _hook(declared, actions, condition, HookLayer.DIRECTIVE)
    except ValueError as problem:
        raise DirectiveProblem(f"<hook>: {problem}", element.line) from None


def _condition(element: Element) -> Condition:
    if element.tag == "condition" and not element.children:
        element.check(attributes=("path", "op", "value"))
        op = element.attributes.get("op", "eq")
        text = element.attributes.get("value")
        value = text if op == "regex" else _coerced(text)
        try:
            return Comparison.of(element.required("path"), op, value)
        except DirectiveProblem:
            raise
        except ValueError as problem:
            raise DirectiveProblem(str(problem), element.line) from None
    element.check(children=_CONDITIONS)
    parts = tuple(map(_condition, element.children))
    if element.tag == "any":
        return AnyOf(parts)
    if element.tag == "all":
        return AllOf(parts)
    if len(parts) != 1:
        raise element.problem("holds one condition")
    return Negation(parts[0]) if element.tag == "not" else parts[0]


def _coerced(text: str | None) -> object:
    """What an attribute stands for: JSON where it reads as JSON, else text."""
    if text is None:
        return None
    try:
        return cast("object", json.loads(text))
    except (ValueError, RecursionError):
        return text


def _action_from_element(element: Element) -> HookAction:
    element.check(attributes=_ACTION_ATTRIBUTES, children=("param", "input"))
    parameters: dict[str, object] = {}
    for child in element.children:
        child.check(attributes=("name",))
        name = child.required("name")
        if name in parameters:
            raise child.problem(f"names {name!r} once more")
        parameters[name] = _coerced(child.text)
    declared: dict[str, object] = dict(element.attributes)
    if "wrap" in declared:
        declared["wrap"] = element.flag("wrap", default=True)
    try:
        return _action(declared, parameters)
    except ValueError as problem:
        raise DirectiveProblem(f"<action>: {problem}", element.line) from None


def _hook(
    declared: Mapping[str, object],
    actions: tuple[HookAction, ...],
    condition: Condition | None,
    layer: HookLayer,
) -> Hook:
    hook_id, event = _text(declared, "id"), _text(declared, "event")
    if event not in EVENTS:
        raise ValueError(f"{event!r} is no event; the events are {', '.join(EVENTS)}")
    if not actions:
        raise ValueError("it has no action")
    if event != "resolve_extends" and any(one.set_extends for one in actions):
        raise ValueError("set_extends is for the event resolve_extends")
    if event == "limit" and any(one.control in _PAST_A_LIMIT for one in actions):
        raise ValueError(f"past a limit there is no {', '.join(_PAST_A_LIMIT)}")
    placed = _layer(declared.get("layer"), layer)
    if placed is HookLayer.INFRASTRUCTURE and any(one.primary is None for one in actions):
        raise ValueError(f"layer {placed:d} observes, and has neither control nor set_extends")
    return Hook(
        hook_id,
        event,
        actions,
        condition,
        placed,
        str(declared.get("description") or ""),
    )


def _layer(declared: object, default: HookLayer) -> HookLayer:
    """The layer that a hook asks for: its file's own or a later one, never one before it."""
    if declared is None:
        return default
    try:
        layer = HookLayer(int(str(declared)))
    except ValueError:
        raise ValueError(f"the layer {declared!r} is none of 0 to 4") from None
    if layer < default:
        raise ValueError(f"the layer {layer:d} is before {default:d}, where this file stands")
    return layer


def _action(declared: Mapping[str, object], parameters: Mapping[str, object]) -> HookAction:
    forms = [name for name in ("primary", "set_extends", "control") if declared.get(name)]
    if len(forms) != 1:
        raise ValueError("an action has one of primary, set_extends and control")
    if forms == ["set_extends"]:
        return HookAction(set_extends=directive_id(_text(declared, "set_extends")))
    if forms == ["control"]:
        return HookAction(control=cast("Control", _choice(declared, "control", CONTROLS)))
    primary = cast(
        'Literal["execute", "fetch"]', _choice(declared, "primary", ("execute", "fetch"))
    )
    wrap = declared.get("wrap", True)
    if not isinstance(wrap, bool):
        raise ValueError("wrap is true or false")
    return HookAction(
        primary=primary,
        item=_item(declared, _EXECUTED if primary == "execute" else _FETCHED),
        parameters=dict(parameters),
        position=cast(
            'Literal["before", "after"]',
            _choice({"position": "before", **declared}, "position", ("before", "after")),
        ),
        wrap=wrap,
    )


def _item(declared: Mapping[str, object], kinds: tuple[str, ...]) -> ItemRef:
    """The item of an action: a canonical ref, or an id with `kind` or `item_type`."""
    named = {str(declared[key]) for key in ("kind", "item_type") if declared.get(key)}
    if len(named) > 1:
        raise ValueError("kind and item_type say different things")
    kind = named.pop() if named else None
    try:
        ref = ItemRef.parse(_text(declared, "item_id"), kind)
    except InvalidItemId as problem:
        raise ValueError(f"{problem.message} {problem.next_step}".rstrip(".")) from None
    if kind is not None and ref.kind != kind:
        raise ValueError(f"the item is {ref}, and its kind {kind}")
    if ref.kind not in kinds:
        raise ValueError(f"{ref} is none of {', '.join(kinds)}")
    return ref


def _text(declared: Mapping[str, object], name: str) -> str:
    value = declared.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"it has no {name}")
    return value.strip()


def _choice(declared: Mapping[str, object], name: str, valid: tuple[str, ...]) -> str:
    value = declared.get(name)
    if value not in valid:
        raise ValueError(f"{name} is {value!r}; valid are {', '.join(valid)}")
    return str(value)
