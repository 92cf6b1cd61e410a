"""What callers give, which may be of any type: checked before anything is made of it."""

from collections.abc import Mapping
from typing import Any

from ryecore.errors import InputError

__all__ = ["checked_mapping"]


def checked_mapping(
    given: Mapping[str, Any] | None,
    what: str = "Parameters",
    example: str = '{"path": "sales.csv"}',
) -> Mapping[str, Any]:
    """A mapping with text keys; an empty one for None.

    Args:
        given: What the caller gave.
        what: What it is called, in the plural.
        example: One that would do.

    Raises:
        InputError: It is something else.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise InputError(
            f"{what} are a mapping with text keys, not {type(given).__name__}.",
            next_step=f"Pass one, such as {example}.",
        )
    return given
