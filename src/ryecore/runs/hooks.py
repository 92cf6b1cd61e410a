"""The hooks of a thread, which inject knowledge, act on events, and steer the thread.

Source: docs/design/threads.md#hooks; decision 42.
"""

import re
import time
from collections.abc import Awaitable, Callable, Mapping
from copy import copy
from typing import Final, Literal, cast

from attrs import define, evolve, field

from ryecore.errors import IntegrityError, RyeError, TextTooLong
from ryecore.frozen import frozen
from ryecore.items.description import knowledge_text
from ryecore.items.refs import ItemRef
from ryecore.policy import CallContext
from ryecore.policy.hooks import (
    CONTROLS,
    Control,
    Hook,
    HookAction,
    HookEvent,
    HookLayer,
    HooksByEvent,
    fill_parameters,
)
from ryecore.runs.ports import Dispatcher, Fetched, Tell
from ryecore.runs.programs import check_hook
from ryecore.state.exports import without_record_line

__all__ = ["ContextBlock", "HookOutcome", "HookRunner", "context_block"]

_STEERING: Final = ("error", "limit")
"""The events for which no later hook runs once one has answered."""

_PAST_A_LIMIT: Final[tuple[Control, ...]] = ("fail", "abort", "handoff")
_CONTEXT_TAG: Final = re.compile(r"<(?=\s*/?\s*context\b)", re.IGNORECASE)
_ESCAPES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})
_FAILED: Final = ("error", "cancelled", "killed")
_MAX_SAID: Final = 500
_AFTER_S: Final = 60.0
"""The least time for the hooks that run after a thread's end, in seconds."""


@frozen
class ContextBlock:
    """Knowledge that a hook, or the directive's own `<context>`, adds to the prompt.

    Attributes:
        hook_id: The hook that added it; None for the directive's own.
        position: `before` or `after` the prompt, or in the `system` prompt.
        text: The item's text, without its signature and metadata.
        wrap: Whether the text is put inside a tag that names the item.
        is_trusted: Whether an author has signed the text. A record of a thread isn't trusted, and
            always stands inside a tag that marks it.
    """

    hook_id: str | None
    item_id: str
    position: Literal["system", "before", "after"]
    text: str
    kind: str = "knowledge"
    wrap: bool = True
    is_trusted: bool = True

    def render(self) -> str:
        """Render the block for the model. Its text can neither end its tag nor begin another."""
        if not self.wrap and self.is_trusted:
            return self.text
        text = _CONTEXT_TAG.sub("&lt;", self.text)
        item_id, kind = self.item_id.translate(_ESCAPES), self.kind.translate(_ESCAPES)
        mark = "" if self.is_trusted else ' trust="untrusted"'
        return f'<context id="{item_id}" type="{kind}"{mark}>\n{text}\n</context>'

    def to_dict(self) -> dict[str, object]:
        """Return the payload of the transcript's `context_injected` event."""
        return {
            "hook": self.hook_id,
            "item_id": self.item_id,
            "position": self.position,
            "text": self.text,
        }


@frozen
class HookOutcome:
    """The outcome of an event's hooks: the knowledge that they add, and the first control result.

    `by` is the id of the hook that returned it; empty for none.
    """

    blocks: tuple[ContextBlock, ...] = ()
    control: Control | None = None
    by: str = ""


_NOTHING: Final = HookOutcome()


@define
class _Run:
    """The progress of one hook."""

    blocks: list[ContextBlock] = field(factory=list)
    control: Control | None = None


