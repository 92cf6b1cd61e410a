"""A tool call through all its steps, beside reading arguments, calling and writing JSON by hand."""

import asyncio
import json
from collections.abc import Awaitable, Callable

from ryecore.llm import ToolCallPart
from ryecore.policy import CallContext, CancelToken
from ryecore.tools import ToolContext, ToolRegistry
from tests.benchmarks.harness import compare

_CALLS = 1_000  # so that milliseconds for all of them are microseconds for one
_ARGUMENTS = '{"port": "Dover"}'


async def tide(port: str) -> str:
    """The tide."""
    return port


def run() -> None:
    """Print the figures."""
    registry = ToolRegistry([tide])
    call = ToolCallPart("call-1", "tide", _ARGUMENTS)
    plain = ToolContext()
    with_token = ToolContext(call=CallContext(cancellation=CancelToken()))
    events: list[object] = []

    async def by_hand() -> None:
        json.dumps(await tide(**json.loads(_ARGUMENTS)))

    with asyncio.Runner() as runner:

        def many(one: Callable[[], Awaitable[object]]) -> Callable[[], None]:
            async def all_of_them() -> None:
                for _ in range(_CALLS):
                    await one()

            def run_them() -> None:
                events.clear()
                runner.run(all_of_them())

            return run_them

        for name, ctx in (("tool_call_x1000", plain), ("tool_call_with_token_x1000", with_token)):
            compare(
                name,
                many(lambda ctx=ctx: registry.dispatch(call, ctx, events.append)),
                many(by_hand),
                goal="<= 12 ms: 12 us a call",
                unit="ms",
            )
