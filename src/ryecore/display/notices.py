"""Warnings whose text can't steer a terminal."""

import warnings
from typing import Final

from ryecore.display.sanitize import escape_controls

__all__ = ["RyeWarning", "warn"]

# Python prints the file that a warning names unescaped. A caller's file could be a clone's.
_WHERE: Final = "<ryecore>"
_REGISTRY: Final[dict[str | tuple[str, type[Warning], int], int]] = {}


class RyeWarning(UserWarning):
    """A warning for a person. The work continues."""


def warn(text: str) -> None:
    """Warn once for each text, unless Python's filters say otherwise.

    Args:
        text: The warning, one line. Control characters are escaped, because it may hold the names
            of a stranger's files.
    """
    warnings.warn_explicit(
        escape_controls(text), RyeWarning, _WHERE, 1, module="ryecore", registry=_REGISTRY
    )
