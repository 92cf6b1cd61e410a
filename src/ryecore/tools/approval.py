"""The approval of a tool call by a person, for exactly this call of exactly this tool."""

import inspect
import json
from collections.abc import Callable, Mapping
from functools import partial
from types import CodeType
from typing import Any

from ryecore.convert.json_text import make_encoder
from ryecore.errors import ToolPolicyError
from ryecore.lillux.digests import sha256_hex
from ryecore.llm.parts import ToolCallPart
from ryecore.tools.context import Denied, ToolApprovalRequest, ToolContext
from ryecore.tools.definition import ToolDef
from ryecore.tools.functions import FunctionRunner

__all__ = ["CallSuspended", "denial", "function_text", "require_approval", "tool_digest"]

_encode = make_encoder()


class CallSuspended(Exception):
    """Raised by `ToolContext.approve` for a call that is left until a person has answered."""

    def __init__(self, request: ToolApprovalRequest) -> None:
        super().__init__(f"The call of the tool {request.tool_name} waits for an approval.")
        self.request = request


async def tool_digest(tool: ToolDef, ctx: ToolContext, seen: list[object] | None = None) -> str:
    """Return the digest of what a person approves, besides the arguments.

    It covers the tool's definition, what the host sets, and the compiled code of its own function;
    for a signed item, the content of each file of its verified chain; for a called agent, all that
    decides what it does, with its tools. `seen` are the agents on the way, which may call each
    other.
    """
    digest = getattr(tool.run, "digest", None)
    if digest is not None:
        code = await digest(ctx, [] if seen is None else seen)
    else:
        function = tool.run.function if isinstance(tool.run, FunctionRunner) else tool.run
        code = f"{tool.source} {function_text(function)}"
    return sha256_hex(
        _encode(
            [
                tool.name,
                tool.description,
                json.dumps(tool.parameters, sort_keys=True),
                json.dumps(tool.config, sort_keys=True, default=repr),
                repr(tool.policy),
                code,
            ]
        ).encode()
    )


def function_text(function: Callable[..., Any]) -> str:
    """Return the compiled code of a function as text; for a callable object, its type's too.

    It is the same for the same function in each process of one version of Python.
    """
    function = inspect.unwrap(function)
    if isinstance(function, partial):
        return function_text(function.func)
    code = getattr(function, "__code__", None)  # a method has its function's
    if isinstance(code, CodeType):
        return _code_text(code)
    named = function if hasattr(function, "__qualname__") else type(function)
    name = f"{getattr(named, '__module__', '')}.{named.__qualname__}"
    code = getattr(type(function).__call__, "__code__", None)
    return f"{name} {_code_text(code)}" if isinstance(code, CodeType) else name


def _code_text(code: CodeType) -> str:
    """Return the same text for the same code in each process of one version of Python."""
    constants = []
    for one in code.co_consts:
        if isinstance(one, CodeType):
            constants.append(_code_text(one))
        elif isinstance(one, frozenset):
            constants.append(repr(sorted(map(repr, one))))
        else:
            constants.append(repr(one))
    return f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {constants}"


async def require_approval(
    tool: ToolDef, call: ToolCallPart, arguments: Mapping[str, Any], reason: str, ctx: ToolContext
) -> None:
    """Ask the host to approve exactly this call, and refuse it without an approval."""
    if ctx.approve is None:
        raise ToolPolicyError(
            f"The tool {tool.name} needs approval, but this host has nobody to ask.",
            tool_name=tool.name,
        )
    # A copy: what was approved is what runs, whatever is done to the request.
    shown = {name: value for name, value in arguments.items() if name not in tool.config}
    request = ToolApprovalRequest(
        tool.name,
        json.loads(json.dumps(shown)),
        reason,
        call.call_id,
        ctx.call.call_id,
        await tool_digest(tool, ctx),
    )
    problem = ""
    try:
        answer = await ctx.approve(request)
    except CallSuspended:
        raise
    except Exception as error:  # the host's own: without an approval nothing runs
        answer, problem = False, f", because asking failed ({type(error).__name__})."
    if answer is True and await tool_digest(tool, ctx) != request.tool_digest:
        problem, answer = ", because the tool was changed meanwhile. Call it again.", False
    if answer is not True:
        reason = f": {answer.reason}" if isinstance(answer, Denied) and answer.reason else "."
        raise denial(tool.name, problem or reason)


def denial(tool_name: str, why: str) -> ToolPolicyError:
    """Return the error of a call that wasn't approved, whose text ends with the reason."""
    return ToolPolicyError(
        f"The call of the tool {tool_name} was not approved{why}", tool_name=tool_name
    )
