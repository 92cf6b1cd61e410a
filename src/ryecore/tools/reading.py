"""The tool by which a model reads what was too long to be shown at once."""

from collections.abc import Callable
from typing import Annotated, Final

from ryecore.errors import StoreError
from ryecore.tools.definition import ToolDef
from ryecore.tools.failures import invalid_arguments
from ryecore.tools.store import ResultStore

__all__ = ["read_result_tool"]

_MAX_CHARS: Final = 8000


def read_result_tool(
    store: ResultStore,
    *,
    name: str = "read_result",
    max_chars: int = _MAX_CHARS,
    bound: Callable[[], int] | None = None,
) -> ToolDef:
    """Make the tool that reads slices of kept results.

    Whoever has a handle can read what it stands for, so a store should hold the results of one
    agent, or of agents that may see each other's.

    Args:
        store: Where the results are kept.
        name: What the model calls it.
        max_chars: How much it gives at once; best less than `ToolLimits.preview_chars`.
        bound: How much it gives right now, where that can be less.
    """

    def read(
        handle: Annotated[str, "The handle of the result, result://…"],
        start: Annotated[int, "At which character to begin, from 0."] = 0,
        length: Annotated[int, f"How many characters to read, at most {max_chars}."] = max_chars,
    ) -> str:
        """Read a part of a tool's result that was too long to be shown whole."""
        try:
            text = store.read(handle).decode("utf-8", errors="replace")
        except StoreError:
            raise invalid_arguments(name, "handle: no result has it, or not any more") from None
        if not 0 <= start <= len(text):
            raise invalid_arguments(name, f"start: the result has {len(text)} characters")
        if length < 1:
            raise invalid_arguments(name, "length: at least 1")
        most = max_chars if bound is None else min(max_chars, bound())
        end = min(start + min(length, most), len(text))
        return f"[characters {start} to {end} of {len(text)}]\n{text[start:end]}"

    return ToolDef.from_function(read, name=name, parallel_safe=True)
