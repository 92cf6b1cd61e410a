"""A person's word, before a tool runs that needs it.

Source: decision 13.
"""

import json
from collections.abc import Mapping
from typing import Any

from ryecore.errors import ToolPolicyError
from ryecore.llm.parts import ToolCallPart
from ryecore.tools.context import ToolApprovalRequest, ToolContext
from ryecore.tools.definition import ToolDef

__all__ = ["require_approval"]


async def require_approval(
    tool: ToolDef, call: ToolCallPart, arguments: Mapping[str, Any], reason: str, ctx: ToolContext
) -> None:
    """Ask the host whether exactly this may be done.

    Raises:
        ToolPolicyError: It may not; or nobody is there to ask, or the asking failed.
    """
    if ctx.approve is None:
        raise ToolPolicyError(
            f"The tool {tool.name} needs approval, and nobody is there to give it.",
            tool_name=tool.name,
        )
    # A copy: what was approved is what runs, whatever is done to the request.
    shown = {name: value for name, value in arguments.items() if name not in tool.config}
    request = ToolApprovalRequest(
        tool.name, json.loads(json.dumps(shown)), reason, call.call_id, ctx.call.call_id
    )
    problem = "was not approved"
    try:
        if await ctx.approve(request) is True:
            return
    except Exception as error:  # a host's own; without a word nothing runs
        problem = f"was not approved, because asking failed ({type(error).__name__})"
    raise ToolPolicyError(f"The call of the tool {tool.name} {problem}.", tool_name=tool.name)
