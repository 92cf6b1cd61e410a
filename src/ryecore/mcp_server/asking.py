"""The questions of tools, as requests to an MCP client, and its responses as answers.

A client is asked only for what it declares: a form for the person, its model, or its roots.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.message import ServerMessageMetadata
from pydantic import ValidationError

from ryecore.errors import InputError
from ryecore.lillux.schema import SchemaValidator
from ryecore.policy.permissions import AskKind
from ryecore.policy.reports import ToolQuestion

__all__ = [
    "ClientRequest",
    "ClientResponse",
    "ask_client",
    "parse_response",
    "read_response",
    "request_of",
    "send_to_client",
]

ClientRequest: TypeAlias = types.ElicitRequest | types.CreateMessageRequest | types.ListRootsRequest
ClientResponse: TypeAlias = (
    types.ElicitResult
    | types.CreateMessageResult
    | types.CreateMessageResultWithTools
    | types.ListRootsResult
)

_RESULTS: Final[Mapping[AskKind, tuple[type[ClientResponse], ...]]] = {
    "elicit": (types.ElicitResult,),
    "sample": (types.CreateMessageResult, types.CreateMessageResultWithTools),
    "roots": (types.ListRootsResult,),
}
_NAMES: Final[Mapping[AskKind, str]] = {
    "elicit": "elicitation by forms",
    "sample": "sampling",
    "roots": "roots",
}
_NOT_ASKED: Final = frozenset({"_meta", "task"})
"""The keys of requests that aren't part of a question."""

_MAX_PROBLEMS: Final = 5


def request_of(question: ToolQuestion, offered: types.ClientCapabilities | None) -> ClientRequest:
    """Return a question as a request to a client.

    Args:
        question: The question of a tool.
        offered: The capabilities of the client.

    Raises:
        InputError: The client doesn't offer that, or the question has other keys than MCP's.
    """
    if not _offers(question, offered):
        raise InputError(
            f"The MCP client doesn't offer {_NAMES[question.kind]}.",
            next_step="Use a client that does.",
        )
    params = {key: one for key, one in question.params.items() if key not in _NOT_ASKED}
    try:
        if question.kind == "elicit":
            form = types.ElicitRequestFormParams.model_validate(params)
            return types.ElicitRequest(params=form)
        if question.kind == "sample":
            wanted = types.CreateMessageRequestParams.model_validate(params)
            return types.CreateMessageRequest(params=wanted)
    except ValidationError as problem:
        found = "; ".join(
            f"{'.'.join(map(str, one['loc']))}: {one['msg']}"
            for one in problem.errors(include_url=False, include_input=False)[:_MAX_PROBLEMS]
        )
        raise InputError(f"params doesn't fit {question.kind}: {found}.") from None
    return types.ListRootsRequest()


def _offers(question: ToolQuestion, offered: types.ClientCapabilities | None) -> bool:
    if offered is None:
        return False
    if question.kind == "elicit":
        elicitation = offered.elicitation
        return elicitation is not None and not (elicitation.form is None and elicitation.url)
    if question.kind == "sample":
        with_tools = not question.params.keys().isdisjoint({"tools", "toolChoice"})
        sampling = offered.sampling
        return sampling is not None and not (with_tools and sampling.tools is None)
    return offered.roots is not None


async def read_response(question: ToolQuestion, response: object) -> Mapping[str, object]:
    """Return a client's response as the answer to a question.

    Raises:
        InputError: It isn't one, or what the person filled in doesn't fit the form.
    """
    if not isinstance(response, _RESULTS[question.kind]):
        raise InputError(f"The MCP client's response isn't one to {question.kind}.")
    answer: dict[str, object] = response.model_dump(mode="json", by_alias=True, exclude_none=True)
    answer.pop("_meta", None)
    answer.pop("resultType", None)
    if isinstance(response, types.ElicitResult) and response.action == "accept":
        await _check_form(question.params.get("requestedSchema"), response.content or {})
    return answer


async def _check_form(schema: object, content: Mapping[str, Any]) -> None:
    try:
        validator = SchemaValidator(json.dumps(schema))
    except ValueError:
        raise InputError("requestedSchema isn't a JSON Schema.") from None
    failures = await validator.failures_async(json.dumps(content))
    if failures:
        found = "; ".join(f"{one.path or 'it'}: {one.message}" for one in failures[:_MAX_PROBLEMS])
        raise InputError(f"What was filled in doesn't fit the form: {found}.")


async def ask_client(
    ctx: ServerRequestContext[Any, Any], question: ToolQuestion
) -> Mapping[str, object]:
    """Ask the client of a request before 2026, while the request waits.

    Raises:
        InputError: The client doesn't offer that, refuses, or answers with something else.
    """
    request = request_of(question, ctx.session.client_capabilities)
    return await read_response(question, await send_to_client(ctx, request))


async def send_to_client(
    ctx: ServerRequestContext[Any, Any], request: ClientRequest
) -> ClientResponse:
    """Send a request to the client of a request before 2026, and wait for the response.

    Raises:
        InputError: It refuses, or its response is invalid.
    """
    try:
        response: ClientResponse = await ctx.session.send_request(
            request,
            _result_type(request),
            metadata=ServerMessageMetadata(related_request_id=ctx.request_id),
        )
    except (MCPError, NoBackChannelError, ValidationError) as problem:
        why = "its response is invalid" if isinstance(problem, ValidationError) else str(problem)
        raise InputError(f"The MCP client didn't answer: {why}.") from None
    return response


def parse_response(request: ClientRequest, response: object) -> ClientResponse:
    """Return a client's response to a request, as it came from the wire.

    Raises:
        ValidationError: It isn't one to this request.
    """
    return _result_type(request).model_validate(response, by_name=False)


def _result_type(request: ClientRequest) -> type[ClientResponse]:
    if isinstance(request, types.ElicitRequest):
        return types.ElicitResult
    if isinstance(request, types.ListRootsRequest):
        return types.ListRootsResult
    has_tools = request.params.tools is not None
    return types.CreateMessageResultWithTools if has_tools else types.CreateMessageResult
