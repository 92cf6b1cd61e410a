"""The tool with which a model reads results that were too long to be shown at once."""

from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Final

from attrs import evolve

from ryecore.errors import StoreError
from ryecore.tools.definition import FunctionTool, ToolDef
from ryecore.tools.failures import invalid_arguments
from ryecore.tools.functions import FunctionRunner, FunctionShape, read_function
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
    shape = evolve(_shape(max_chars), name=name)
    read = _reader(store.read, name, max_chars, bound)
    return FunctionTool(
        name=name,
        description=shape.description,
        parameters=shape.parameters,
        run=FunctionRunner(read, shape),
        parallel_safe=True,
        read_only=True,
        source=f"the function {__name__}.{shape.qualified_name}",
        function=read,
    )


@lru_cache(maxsize=64)
def _shape(max_chars: int) -> FunctionShape:
    """Return the tool's definition; the same for every store, and costly to read."""
    return read_function(_reader(_read_nothing, "", max_chars, None))


def _read_nothing(_: str) -> bytes:
    return b""


def _reader(
    read_whole: Callable[[str], bytes],
    name: str,
    max_chars: int,
    bound: Callable[[], int] | None,
) -> Callable[[str, int, int], str]:
    def read(
        handle: Annotated[str, "The handle of the result, result://…"],
        start: Annotated[int, "At which character to begin, from 0."] = 0,
        length: Annotated[int, f"How many characters to read, at most {max_chars}."] = max_chars,
    ) -> str:
        """Read a part of a tool's result that was too long to be shown whole."""
        try:
            text = read_whole(handle).decode("utf-8", errors="replace")
        except StoreError:
            raise invalid_arguments(name, "handle: no stored result has it, or no longer") from None
        if not 0 <= start <= len(text):
            raise invalid_arguments(name, f"start: the result has {len(text)} characters")
        if length < 1:
            raise invalid_arguments(name, "length: at least 1")
        most = max_chars if bound is None else min(max_chars, bound())
        end = min(start + min(length, most), len(text))
        return f"[characters {start} to {end} of {len(text)}]\n{text[start:end]}"

    return read
