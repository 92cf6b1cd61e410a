"""Checks of the programs that hooks, graphs and directives pass to tools.

No value may be put into a program. A tool's schema may mark a parameter as a program, or as no
program. Where the schema can't be read, the parameter's name decides.

Source: decision 79; ADR 020.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from ryecore.chain.model import ValidChain
from ryecore.directives.inputs import PLACEHOLDER
from ryecore.directives.model import Action, Directive
from ryecore.errors import InvalidItemId, RyeError
from ryecore.items.refs import ItemRef
from ryecore.policy.hooks import HOOK_PLACEHOLDER, Hook
from ryecore.policy.scripts import check_scripts, has_placeholders

__all__ = ["ChainLookup", "check_actions", "check_hook", "tool_schema"]

ChainLookup: TypeAlias = Callable[[ItemRef], Awaitable[ValidChain]]
"""Verifies a tool and returns its chain, as `Dispatcher.chain` does."""


async def tool_schema(ref: ItemRef, chain: ChainLookup) -> Mapping[str, object] | None:
    """Return the JSON Schema of a tool's parameters; None if it has none or isn't verified."""
    try:
        return (await chain(ref)).parameter_schema
    except RyeError:  # the call reports the tool's problem
        return None


async def check_hook(hook: Hook, chain: ChainLookup) -> None:
    """Check that a hook puts no value of an event into a program, by the verified chain."""
    for action in hook.actions:
        item = action.item
        if action.primary != "execute" or item is None or item.kind != "tool":
            continue
        if has_placeholders(action.parameters, HOOK_PLACEHOLDER):
            check_scripts(
                f"The hook {hook.id!r} on {hook.event}",
                action.parameters,
                await tool_schema(item, chain),
                HOOK_PLACEHOLDER,
            )


async def check_actions(directive: ItemRef, definition: Directive, chain: ChainLookup) -> None:
    """Check that the actions of a parsed directive put no input into a program.

    The tools that are called are verified.
    """
    for action in definition.actions:
        if action.attributes.get("primary") != "execute":
            continue
        if not has_placeholders(action.parameters, PLACEHOLDER):
            continue
        kind, item = _called(action)
        if kind != "directive":  # whose inputs are text for a model
            check_scripts(
                f"An action of {directive} that executes {item}",
                action.parameters,
                await _schema_of(item, chain),
                PLACEHOLDER,
            )


def _called(action: Action) -> tuple[str, str]:
    """Return the kind and the id of the item that an action executes."""
    item = str(action.attributes.get("item_id", ""))
    kind, colon, rest = item.partition(":")
    if colon and kind in ("tool", "directive"):
        return kind, rest
    named = (action.attributes.get(key) for key in ("item_type", "kind"))
    return ("directive" if "directive" in named else "tool"), item


async def _schema_of(item: str, chain: ChainLookup) -> Mapping[str, object] | None:
    try:
        ref = ItemRef.parse(f"tool:{item}")
    except InvalidItemId:  # such as a placeholder: any tool may be called
        return None
    return await tool_schema(ref, chain)
