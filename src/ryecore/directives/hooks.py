"""Hooks as files write them: in a directive's XML, and in `agent/hooks.yaml`.

Source: docs/design/threads.md#hooks; decision 42.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, cast

from ryecore.convert.config import Configuration, Reader
from ryecore.convert.lines import Place, key_path, quoted
from ryecore.directives.markup import DirectiveProblem, Element
from ryecore.errors import ConfigError, InvalidItemId
from ryecore.frozen import frozen
from ryecore.items.refs import ItemRef
from ryecore.policy.conditions import AllOf, AnyOf, Comparison, Condition, Negation, read_condition
from ryecore.policy.hooks import Control, Hook, HookAction, HookEvent, HookLayer

__all__ = ["directive_id", "read_hooks", "read_hooks_element"]

_CONDITIONS: Final = ("condition", "any", "all", "not")
_ACTION_ATTRIBUTES: Final = (
    "primary", "item_type", "kind", "item_id", "set_extends", "control", "position", "wrap",
)  # fmt: skip
_EXECUTED: Final = ("tool", "directive")
_FETCHED: Final = ("tool", "directive", "knowledge")
_PAST_A_LIMIT: Final = ("continue", "retry", "skip")


def directive_id(text: str) -> str:
    """Return the id of a directive, from the id or its canonical ref; ValueError for others."""
    try:
        ref = ItemRef.parse(text.strip(), "directive")
    except InvalidItemId as problem:
        raise ValueError(problem.message.rstrip(".")) from None
    if ref.kind != "directive":
        raise ValueError(f"{quoted(text)} is not a directive")
    return ref.id


# What a file may say


def _read_text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be text, and not empty")
    return value.strip()


def _read_condition(value: object) -> Condition | None:
    try:
        return None if value is None else read_condition(value)
    except ValueError as problem:
        raise ValueError(f"can't be used: {problem}") from None


def _read_layer(value: object) -> HookLayer | None:
    try:
        return None if value is None else HookLayer(int(str(value)))
    except ValueError:
        raise ValueError(f"must be a number from 0 to 4, not {quoted(value)}") from None


_Text = Annotated[str, Reader(_read_text)]


@frozen
class _ActionSpec:
    """An action as a file writes it."""

    primary: Literal["execute", "fetch"] | None = None
    item_type: str | None = None
    kind: str | None = None
    item_id: str | None = None
    set_extends: str | None = None
    control: Control | None = None
    position: Literal["before", "after"] = "before"
    wrap: bool = True
    params: Mapping[str, object] | None = None
    inputs: Mapping[str, object] | None = None

    def __attrs_post_init__(self) -> None:
        forms = (self.primary, self.set_extends, self.control)
        if sum(bool(one) for one in forms) != 1:
            raise ValueError("must have one of primary, set_extends and control")
        if self.params is not None and self.inputs is not None:
            raise ValueError("must have params or inputs, not both")
        self.action()

    def action(self) -> HookAction:
        """Return the action, if its item can be used."""
        if self.set_extends:
            return HookAction(set_extends=directive_id(self.set_extends))
        if self.control or self.primary is None:
            return HookAction(control=self.control)
        return HookAction(
            primary=self.primary,
            item=self._item(_EXECUTED if self.primary == "execute" else _FETCHED),
            parameters=dict(self.params or self.inputs or {}),
            position=self.position,
            wrap=self.wrap,
        )

    def _item(self, kinds: tuple[str, ...]) -> ItemRef:
        """Return the item: a canonical ref, or an id with `kind` or `item_type`."""
        named = {one for one in (self.kind, self.item_type) if one}
        if len(named) > 1:
            raise ValueError(f"has the kind {self.kind} and the item_type {self.item_type}")
        kind = named.pop() if named else None
        try:
            ref = ItemRef.parse(_read_text(self.item_id or ""), kind)
        except InvalidItemId as problem:
            raise ValueError(
                f"names an item that can't be used: {problem.message} {problem.next_step}"
            ) from None
        except ValueError:
            raise ValueError("must have an item_id") from None
        if kind is not None and ref.kind != kind:
            raise ValueError(f"has the item {ref} and the kind {kind}")
        if ref.kind not in kinds:
            raise ValueError(f"names {ref}; its item must be one of {', '.join(kinds)}")
        return ref


@frozen
class _HookSpec:
    """A hook as a file writes it."""

    id: _Text
    event: HookEvent
    layer: Annotated[HookLayer | None, Reader(_read_layer)] = None
    condition: Annotated[Condition | None, Reader(_read_condition)] = None
    action: _ActionSpec | None = None
    actions: tuple[_ActionSpec, ...] = ()
    description: str | None = None

    def hook(self, layer: HookLayer, condition: Condition | None = None, owner: str = "") -> Hook:
        """Return the hook, if its parts go together; it may ask for a later layer."""
        actions = tuple(one.action() for one in self.actions or (self.action,) if one is not None)
        if not actions:
            raise ValueError("has no action")
        if self.event != "resolve_extends" and any(one.set_extends for one in actions):
            raise ValueError("has set_extends, which is for the event resolve_extends")
        if self.event == "limit" and any(one.control in _PAST_A_LIMIT for one in actions):
            raise ValueError(f"can't {', '.join(_PAST_A_LIMIT)} past a limit")
        placed = layer if self.layer is None else self.layer
        if placed < layer:
            raise ValueError(f"asks for layer {placed:d}, before {layer:d}, where its file stands")
        if placed is HookLayer.INFRASTRUCTURE and any(one.primary is None for one in actions):
            raise ValueError(
                f"stands in layer {placed:d}, which observes: it has neither control nor "
                "set_extends"
            )
        described = self.description or ""
        condition = condition or self.condition
        return Hook(self.id, self.event, actions, condition, placed, described, owner)


@frozen
class _HooksFile:
    hooks: tuple[_HookSpec, ...] = ()


def read_hooks(config: Configuration, layer: HookLayer, owner: str = "") -> list[Hook]:
    """Read the list `hooks` of a configuration file, or of the graph `owner`.

    Raises ConfigError with every problem.
    """
    if not config.values:
        return []
    hooks: dict[str, Hook] = {}
    problems: list[tuple[Place, str]] = []
    for index, spec in enumerate(config.read(_HooksFile).hooks):
        place = ("hooks", index)
        if spec.id in hooks:
            problems.append(((*place, "id"), f"is {quoted(spec.id)}, as of an earlier hook"))
        try:
            hooks[spec.id] = spec.hook(layer, owner=owner)
        except ValueError as problem:
            problems.append((place, str(problem)))
    if problems:
        raise config.error(problems)
    return list(hooks.values())


def read_hooks_element(element: Element | None, owner: str) -> tuple[Hook, ...]:
    """Read the `<hooks>` of the directive `owner`, if there are any."""
    if element is None:
        return ()
    element.check(children=("hook",))
    hooks: dict[str, Hook] = {}
    for child in element.children:
        hook = _from_element(child, owner)
        if hook.id in hooks:
            raise child.problem(f"declares {quoted(hook.id)} once more")
        hooks[hook.id] = hook
    return tuple(hooks.values())


def _from_element(element: Element, owner: str) -> Hook:
    element.check(
        attributes=("id", "event", "layer"), children=(*_CONDITIONS, "action", "description")
    )
    conditions = [child for child in element.children if child.tag in _CONDITIONS]
    if len(conditions) > 1:
        raise conditions[1].problem("is a second condition; combine them with <all> or <any>")
    description = element.one("description")
    actions = tuple(element.all("action"))
    condition = _condition(conditions[0]) if conditions else None
    declared: dict[str, object] = {
        **element.attributes,
        "description": description.text if description else "",
        "actions": [_declared_action(one) for one in actions],
    }
    try:
        spec = Configuration.of("<hook>", declared).read(_HookSpec)
        return spec.hook(HookLayer.DIRECTIVE, condition, owner)
    except ConfigError as error:
        problem = cast("Sequence[Any]", error.facts["problems"])[0]
        place: Place = problem.place
        at = actions[cast("int", place[1])] if place[:1] == ("actions",) and place[1:] else element
        inside = key_path(place[2:] if at is not element else place)
        named = f"<{at.tag}>: {inside}".rstrip(": ")
        raise DirectiveProblem(f"{named} {problem.message}", at.line) from None
    except ValueError as problem:
        raise DirectiveProblem(f"<hook> {problem}", element.line) from None


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
    """Return what an attribute stands for: JSON where it reads as JSON, else text."""
    if text is None:
        return None
    try:
        return cast("object", json.loads(text))
    except (ValueError, RecursionError):
        return text


def _declared_action(element: Element) -> dict[str, object]:
    element.check(attributes=_ACTION_ATTRIBUTES, children=("param", "input"))
    parameters: dict[str, object] = {}
    for child in element.children:
        child.check(attributes=("name",))
        name = child.required("name")
        if name in parameters:
            raise child.problem(f"names {quoted(name)} once more")
        parameters[name] = _coerced(child.text)
    declared: dict[str, object] = {**element.attributes, "params": parameters}
    if "wrap" in declared:
        declared["wrap"] = element.flag("wrap", default=True)
    return declared
