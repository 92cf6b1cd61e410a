"""What a directive is, once it was read."""

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from attrs import evolve, field

from ryecore.directives.inputs import Declared, fill, fill_tree
from ryecore.directives.permissions import Permissions
from ryecore.frozen import frozen
from ryecore.policy.hooks import Hook, in_order
from ryecore.policy.limits import Limits

__all__ = [
    "Action",
    "Composition",
    "ContextSpec",
    "Directive",
    "ModelSpec",
    "PromptCache",
    "compose",
    "extends_by_hook",
]


PromptCache: TypeAlias = Literal["5m", "1h", "none"]
"""The least time for which a provider should keep a conversation, where that can be chosen."""


@frozen
class ModelSpec:
    """The model that a directive asks for: a tier such as `fast`, or a name; and a substitute.

    `parallel` tells whether the calls of one answer may run at the same time, and `cache` for how
    long the provider should keep the conversation; None leaves it open.
    """

    tier: str | None = None
    id: str | None = None
    provider: str | None = None
    fallback: str | None = None
    parallel: bool | None = None
    cache: PromptCache | None = None

    @property
    def wanted(self) -> str | None:
        """What to look the model up by: `provider/model`, a model's name, or a tier."""
        if self.id is None:
            return self.tier
        return f"{self.provider}/{self.id}" if self.provider else self.id

    def to_dict(self) -> dict[str, object]:
        """Return what was declared."""
        named = ("tier", "id", "provider", "fallback", "parallel", "cache")
        return {name: getattr(self, name) for name in named if getattr(self, name) is not None}


@frozen
class ContextSpec:
    """The knowledge around a thread's prompt, by id, and what is left out of an ancestor's."""

    system: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    suppress: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return what was declared."""
        named = ("system", "before", "after", "suppress")
        return {name: list(getattr(self, name)) for name in named if getattr(self, name)}


@frozen
class Action:
    """An `<action>` in a directive's XML, as data: attributes such as `primary`, and parameters.

    A parameter that is a single placeholder keeps its type.
    """

    attributes: Mapping[str, object]
    parameters: Mapping[str, object]

    def with_inputs(self, inputs: Mapping[str, object]) -> "Action":
        """Return the action with inputs put in for their placeholders."""
        return Action(_filled(self.attributes, inputs), _filled(self.parameters, inputs))

    def to_dict(self) -> dict[str, object]:
        """Return the action as a JSON-ready object."""
        return {**self.attributes, "params": dict(self.parameters)}


def _filled(texts: Mapping[str, object], inputs: Mapping[str, object]) -> dict[str, object]:
    return {name: fill_tree(value, inputs) for name, value in texts.items()}


@frozen
class Directive:
    """A directive, as its file declares it.

    Attributes:
        name: Its name, which is its file's stem.
        version: Its version; empty where it declares none.
        extends: The id of the directive that it extends.
        title: The first heading of its prose.
        preamble: The prose before the XML block.
        category: The folder that it declares; None for none.
        limits: Its limits; None where it sets none.
        permissions: Its capabilities, and the risks that it acknowledges.
        declares_permissions: Whether it has `<permissions>` at all.
        cost: Its `<cost>`, by element.
        context: The knowledge around its prompt.
        continuation_directive: The id of the directive that continues it after a handoff.
        other: Every other element of its metadata, as text.
        body: The instructions behind the XML block.
        body_line: The file's line on which they begin.
        content: The whole file without its signature line.
        raw: The XML block.
    """

    name: str
    version: str = ""
    extends: str | None = None
    title: str = ""
    preamble: str = field(default="", repr=False)
    description: str = ""
    category: str | None = None
    author: str = ""
    model: ModelSpec | None = None
    limits: Limits = field(factory=Limits)
    permissions: Permissions = field(factory=Permissions)
    declares_permissions: bool = False
    cost: Mapping[str, str] = field(factory=dict)
    hooks: tuple[Hook, ...] = ()
    context: ContextSpec = ContextSpec()
    inputs: tuple[Declared, ...] = ()
    outputs: tuple[Declared, ...] = ()
    continuation_directive: str | None = None
    actions: tuple[Action, ...] = ()
    other: Mapping[str, str] = field(factory=dict)
    body: str = field(default="", repr=False)
    body_line: int = 1
    content: str = field(default="", repr=False)
    raw: str = field(default="", repr=False)

    def with_inputs(self, inputs: Mapping[str, object]) -> "Directive":
        """Return the directive with inputs put in for the placeholders of its texts and actions.

        Source: docs/design/execute.md#inputs.
        """
        return evolve(
            self,
            body=fill(self.body, inputs),
            content=fill(self.content, inputs),
            raw=fill(self.raw, inputs),
            actions=tuple(action.with_inputs(inputs) for action in self.actions),
        )

    def to_dict(self) -> dict[str, object]:
        """Return the directive as a JSON-ready object, with its body but not its file's text."""
        return {
            "name": self.name,
            "version": self.version,
            "extends": self.extends,
            "title": self.title,
            "description": self.description,
            "category": self.category,
            "author": self.author,
            "model": self.model.to_dict() if self.model else None,
            "limits": self.limits.to_dict(),
            "permissions": list(self.permissions.capabilities),
            "acknowledged_risks": [
                {"risk": one.risk, "reason": one.reason} for one in self.permissions.risks
            ],
            "cost": dict(self.cost),
            "hooks": [hook.to_dict() for hook in self.hooks],
            "context": self.context.to_dict(),
            "inputs": [one.to_dict() for one in self.inputs],
            "outputs": [one.to_dict() for one in self.outputs],
            "continuation_directive": self.continuation_directive,
            "actions": [action.to_dict() for action in self.actions],
            "metadata": dict(self.other),
            "body": self.body,
        }


@frozen
class Composition:
    """A directive and its ancestors as one.

    Attributes:
        permissions: The directive's own, or its nearest ancestor's that declares any.
        hooks: All hooks, the root's first; of one id the nearest to the directive counts.
        context: All knowledge, the root's first, each item once, without what is suppressed.
    """

    permissions: Permissions
    hooks: tuple[Hook, ...]
    context: ContextSpec


def compose(chain: Sequence[Directive]) -> Composition:
    """Compose the chain of a directive, which is its first, and those that it extends."""
    declared = (one.permissions for one in chain if one.declares_permissions)
    hooks: dict[str, Hook] = {}
    for one in reversed(chain):
        hooks.update((hook.id, hook) for hook in one.hooks)
    suppressed = {item for one in chain for item in one.context.suppress}

    def knowledge(name: str) -> tuple[str, ...]:
        items = (item for one in reversed(chain) for item in getattr(one.context, name))
        return tuple(dict.fromkeys(item for item in items if item not in suppressed))

    context = ContextSpec(
        knowledge("system"), knowledge("before"), knowledge("after"), tuple(sorted(suppressed))
    )
    return Composition(next(declared, Permissions()), tuple(hooks.values()), context)


def extends_by_hook(hooks: Sequence[Hook], context: Mapping[str, object]) -> str | None:
    """Return which directive a hook has this one extend; the first hook that answers decides.

    Source: docs/design/threads.md#extends.
    """
    for hook in in_order(hooks):
        if hook.answers("resolve_extends", context):
            for action in hook.actions:
                if action.set_extends is not None:
                    return action.set_extends
    return None
