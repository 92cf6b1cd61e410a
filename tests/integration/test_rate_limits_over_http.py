"""Conversations within a rate limit, with a vendor's SDK against a server that answers 429."""

import pytest

from ryecore.llm import RateLimit
from ryecore.testing.conformance import WireServer
from tests.conformance.anthropic_wire import AnthropicWire
from tests.metered import Metered, converse

pytestmark = pytest.mark.anyio

_CONVERSATIONS, _A_MINUTE, _MINUTE_S = 12, 7, 2.0


async def test_conversations_within_the_limit_get_no_429_and_all_are_answered() -> None:
    # The server's minute is a little shorter: a busy machine delivers requests late.
    meter = Metered(_A_MINUTE, _MINUTE_S * 0.9)
    limit = RateLimit(requests_per_minute=_A_MINUTE)
    with WireServer(AnthropicWire()) as server:
        failed, waits_s = await converse(
            server, meter, _CONVERSATIONS, _MINUTE_S, {"anthropic": limit}
        )

    assert (failed, meter.refused, meter.answered) == (0, 0, _CONVERSATIONS)
    assert sum(wait_s > 1 for wait_s in waits_s) == _CONVERSATIONS - _A_MINUTE


async def test_without_a_limit_the_same_conversations_run_into_it() -> None:
    meter = Metered(_A_MINUTE, 60.0)
    with WireServer(AnthropicWire()) as server:
        failed, _ = await converse(server, meter, _CONVERSATIONS, _MINUTE_S, None)

    assert failed == meter.refused == _CONVERSATIONS - _A_MINUTE
