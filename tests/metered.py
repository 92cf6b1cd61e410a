"""A model server that answers 429 above a number of requests a minute, and conversations with it.

A minute lasts as long as `minute_s` says, for the server's clock and for that of the conversations.
"""

import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Final

import anyio
from attrs import evolve

from ryecore.agent import Agent, AgentEvent, AgentRunnerDeps, AgentSession, CostUpdated
from ryecore.errors import AgentTurnError
from ryecore.llm import RateLimit, TextPart, Usage
from ryecore.testing.conformance import HttpResponse, Script, SeenRequest, WireServer
from tests.adapters import make_anthropic
from tests.conformance.anthropic_wire import AnthropicWire

__all__ = ["Metered", "converse"]

_ANSWER: Final = Script((TextPart("High at noon."),), usage=Usage(12, 4))


class Metered:
    """The answers of a server that counts, by a sliding window, what it gets.

    Attributes:
        answered: The number of requests that it answered.
        refused: The number of requests that it answered with 429.
    """

    def __init__(self, requests: int, minute_s: float) -> None:
        self._requests = requests
        self._minute_s = minute_s
        self._times: deque[float] = deque()
        self._lock = threading.Lock()
        self._wire = AnthropicWire()
        self.answered = self.refused = 0

    def __call__(self, seen: SeenRequest) -> Script | HttpResponse:
        """Answer a request, or refuse it with the time until it may come again."""
        with self._lock:
            now = time.monotonic()
            while self._times and self._times[0] <= now - self._minute_s:
                self._times.popleft()
            if len(self._times) >= self._requests:
                self.refused += 1
                return self._wire.error("rate_limit", "Too many requests.")
            self._times.append(now)
            self.answered += 1
        return _ANSWER


async def converse(
    server: WireServer,
    meter: Metered,
    conversations: int,
    minute_s: float,
    rate_limits: Mapping[str, RateLimit] | None,
    attempts: int = 1,
) -> tuple[int, list[float]]:
    """Hold conversations of one message at once, once the vendor's SDK has been used.

    Returns:
        How many failed, and the seconds that each attempt has waited for its rate limit.
    """
    scale = 60.0 / minute_s
    waits_s: list[float] = []
    failed = 0

    def listen(event: AgentEvent) -> None:
        if isinstance(event, CostUpdated):
            waits_s.append(event.waited_ms / 1000 / scale)

    async with make_anthropic(base_url=server.base_url) as provider:
        deps = AgentRunnerDeps(
            resolve_provider=lambda _: provider,
            key_for=lambda _: "the-key",
            now=lambda: time.monotonic() * scale,
            sleep=lambda seconds: anyio.sleep(seconds / scale),
        )
        agent = Agent(
            name="pilot", provider="anthropic", model="claude-opus-5", retry={"max": attempts}
        )

        async def hold(deps: AgentRunnerDeps) -> None:
            nonlocal failed
            try:
                await AgentSession(agent, deps).send("When is the tide?", on_event=listen)
            except AgentTurnError:
                failed += 1

        server.answer(_ANSWER)
        await hold(deps)
        waits_s.clear()
        server.answer(meter)
        limited = evolve(deps, rate_limits=rate_limits)
        async with anyio.create_task_group() as tasks:
            for _ in range(conversations):
                tasks.start_soon(hold, limited)
    return failed, waits_s
