"""`@tool`: a function that a model may be given."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar, overload

from ryecore.tools.definition import FunctionTool, ToolDef
from ryecore.tools.policy import ToolPolicy

__all__ = ["tool"]

P = ParamSpec("P")
R = TypeVar("R")


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    inline: bool = False,
    parallel_safe: bool = False,
    timeout_s: float | None = None,
    config: Mapping[str, Any] | None = None,
    policy: ToolPolicy | None = None,
    needs_approval: bool = False,
    capability: str | None = None,
    needs: Iterable[str] = (),
    untrusted: bool = True,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(function: Callable[P, R] | None = None, /, **options: Any) -> Any:
    """Make a tool of a function, which can be called as before.

    Types become the schema; the docstring gives the description and, below `Args:`, those of the
    parameters. A parameter of the type `ToolContext` is the context, which no model sees.

    Args:
        function: The function, or a method.
        **options: See `ToolDef.from_function`.

    Returns:
        The tool; with options alone, a decorator.

    Raises:
        TypeError: A parameter's type can't be shown to a model; it is named.
        ValueError: The name, or what the host set, can't be used.
    """
    if function is not None:
        return ToolDef.from_function(function)

    def decorate(function: Callable[P, R]) -> FunctionTool[P, R]:
        return ToolDef.from_function(function, **options)

    return decorate
