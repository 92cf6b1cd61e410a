"""Whether a caller may do what it asks for, where it asks for it."""

from ryecore.errors import InputError
from ryecore.items.refs import ItemRef
from ryecore.items.spaces import Space, Spaces
from ryecore.policy import CallContext, allows, capability_of
from ryecore.policy.permissions import Action

__all__ = ["check_capability", "own_space"]


def check_capability(action: Action, ref: ItemRef, ctx: CallContext) -> None:
    """Check that the caller has the capability for an action on an item.

    Raises:
        InputError: It lacks it. The host's own calls lack nothing.
    """
    if ctx.capabilities is None:
        return
    needed = capability_of(action, ref.kind, ref.id)
    if not allows(ctx.capabilities, needed):
        raise InputError(
            f"The caller lacks the capability {needed}.",
            next_step="Grant it, or call something else.",
            capability=needed,
        )


def own_space(spaces: Spaces, name: str, done: str) -> Space:
    """The project's or the user's space, by its name.

    Args:
        spaces: All spaces.
        name: `project` or `user`.
        done: What is done there, for the error's text.

    Raises:
        InputError: It is another one.
    """
    if name not in ("project", "user"):
        raise InputError(
            f"Nothing in {name!r} space can be {done}.",
            next_step='Write "project" or "user": system space is sealed.',
        )
    return spaces.project if name == "project" else spaces.user
