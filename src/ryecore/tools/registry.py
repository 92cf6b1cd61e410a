"""The registry of a host's tools, by name, which serves their calls."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ryecore.errors import ToolCallError, UnknownToolError
from ryecore.llm.parts import ToolCallPart
from ryecore.llm.request import ToolSpec
from ryecore.tools.context import ToolContext, ToolLimits
from ryecore.tools.definition import FunctionTool, ToolDef, same_tool
from ryecore.tools.dispatch import granted, serve
from ryecore.tools.results import OnToolEvent, ToolOutcome

__all__ = ["ToolRegistry", "tools_by_name"]


def tools_by_name(
    declared: Iterable[str | ToolDef | Callable[..., Any]],
) -> tuple[str | ToolDef, ...]:
    """Return names and tools, each once, in their order; functions become tools.

    A TypeError says what is neither, a ValueError which two tools of one name differ.
    """
    listed: dict[str, str | ToolDef] = {}
    for one in declared:
        tool = one if isinstance(one, str) else as_tool(one)
        name = tool if isinstance(tool, str) else tool.name
        there = listed.setdefault(name, tool)
        if isinstance(there, str) or isinstance(tool, str):
            listed[name] = tool if isinstance(there, str) else there
        elif not same_tool(there, tool):
            raise two_of_one_name(there, tool)
    return tuple(listed.values())


def as_tool(tool: ToolDef | Callable[..., Any]) -> ToolDef:
    """Return a tool, or the tool of a function; refuse a method without its object."""
    made = tool if isinstance(tool, ToolDef) else ToolDef.from_function(tool)
    if isinstance(made, FunctionTool) and made.is_unbound:
        raise TypeError(
            f"{made.name} is a method of a class. Pass that of an object: `thing.{made.name}`."
        )
    return made


def two_of_one_name(one: ToolDef, other: ToolDef) -> ValueError:
    """Return the error for two tools of one name."""
    return ValueError(f"Two tools have the name {one.name}: {one!r} and {other!r}.")


class ToolRegistry:
    """Tools by their exact names. Any number of runs may share it.

    Args:
        tools: The tools; a function becomes one by its types and docstring.
        limits: The limits of every call.

    Raises:
        ValueError: Two have one name, or a name isn't one that every vendor takes.
        TypeError: A function can't be shown to a model.
    """

    def __init__(
        self,
        tools: Iterable[ToolDef | Callable[..., Any]] = (),
        *,
        limits: ToolLimits = ToolLimits(),  # noqa: B008 - frozen
    ) -> None:
        self.limits = limits
        self._tools: dict[str, ToolDef] = {}
        for tool in tools:
            self.add(tool)

    def add(self, tool: ToolDef | Callable[..., Any]) -> ToolDef:
        """Add a tool.

        Returns:
            The tool.

        Raises:
            ValueError: Another one has its name.
            TypeError: It is a function that can't be shown to a model.
        """
        made = as_tool(tool)
        there = self._tools.get(made.name)
        if there is not None:
            raise two_of_one_name(there, made)
        self._tools[made.name] = made
        return made

    def get(self, name: str) -> ToolDef | None:
        """Return the tool with exactly this name; None if there is none."""
        return self._tools.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __iter__(self) -> Iterator[ToolDef]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __repr__(self) -> str:
        return f"ToolRegistry({', '.join(self._tools)})"

    def specs(self, names: Iterable[str] | None = None) -> tuple[ToolSpec, ...]:
        """Return the tools as models see them.

        Args:
            names: The tools, in this order; by default all, in the order of their addition.

        Raises:
            LookupError: A tool is missing.
        """
        if names is None:
            return tuple(tool.spec for tool in self._tools.values())
        specs = []
        for name in names:
            tool = self._tools.get(name)
            if tool is None:
                raise LookupError(
                    f"No tool is called {name!r}. There are: {', '.join(self._tools)}."
                )
            specs.append(tool.spec)
        return tuple(specs)

    def denies(self, name: str, ctx: ToolContext) -> bool:
        """Return whether grant or capability deny a call, whatever its arguments are.

        Args:
            name: The name that the model wrote; an unknown one isn't denied.
            ctx: The context of the call.
        """
        try:
            granted(self._tools, name, ctx)
        except UnknownToolError:
            return False
        except ToolCallError:
            return True
        return False

    async def dispatch(
        self, call: ToolCallPart, ctx: ToolContext, on_event: OnToolEvent | None = None
    ) -> ToolOutcome:
        """Serve a model's call of a tool.

        In order: grant, arguments, schema, policy, approval; then it runs, and its result is put
        into JSON, bounded and marked untrusted.

        Args:
            call: The model's call.
            ctx: The context of the call.
            on_event: Called right before the tool runs, and after.

        Returns:
            The result that the model sees, and the whole one.

        Raises:
            UnknownToolError: No tool has this name.
            ToolArgsInvalidError: The arguments aren't JSON, are too large, or don't fit the schema.
            ToolPolicyError: The call is denied.
            ToolExecutionError: The tool failed, took too long, or returned a value that isn't JSON.
            ToolCancelledError: `ctx.call`'s token cancelled it.
            HostCapabilityMissing: The host doesn't offer what the tool needs.

        Source: docs/design/agent-node.md#failures.
        """
        return await serve(granted(self._tools, call.name, ctx), call, ctx, self.limits, on_event)
