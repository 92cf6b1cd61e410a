"""Pages of a list, by opaque cursors that stay right while the list changes. Pure."""

import base64
import binascii
from collections.abc import Mapping
from typing import TypeVar

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

__all__ = ["page_of"]

T = TypeVar("T")


def page_of(
    entries: Mapping[str, T], cursor: str | None, size: int
) -> tuple[dict[str, T], str | None]:
    """Return a page of entries that are sorted by their keys, and the cursor of the next one.

    Args:
        entries: All of them.
        cursor: That of the page; None for the first.
        size: The most entries of a page.

    Raises:
        MCPError: The cursor isn't one of this list.
    """
    after = "" if cursor is None else _read(cursor)
    names = [name for name in entries if name > after]
    shown = names[:size]
    more = _cursor(shown[-1]) if len(names) > size else None
    return {name: entries[name] for name in shown}, more


def _cursor(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def _read(cursor: str) -> str:
    try:
        return base64.b64decode(cursor.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise MCPError(code=INVALID_PARAMS, message="The cursor isn't one of this list.") from None
