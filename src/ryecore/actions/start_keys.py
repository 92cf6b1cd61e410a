"""Make the idempotency key of a start from what its caller passes."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ryecore.items.refs import ItemRef
from ryecore.policy.limits import Limits

if TYPE_CHECKING:
    from ryecore.state.start_keys import IdempotencyKey

__all__ = ["start_key_of"]


def start_key_of(
    key: str | None,
    ref: ItemRef,
    parameters: Mapping[str, Any],
    limits: Limits,
    capabilities: Collection[str] | None,
    model: str | None = None,
) -> "IdempotencyKey | None":
    """Make the idempotency key of a start, with the request that it is for.

    Args:
        key: The caller's key; None for none.
        ref: What is started.
        parameters: Its parameters or inputs.
        limits: The limits that its caller names.
        capabilities: What its caller may do; None for the host.
        model: The model that its caller names.

    Raises:
        InputError: It can't be a key, or the parameters can't be written as JSON.
    """
    if key is None:
        return None
    from ryecore.state.start_keys import IdempotencyKey  # noqa: PLC0415 - for what is started alone

    request = {"parameters": parameters, "model": model, "limits": limits.to_dict()}
    return IdempotencyKey.of(key, str(ref), request, capabilities)
