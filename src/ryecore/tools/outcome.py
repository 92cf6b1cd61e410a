"""What is told of a tool call while it is served, and what comes of it."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from attrs import frozen

from ryecore.llm.parts import ToolResultPart

__all__ = ["OnToolEvent", "ToolCalled", "ToolOutcome", "ToolReturned"]


@frozen
class ToolCalled:
    """A tool is about to run: everything was checked, and approved where that was needed.

    Attributes:
        tool_name: The tool.
        tool_input: What the model sent; shortened text where that is long. What the host set itself
            is left out.
    """

    tool_name: str
    tool_input: Mapping[str, Any] | str


@frozen
class ToolReturned:
    """A tool that ran has ended.

    Attributes:
        tool_name: The tool.
        success: Whether it gave a result.
        output_summary: The result, or what went wrong, shortened.
    """

    tool_name: str
    success: bool
    output_summary: str


OnToolEvent: TypeAlias = Callable[[ToolCalled | ToolReturned], None]


@frozen
class ToolOutcome:
    """What came of a tool call.

    Attributes:
        part: What the model sees.
        value: What the tool gave, whole.
        handle: Where the whole is kept, if the model sees only some of it and it could be kept.
        duration_ms: How long the tool ran.
    """

    part: ToolResultPart
    value: object
    handle: str | None
    duration_ms: float
