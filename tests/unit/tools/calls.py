"""Short ways to call tools in tests."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from ryecore.errors import ToolCallError
from ryecore.llm.parts import ToolCallPart
from ryecore.tools import ToolContext, ToolDef, ToolLimits, ToolOutcome, ToolRegistry

Event = Any


def written(name: str, arguments: str) -> ToolCallPart:
    """A call with arguments as a model wrote them."""
    return ToolCallPart("call-1", name, arguments)


def asked(name: str, **arguments: Any) -> ToolCallPart:
    """A call with arguments that are JSON."""
    return written(name, json.dumps(arguments))


async def called(
    tool: ToolDef | Callable[..., Any],
    arguments: str | dict[str, Any] = "",
    ctx: ToolContext | None = None,
    *,
    limits: ToolLimits | None = None,
    events: list[Event] | None = None,
) -> ToolOutcome:
    """Call a tool that is alone in its registry."""
    registry = ToolRegistry([tool], limits=limits or ToolLimits())
    (one,) = registry
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    on_event = None if events is None else events.append
    return await registry.dispatch(written(one.name, text), ctx or ToolContext(), on_event)


async def refused(kind: type[ToolCallError], *args: Any, **options: Any) -> Any:
    """The error of a call that is refused."""
    with pytest.raises(kind) as caught:
        await called(*args, **options)
    error = caught.value
    assert type(error) is kind
    assert error.__cause__ is None
    assert error.__context__ is None
    return error
