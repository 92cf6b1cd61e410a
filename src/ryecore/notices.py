"""The one way in which ryecore warns: no text that is warned of can steer a terminal."""

import warnings
from typing import Final

from ryecore.styled import printable

__all__ = ["RyeWarning", "warn"]

# Python prints the file and line that a warning names, raw. Those of a caller could lie in a clone.
_WHERE: Final = "<ryecore>"
_REGISTRY: Final[dict[str | tuple[str, type[Warning], int], int]] = {}


class RyeWarning(UserWarning):
    """Something that a person should know, and that stops nothing."""


def warn(text: str) -> None:
    """Warn of something, once for each text, as Python's filters say.

    Args:
        text: What to say, on one line. Control characters in it are escaped, since names of files
            come from whoever made them.
    """
    warnings.warn_explicit(
        printable(text), RyeWarning, _WHERE, 1, module="ryecore", registry=_REGISTRY
    )
