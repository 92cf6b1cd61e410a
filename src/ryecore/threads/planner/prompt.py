"""The first message of a thread: the directive, and the knowledge around it. Pure.

Source: docs/design/threads.md#first-message; docs/design/execute.md#returns; decision 48.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

from ryecore.directives.inputs import fill, render_returns
from ryecore.directives.model import ContextSpec, Directive
from ryecore.items.refs import ItemRef
from ryecore.policy import CallContext
from ryecore.runs.hooks import ContextBlock, context_block
from ryecore.runs.ports import Dispatcher

if TYPE_CHECKING:
    from ryecore.runs.resume import Continuation, ContinuationKind

__all__ = [
    "continued_message",
    "directive_context",
    "directive_prompt",
    "first_message",
    "opening_tag",
    "system_text",
]

_DIRECTIVE_TAG: Final = re.compile(r"<(?=\s*/?\s*directive\b)", re.IGNORECASE)
_ESCAPES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})
_GO_ON: Final[Mapping["ContinuationKind", str]] = {
    "handoff": (
        "The conversation above grew too long, and only its end is left. "
        "Go on with the work from there."
    ),
    "resume": (
        "This work was interrupted. Go on where it stopped. Where the result of a call is not "
        "known, find out what became of it before you do it again."
    ),
    "fork": "Go on with the work from here.",
}


def system_text(blocks: Iterable[ContextBlock]) -> str:
    """Return the system prompt; empty where no block belongs to it. Source: decision 48."""
    return _joined(block.render() for block in blocks if block.position == "system")


def _escape_inputs(inputs: Mapping[str, object]) -> dict[str, object]:
    """Escape a directive's inputs for its model: none can end the directive, or begin one.

    Source: docs/design/execute.md#inputs; decision 34.
    """
    return {name: _escaped(value) for name, value in inputs.items()}


def _escaped(value: object) -> object:
    if isinstance(value, str):
        return _DIRECTIVE_TAG.sub("&lt;", value)
    if isinstance(value, Mapping):
        return {_escaped(key): _escaped(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(one) for one in value]
    return value


def directive_prompt(directive: Directive, inputs: Mapping[str, object], returns: str = "") -> str:
    """Render a directive for its model: its purpose, the instructions, the `<returns>` section.

    Its inputs are put into the instructions, escaped. The raw `<outputs>` and the XML that concerns
    only the host are left out.

    Source: docs/design/execute.md#returns; docs/design/threads.md#first-message.
    """
    said = directive.description.translate(_ESCAPES)
    body = fill(directive.body, _escape_inputs(inputs))
    inside = _joined((f"<description>{said}</description>" if said else "", body, returns))
    return f"{opening_tag(directive)}\n{inside}\n</directive>"


def first_message(
    blocks: Sequence[ContextBlock],
    directive: Directive,
    inputs: Mapping[str, object],
    returns: str = "",
) -> str:
    """Return the text of a fresh thread's first message.

    It has the hooks' knowledge before, the directive's own before, the directive, its own knowledge
    after, the hooks' after; blank lines between.

    Source: docs/design/threads.md#first-message.
    """
    return _around(directive_prompt(directive, inputs, returns), blocks)


def continued_message(
    blocks: Sequence[ContextBlock],
    directive: Directive,
    inputs: Mapping[str, object],
    continues: "Continuation",
) -> str:
    """Return the first user message of a thread that continues another one, within its context.

    The directive is repeated where the trimmed conversation doesn't hold it.

    Source: docs/design/threads.md#first-message; decision 45.
    """
    opening = opening_tag(directive)
    is_told = any(opening in one.text for one in continues.messages if one.role == "user")
    told = ""
    if not is_told:
        told = directive_prompt(directive, inputs, render_returns(directive.outputs))
    said = continues.message or _GO_ON[continues.kind]
    return _around(_joined((told, said)), blocks)


def _around(prompt: str, blocks: Sequence[ContextBlock]) -> str:
    """Return a prompt within the directive's knowledge, and both within that of hooks."""

    def rendered(position: str, *, own: bool) -> list[str]:
        return [
            block.render()
            for block in blocks
            if block.position == position and (block.hook_id is None) is own
        ]

    return _joined(
        (
            *rendered("before", own=False),
            *rendered("before", own=True),
            prompt,
            *rendered("after", own=True),
            *rendered("after", own=False),
        )
    )


def opening_tag(directive: Directive) -> str:
    """Return the tag with which a directive begins in the message that has it."""
    return f'<directive name="{directive.name.translate(_ESCAPES)}">'


def _joined(texts: Iterable[str]) -> str:
    return "\n\n".join(text for text in texts if text)


async def directive_context(
    context: ContextSpec, dispatcher: Dispatcher, ctx: CallContext
) -> tuple[ContextBlock, ...]:
    """Read the knowledge that a directive adds to its own prompt, merged with its ancestors'.

    An item that can't be read is an error, as the directive needs it. Blocks for the system prompt
    have no tag around them.
    """
    blocks: list[ContextBlock] = []
    placed: tuple[tuple[Literal["system", "before", "after"], tuple[str, ...]], ...] = (
        ("system", context.system),
        ("before", context.before),
        ("after", context.after),
    )
    for position, ids in placed:
        if not ids:
            continue
        # The host composes the system prompt: its author names the items in a signed file, and the
        # thread itself need not be allowed to read it.
        reader = ctx.for_host() if position == "system" else ctx
        for item_id in ids:
            ref = ItemRef.parse(item_id, "knowledge")
            fetched = await dispatcher.fetch(ref, ctx=reader)
            blocks.append(context_block(fetched, ref, position, wrap=position != "system"))
    return tuple(blocks)
