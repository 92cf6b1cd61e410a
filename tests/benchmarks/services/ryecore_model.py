"""The fake model of ryecore's help desk."""

from collections.abc import AsyncIterator
from typing import Any

from ryecore.llm import Capabilities, StreamEnd, TextDelta, ToolCallDelta, ToolCallStart, Usage
from tests.benchmarks.services.answers import KEYS, TICKET, answer

_CAPABILITIES = Capabilities()


class Model:
    provider_id = "fake"

    def capabilities(self, model: str) -> Capabilities:
        return _CAPABILITIES

    async def stream(self, request: Any, *, key: str, **options: Any) -> AsyncIterator[Any]:
        assert key in KEYS
        asked = [one for one in request.messages if one.role == "user"][-1].text
        last = request.messages[-1]
        result = last.parts[-1].text if last.role == "tool" else None
        said = (TICKET,) if "ticket" in asked else answer(asked, result)
        if "ticket" not in asked and result is None:
            yield ToolCallStart(0, f"c{len(request.messages)}", said[0])
            yield ToolCallDelta(0, said[1])
            yield StreamEnd("tool_use", Usage(1, 1))
            return
        for piece in said:
            yield TextDelta(piece)
        yield StreamEnd("stop", Usage(1, 1))

    async def generate(self, request: Any, **options: Any) -> Any:
        raise NotImplementedError


MODEL = Model()
