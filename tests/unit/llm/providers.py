"""Small real providers, which do what a test writes down."""

import anyio
import anyio.lowlevel

from ryecore.llm import (
    Capabilities,
    ChainOptions,
    FallbackChain,
    FallbackPlanEntry,
    LlmError,
    LlmRequest,
    Message,
    StreamEnd,
    TextDelta,
    Usage,
)
from ryecore.llm.stream import StreamFold

HELLO = (TextDelta("Hel"), TextDelta("lo"), StreamEnd("stop", Usage(3, 2)))
REQUEST = LlmRequest("asked", (Message.user("Hi"),))


class Provider:
    """Each call takes the next script: chunks, errors to raise, and async functions to await."""

    def __init__(self, provider_id, *scripts, capabilities=None):
        self.provider_id = provider_id
        self.scripts = list(scripts)
        self.requests, self.keys = [], []
        self.opened = self.closed = 0
        self.has = capabilities or Capabilities()

    def capabilities(self, model):
        return self.has

    async def stream(self, request, *, key, media=None):
        self.requests.append(request)
        self.keys.append(key)
        self.opened += 1
        try:
            for step in self.scripts.pop(0):
                if isinstance(step, Exception):
                    raise step
                if callable(step):
                    await step()
                else:
                    yield step
        finally:
            self.closed += 1

    async def generate(self, request, *, key, media=None):
        fold = StreamFold(self.provider_id, request.model)
        async for chunk in self.stream(request, key=key, media=media):
            fold.add(chunk)
        return fold.result()


def failing(kind="unavailable", message="It failed.", **facts):
    """A script that fails at once."""
    return (LlmError(message, kind=kind, **facts),)


class Clock:
    """A clock that stands still until somebody sleeps."""

    def __init__(self):
        self.at = 1000.0
        self.slept = []

    def now(self):
        return self.at

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.at += seconds
        await anyio.lowlevel.checkpoint()


class Asked:
    """A chain with all that it was told and that it told."""

    def __init__(self, *plan, key_for=lambda provider_id: f"key-of-{provider_id}", **options):
        entries = [
            one if isinstance(one, FallbackPlanEntry) else FallbackPlanEntry(one, f"{i}-model")
            for i, one in enumerate(plan)
        ]
        self.clock, self.records, self.chunks = Clock(), [], []
        options = {"random": lambda: 1.0, "on_attempt": self.records.append} | options
        options = {"sleep": self.clock.sleep, "now": self.clock.now} | options
        self.chain = FallbackChain(entries, ChainOptions(key_for=key_for, **options))

    async def stream(self, request=REQUEST, **options):
        return await self.chain.stream(request, self.chunks.append, **options)

    @property
    def outcomes(self):
        return [(r.provider, r.number, r.outcome, r.kind) for r in self.records]
