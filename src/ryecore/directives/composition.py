"""What a directive is together with those that it extends. Pure.

Source: docs/design/threads.md#composition; decision 41.
"""

from collections.abc import Mapping, Sequence

from attrs import frozen

from ryecore.directives.model import ContextSpec, Directive
from ryecore.directives.permissions import Permissions
from ryecore.policy.hooks import Hook, in_order

__all__ = ["Composition", "compose", "extends_by_hook"]


@frozen
class Composition:
    """A directive and its ancestors as one.

    Attributes:
        permissions: The directive's own, or its nearest ancestor's that declares any.
        hooks: All hooks, the root's first; of one id the nearest to the directive counts.
        context: All knowledge, the root's first, each item once, what is suppressed left out.
    """

    permissions: Permissions
    hooks: tuple[Hook, ...]
    context: ContextSpec


def compose(chain: Sequence[Directive]) -> Composition:
    """Compose a directive with those that it extends.

    Args:
        chain: The directive first, the root last.
    """
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
    """Which directive a hook has this one extend; the first hook that answers decides.

    Source: docs/design/threads.md#extends.
    """
    for hook in in_order(hooks):
        if hook.answers("resolve_extends", context):
            for action in hook.actions:
                if action.set_extends is not None:
                    return action.set_extends
    return None
