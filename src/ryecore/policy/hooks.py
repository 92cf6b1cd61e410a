"""Hooks: what happens beside a thread's own work, and in which order. Pure.

Source: docs/design/threads.md#hooks; decision 42.
"""

import re
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, Literal, TypeAlias, get_args

from attrs import field

from ryecore.convert.fields import key, omitted_at_default, written_by
from ryecore.convert.strict import WIRE
from ryecore.frozen import frozen
from ryecore.items.refs import ItemRef
from ryecore.policy.conditions import Condition
from ryecore.policy.paths import fill_placeholders, parse_path

__all__ = [
    "CONTROLS",
    "EVENTS",
    "HOOK_PLACEHOLDER",
    "Control",
    "Hook",
    "HookAction",
    "HookEvent",
    "HookLayer",
    "HooksByEvent",
    "by_event",
    "fill_parameters",
    "in_order",
]

HookEvent = Literal[
    "resolve_extends", "thread_started", "thread_continued", "after_step", "after_complete",
    "error", "limit", "directive_return", "context_window_pressure", "context_limit_reached",
]  # fmt: skip
EVENTS: Final[tuple[HookEvent, ...]] = get_args(HookEvent)

Control = Literal["retry", "fail", "abort", "continue", "skip", "handoff"]
CONTROLS: Final[tuple[Control, ...]] = get_args(Control)


HOOK_PLACEHOLDER: Final = re.compile(r"\$\{([A-Za-z_][^{}$\s]*)\}")
"""What stands in a hook's parameters for a value of the event's context."""


class HookLayer(IntEnum):
    """Where a hook comes from; lower layers run first."""

    USER = 0
    DIRECTIVE = 1
    BUILT_IN = 2
    PROJECT = 3
    INFRASTRUCTURE = 4


@frozen
class HookAction:
    """The action of a hook: an item to run or fetch, another extends target, or a control result.

    Fetched context goes `before` or `after` the prompt, inside a tag where it `wrap`s.
    """

    primary: Literal["execute", "fetch"] | None = field(default=None, metadata=omitted_at_default())
    item: ItemRef | None = field(
        default=None, metadata=written_by(str, "item_id", omitted_at_default=True)
    )
    parameters: Mapping[str, object] = field(
        factory=dict, metadata=key("params", omitted_at_default=True)
    )
    set_extends: str | None = field(default=None, metadata=omitted_at_default())
    control: Control | None = field(default=None, metadata=omitted_at_default())
    position: Literal["before", "after"] = field(default="before", metadata=omitted_at_default())
    wrap: bool = field(default=True, metadata=omitted_at_default())


@frozen
class Hook:
    """One hook.

    Attributes:
        id: Its name, unique in its file.
        event: The event at which its condition is checked; one of `EVENTS`.
        condition: When it acts; None is always.
        layer: Its place in the order; its file's own layer, or a later one that it declares.
        description: For people.
        owner: The name of the directive that declares it, whichever layer it asks for; empty where
            configuration does.
    """

    id: str
    event: HookEvent
    actions: tuple[HookAction, ...]
    condition: Condition | None = field(
        default=None, metadata=written_by(lambda one: one.to_dict(), omitted_at_default=True)
    )
    layer: HookLayer = HookLayer.DIRECTIVE
    description: str = field(default="", metadata=omitted_at_default())
    owner: str = field(default="", metadata=omitted_at_default())

    @property
    def is_directives(self) -> bool:
        """Whether it acts within a directive's capabilities; else it acts for the host."""
        return bool(self.owner)

    @property
    def key(self) -> str:
        """What it is muted by: a directive's hook can't pass for one of configuration."""
        return f"{f'directive {self.owner}' if self.owner else int(self.layer)}:{self.id}"

    def answers(self, event: str, context: Mapping[str, object]) -> bool:
        """Return whether it acts on this event, in this context.

        A text that is too long for its condition's regular expression raises TextTooLong.
        """
        return event == self.event and (self.condition is None or self.condition.holds(context))

    def to_dict(self) -> dict[str, object]:
        """Return the hook as its JSON-ready form, without what has its default value."""
        hook: dict[str, object] = WIRE.write(self)
        return hook


HooksByEvent: TypeAlias = Mapping[HookEvent, tuple[Hook, ...]]
"""The hooks of each event, in order."""


def in_order(hooks: Iterable[Hook]) -> tuple[Hook, ...]:
    """Sort hooks by layer, and within a layer keep the order of their definition."""
    return tuple(sorted(hooks, key=lambda hook: hook.layer))


def by_event(hooks: Iterable[Hook]) -> HooksByEvent:
    """Group hooks by their event, those of each in order."""
    ordered = in_order(hooks)
    return {event: tuple(hook for hook in ordered if hook.event == event) for event in EVENTS}


def fill_parameters(
    parameters: Mapping[str, object], context: Mapping[str, object]
) -> dict[str, object]:
    """Put an event's context in for `${path}` in a hook's parameters, in one pass.

    A text that is just one placeholder becomes the value, whatever its type; within a longer
    text, other values are written as JSON. One that leads nowhere stays as it is.
    """

    def value_of(found: re.Match[str]) -> object:
        return parse_path(found[1]).find(context, found[0])

    return {
        name: fill_placeholders(value, HOOK_PLACEHOLDER, value_of)
        for name, value in parameters.items()
    }
