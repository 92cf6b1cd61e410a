"""A hundred conversations at once, whose vendor answers 429 above 40 requests in 12 seconds."""

import time

import anyio

from ryecore.llm import RateLimit
from ryecore.testing.conformance import WireServer
from tests.benchmarks.harness import report
from tests.conformance.anthropic_wire import AnthropicWire
from tests.metered import Metered, converse

_CONVERSATIONS, _A_MINUTE, _MINUTE_S, _ATTEMPTS = 100, 40, 12.0, 5


def run() -> None:
    """Print what they get with a rate limit, and without one but with five attempts each."""
    limit = {"anthropic": RateLimit(requests_per_minute=_A_MINUTE)}
    for name, limits, attempts in (("with a RateLimit", limit, 1), ("without", None, _ATTEMPTS)):
        meter = Metered(_A_MINUTE, _MINUTE_S)
        with WireServer(AnthropicWire()) as server:
            began = time.monotonic()
            failed, _ = anyio.run(
                converse, server, meter, _CONVERSATIONS, _MINUTE_S, limits, attempts
            )
        took_s = time.monotonic() - began
        report(
            f"100 conversations, 40 requests a minute of 12 s, {name}",
            round(took_s, 1),
            "s",
            refused_429=meter.refused,
            failed=failed,
        )
