"""The fake model of pydantic-ai's help desk."""

from collections.abc import AsyncIterator
from functools import cache
from typing import Any

from pydantic_ai.messages import ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel

from tests.benchmarks.services.answers import KEYS, TICKET, answer


def _said(messages: Any) -> Any:
    parts = [part for message in messages for part in message.parts]
    asked = [str(one.content) for one in parts if isinstance(one, UserPromptPart)][-1]
    result = str(parts[-1].content) if isinstance(parts[-1], ToolReturnPart) else None
    return answer(asked, result), result


async def _generate(messages: Any, info: Any) -> ModelResponse:
    return ModelResponse([ToolCallPart(info.output_tools[0].name, TICKET)])


async def _stream(messages: Any, info: Any) -> AsyncIterator[Any]:
    said, result = _said(messages)
    if result is None:
        yield {0: DeltaToolCall(said[0], said[1], tool_call_id=f"c{len(messages)}")}
        return
    for piece in said:
        yield piece


@cache
def model_with(api_key: str) -> FunctionModel:
    """Make the model that a tenant's key pays for."""
    assert api_key in KEYS
    return FunctionModel(_generate, stream_function=_stream)
