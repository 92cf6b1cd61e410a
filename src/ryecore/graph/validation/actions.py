"""The action of a node, and how often it is tried."""

from collections.abc import Mapping
from typing import Final, Literal, cast

from ryecore.errors import InvalidItemId
from ryecore.graph.model import Action, Tries
from ryecore.graph.validation.fields import Fields, brief
from ryecore.graph.validation.problems import did_you_mean, listed
from ryecore.items.refs import ItemRef
from ryecore.policy.limits import LIMIT_NAMES

__all__ = ["read_action", "read_tries"]

_KEYS: Final = ("item_id", "item_type", "params", "thread", "model", "limits")
_OF_FORKS: Final = ("model", "limits")
_LIMITS: Final = (
    *LIMIT_NAMES,
    *(f"max_{name}" for name in LIMIT_NAMES if name != "spend_currency"),
)
_NOT_YET: Final = "Actions can't run elsewhere: this is not available yet. Leave {!r} out."


def read_action(node: Fields) -> Action | None:
    """The action of a node; None where it can't be told what it executes."""
    if not node.has("action"):
        node.problems.error(node.place, "action is missing: what the node executes.")
        return None
    action = Fields.of(node.declared["action"], node.at("action"), node.problems, "An action")
    if action is None:
        return None
    action.check(
        "an action",
        _KEYS,
        {
            "inputs": "What an item is given stands under 'params', for directives too.",
            "target": _NOT_YET.format("target"),
            "remote": _NOT_YET.format("remote"),
        },
    )
    ref = _item(action)
    thread = action.choice("thread", ("inline", "fork"), "inline")
    for name in ("thread", *_OF_FORKS):
        if ref is not None and ref.kind != "directive" and action.has(name):
            action.error(name, f"{name!r} is for directives, and {ref} is a {ref.kind}.")
        elif name in _OF_FORKS and thread != "fork" and action.has(name):
            action.error(name, f"{name!r} is for a thread of its own: add 'thread: fork'.")
    params = action.template_of(dict(action.mapping("params")), action.at("params"))
    limits, model = _limits(action), action.text("model")
    if ref is None:
        return None
    return Action(
        ref=ref,
        params=params,
        thread=cast('Literal["inline", "fork"]', thread),
        model=model,
        limits=limits,
    )


def _item(action: Fields) -> ItemRef | None:
    kind, item_id = action.text("item_type"), action.text("item_id", required=True)
    if item_id is None:
        return None
    if "${" in item_id:
        action.error("item_id", "Which item an action executes is written down, without ${ }.")
        return None
    try:
        ref = ItemRef.parse(item_id, kind)
    except InvalidItemId as problem:
        action.error("item_id", str(problem))
        return None
    if kind is not None and ref.kind != kind:
        action.error("item_type", f"item_type is {kind!r}, and item_id {item_id!r}.")
    if ref.kind not in ("tool", "directive"):
        action.error("item_id", f"{ref} can't be executed; an action has a tool or a directive.")
        return None
    return ref


def _limits(action: Fields) -> Mapping[str, float]:
    limits = action.mapping("limits")
    for name, value in limits.items():
        place = (*action.at("limits"), name)
        if name not in _LIMITS:
            guess = did_you_mean(name, _LIMITS) or f" There is {listed(LIMIT_NAMES)}."
            action.problems.error(place, f"{name!r} is no limit.{guess}")
        elif name != "spend_currency" and (
            isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 2**53
        ):
            action.problems.error(place, f"{name} is {brief(value)}; it has to be 0 or more.")
    return cast("Mapping[str, float]", limits)


def read_tries(node: Fields) -> Tries:
    """How often a node is tried: a number, or `{max, base_s, cap_s}`."""
    retry = node.declared.get("retry")
    if not isinstance(retry, Mapping):
        return Tries(max=node.whole("retry", 1) or 1)
    fields, default = Fields(retry, node.at("retry"), node.problems), Tries()
    fields.check("retry", ("max", "base_s", "cap_s"))
    base_s = fields.seconds("base_s", default.base_s, zero=True)
    cap_s = fields.seconds("cap_s", default.cap_s, zero=True)
    return Tries(
        max=fields.whole("max", default.max) or default.max,
        base_s=default.base_s if base_s is None else base_s,
        cap_s=default.cap_s if cap_s is None else cap_s,
    )
