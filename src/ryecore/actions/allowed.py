"""Whether a caller may do what it asks for."""

from ryecore.errors import InputError
from ryecore.items.refs import ItemRef
from ryecore.policy import CallContext, allows, capability_of
from ryecore.policy.capabilities import Action

__all__ = ["check_capability"]


def check_capability(action: Action, ref: ItemRef, ctx: CallContext) -> None:
    """Check that the caller has the capability for an action on an item.

    Raises:
        InputError: It lacks it. The host's own calls lack nothing.
    """
    needed = capability_of(action, ref.kind, ref.id)
    if ctx.capabilities is not None and not allows(ctx.capabilities, needed):
        raise InputError(
            f"The caller lacks the capability {needed}.",
            next_step="Grant it, or call something else.",
            capability=needed,
        )
