"""The knowledge that a directive puts around its own prompt."""

from typing import Literal

from attrs import evolve

from ryecore.directives.model import ContextSpec
from ryecore.items.refs import ItemRef
from ryecore.policy import CallContext
from ryecore.runs.hooks import ContextBlock, context_block
from ryecore.runs.ports import Dispatcher

__all__ = ["directive_context"]


async def directive_context(
    context: ContextSpec, dispatcher: Dispatcher, ctx: CallContext
) -> tuple[ContextBlock, ...]:
    """The knowledge that a directive puts around its own prompt.

    Args:
        context: What it declares, composed with its ancestors'.
        dispatcher: The actions.
        ctx: Within what it is read.

    Returns:
        The blocks; those for the system prompt stand there without a tag around them.

    Raises:
        RyeError: An item can't be found, verified or read: the directive can't do without it.
    """
    blocks: list[ContextBlock] = []
    placed: tuple[tuple[Literal["system", "before", "after"], tuple[str, ...]], ...] = (
        ("system", context.system),
        ("before", context.before),
        ("after", context.after),
    )
    for position, ids in placed:
        # The host composes the system prompt: its author names the items in a signed file, and the
        # thread itself need not be allowed to read it.
        reader = evolve(ctx, capabilities=None) if position == "system" else ctx
        for item_id in ids:
            ref = ItemRef.parse(item_id, "knowledge")
            fetched = await dispatcher.fetch(ref, ctx=reader)
            blocks.append(context_block(fetched, ref, position, wrap=position != "system"))
    return tuple(blocks)