class HookRunner:
    """The runner of the hooks of one thread.

    The directive's own hooks run with the thread's capabilities, those in configuration with the
    host's. Muted ones don't run here, because one of them started this thread. The context of
    suppressed hooks and items is left out, as `<suppress>` says.

    Attributes:
        tell: Records each run of a hook; None until the thread's log is open.
        flush: Writes what the thread's log has so far, before a hook runs an item: that may read
            the thread's file. None until the log is open.
    """

    def __init__(
        self,
        hooks: HooksByEvent,
        dispatcher: Dispatcher,
        tell: Tell | None = None,
        *,
        directive_ctx: CallContext,
        host_ctx: CallContext,
        muted: frozenset[str] = frozenset(),
        suppress: frozenset[str] = frozenset(),
    ) -> None:
        self._dispatcher = dispatcher
        self.tell = tell
        self.flush: Callable[[], Awaitable[None]] | None = None
        self._directive_ctx = directive_ctx
        self._host_ctx = host_ctx
        self._muted = muted
        self._suppress = suppress
        self._by_event = hooks if not muted else _without(hooks, muted)

    def past_the_end(self, deadline: float | None = None) -> "HookRunner":
        """Return the same hooks for a thread that has ended, free of its cancellation and deadline.

        They may run until a monotonic time in seconds in any case.
        """
        least = time.monotonic() + _AFTER_S
        until = least if deadline is None else max(least, deadline)
        runner = copy(self)
        runner._directive_ctx = evolve(self._directive_ctx, deadline=until, cancellation=None)
        runner._host_ctx = evolve(self._host_ctx, deadline=until, cancellation=None)
        return runner

    def listens(self, event: HookEvent) -> bool:
        """Return whether any hook is for an event, so that its context is needed."""
        return bool(self._by_event[event])

    async def check(self) -> None:
        """Check, before anything runs, that no hook puts a value of an event into a program."""
        for hook in (hook for hooks in self._by_event.values() for hook in hooks):
            await check_hook(hook, self._dispatcher.chain)

    async def run(self, event: HookEvent, context: Mapping[str, object]) -> HookOutcome:
        """Run the hooks of an event, in order of their layers and then as they were defined.

        The context has the values for their conditions, and for `${path}` in their parameters.
        Every hook whose condition holds is run; for the events `error` and `limit`, only those of
        layer 4 once one has returned a control result. The failure of a hook is recorded, and not
        raised, unless its item is not what a trusted key signed.
        """
        hooks = self._by_event[event]
        if not hooks:
            return _NOTHING
        blocks: list[ContextBlock] = []
        control: Control | None = None
        by = ""
        for hook in hooks:
            observes = hook.layer is HookLayer.INFRASTRUCTURE
            if control is not None and event in _STEERING and not observes:
                continue
            try:
                if not hook.answers(event, context):
                    continue
            except TextTooLong as error:
                await self._told(hook, error=str(error))
                continue
            wanted = await self._run(hook, context, blocks)
            if wanted is not None and control is None:
                control, by = wanted, hook.id
        return HookOutcome(tuple(blocks), control, by)

    async def _run(
        self, hook: Hook, context: Mapping[str, object], blocks: list[ContextBlock]
    ) -> Control | None:
        """Run one hook, record its outcome, and return its control result where that counts."""
        run = _Run()
        try:
            for action in hook.actions:
                await self._act(hook, action, context, run)
        except IntegrityError as error:
            await self._told(hook, error=str(error))
            raise
        except Exception as error:  # any failure ends the hook, not the thread
            await self._told(hook, error=str(error) or type(error).__name__)
            return None
        blocks += run.blocks
        ignored = _why_ignored(hook, run.control)
        await self._told(hook, control=run.control, ignored=ignored)
        return None if ignored else run.control

    async def _act(
        self, hook: Hook, action: HookAction, context: Mapping[str, object], run: _Run
    ) -> None:
        # Each run of a hook is a call of its own, whatever its parameters.
        ctx = (self._directive_ctx if hook.is_directives else self._host_ctx).part()
        if action.control is not None:
            run.control = run.control or action.control
        elif action.item is not None and action.primary == "fetch":
            if not {hook.id, action.item.id, str(action.item)} & self._suppress:
                fetched = await self._dispatcher.fetch(action.item, ctx=ctx)
                block = context_block(
                    fetched, action.item, action.position, hook_id=hook.id, wrap=action.wrap
                )
                run.blocks.append(block)
        elif action.item is not None:
            await check_hook(hook, self._dispatcher.chain)  # the tool may have been replaced
            if self.flush is not None:
                await self.flush()
            given = fill_parameters(action.parameters, context)
            if action.item.kind == "directive":
                muted = self._muted | {hook.key}
                forked = await self._dispatcher.fork(action.item, given, muted_hooks=muted, ctx=ctx)
                _check_ended_well(forked.to_dict())
            else:
                done = await self._dispatcher.execute(action.item, given, ctx=ctx)
                if not done.success:
                    raise RyeError(done.error or f"{action.item} failed.")
                run.control = run.control or _control_in(done.data)

    async def _told(
        self, hook: Hook, *, error: str = "", control: Control | None = None, ignored: str = ""
    ) -> None:
        record: dict[str, object] = {
            "id": hook.id,
            "event": hook.event,
            "layer": int(hook.layer),
            "ok": not error,
        }
        if error:
            record["error"] = error[:_MAX_SAID]
        if control is not None:
            record["control"] = control
        if ignored:
            record["ignored"] = ignored
        if self.tell is not None:
            await self.tell("hook", record)


def _without(hooks: HooksByEvent, muted: frozenset[str]) -> HooksByEvent:
    return {
        event: tuple(hook for hook in listening if hook.key not in muted)
        for event, listening in hooks.items()
    }


def _why_ignored(hook: Hook, control: Control | None) -> str:
    """Return why a hook's control result is ignored; empty where it counts or is missing."""
    if control is None:
        return ""
    if hook.layer is HookLayer.INFRASTRUCTURE:
        return f"layer {hook.layer:d} observes, and steers nothing"
    if hook.event == "limit" and control not in _PAST_A_LIMIT:
        return f"past a limit there is no {control}"
    return ""


def _control_in(data: object) -> Control | None:
    """Return the control result of a tool, which it returns as `{"control": ...}`."""
    wanted = data.get("control") if isinstance(data, Mapping) else None
    if wanted is None:
        return None
    if wanted not in CONTROLS:
        raise RyeError(
            f"It returned the control {str(wanted)[:40]!r}, none of {', '.join(CONTROLS)}."
        )
    return cast("Control", wanted)


def context_block(
    fetched: Fetched,
    ref: ItemRef,
    position: Literal["system", "before", "after"],
    *,
    hook_id: str | None = None,
    wrap: bool = True,
) -> ContextBlock:
    """Return the block that adds an item's text to a prompt.

    The text of a thread's record is always put inside a tag, and refused for the system prompt.

    Source: decision 5.
    """
    document = fetched.to_dict()
    if document.get("encoding", "utf-8") != "utf-8":
        raise RyeError(f"{ref} isn't text, so no model can read it.")
    is_record = document.get("record") is True
    if is_record and position == "system":
        raise RyeError(
            f"{ref} is the record of a thread, whose text no author has signed, so it can't stand "
            "in the system prompt.",
            next_step="Put it before or after the prompt.",
        )
    content = without_record_line(fetched.content) if is_record else fetched.content
    text = knowledge_text(content)
    return ContextBlock(hook_id, ref.id, position, text, ref.kind, wrap, not is_record)


def _check_ended_well(response: Mapping[str, object]) -> None:
    if response.get("status") == "error" or response.get("state") in _FAILED:
        raise RyeError(str(response.get("error") or "Its thread failed."))
