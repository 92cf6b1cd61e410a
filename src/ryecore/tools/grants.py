"""The permission to call a tool: grants, capabilities and approvals."""

import json
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final

from ryecore.errors import HostCapabilityMissing, ToolPolicyError, UnknownToolError
from ryecore.llm.parts import ToolCallPart
from ryecore.policy import allows
from ryecore.tools.context import ToolApprovalRequest, ToolContext
from ryecore.tools.definition import ToolDef
from ryecore.tools.failures import quoted

__all__ = ["granted", "require_approval"]

_MAX_NEAR: Final = 5


def granted(tools: Mapping[str, ToolDef], name: str, ctx: ToolContext) -> ToolDef:
    """Return the tool with exactly this name, if it may be called.

    Raises:
        UnknownToolError: There is none; near names are given, of those that may be called.
        ToolPolicyError: It isn't granted, or the caller lacks its capability.
        HostCapabilityMissing: It needs what the host doesn't offer.
    """
    tool = tools.get(name)
    if tool is None:
        raise _unknown(tools, name, ctx.grant)
    if ctx.grant is not None and name not in ctx.grant:
        raise ToolPolicyError(f"The tool {name} is not granted to this agent.", tool_name=name)
    if tool.capability is not None:
        held = ctx.call.capabilities
        if held is not None and not allows(held, tool.capability):
            raise ToolPolicyError(
                f"The caller lacks the capability {tool.capability}.",
                tool_name=name,
                capability=tool.capability,
            )
    if not tool.needs <= ctx.capabilities:
        missing = min(tool.needs - ctx.capabilities)
        raise HostCapabilityMissing(
            f"The tool {name} needs {missing!r}, which the host doesn't offer.",
            tool_name=name,
            capability=missing,
        )
    return tool


def _unknown(
    tools: Mapping[str, ToolDef], name: str, grant: frozenset[str] | None
) -> UnknownToolError:
    callable_names = sorted(tools if grant is None else grant & tools.keys())
    near = get_close_matches(name[:100], callable_names, n=_MAX_NEAR, cutoff=0.5)
    listed = near or callable_names[:_MAX_NEAR]
    return UnknownToolError(
        f"There is no tool {quoted(name)}.",
        next_step=f"There is {', '.join(listed)}." if listed else "There is none at all.",
        tool_name=name[:100],
        known=tuple(callable_names),
    )


async def require_approval(
    tool: ToolDef, call: ToolCallPart, arguments: Mapping[str, Any], reason: str, ctx: ToolContext
) -> None:
    """Ask the host to approve exactly this call.

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
    except Exception as error:  # the host's own: without an approval nothing runs
        problem = f"was not approved, because asking failed ({type(error).__name__})"
    raise ToolPolicyError(f"The call of the tool {tool.name} {problem}.", tool_name=tool.name)
