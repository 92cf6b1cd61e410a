"""What a person reads where a vendor's server refuses the key."""

from collections.abc import Callable

import pytest

from ryecore.errors import LlmError
from ryecore.llm import LlmProvider, LlmRequest, Message
from ryecore.testing.conformance import Wire, WireServer
from tests.conformance.anthropic_wire import AnthropicWire
from tests.conformance.gemini_wire import GeminiWire
from tests.conformance.openai_wire import ChatWire

pytestmark = pytest.mark.anyio


def anthropic(base_url: str) -> LlmProvider:
    pytest.importorskip("anthropic", reason="the extra anthropic is not installed")
    from ryecore.providers.anthropic import AnthropicProvider

    return AnthropicProvider(base_url=base_url)


def gemini(base_url: str) -> LlmProvider:
    pytest.importorskip("google.genai", reason="the extra gemini is not installed")
    from ryecore.providers.gemini import GeminiProvider

    return GeminiProvider(base_url=base_url)


def openai(base_url: str) -> LlmProvider:
    pytest.importorskip("openai", reason="the extra openai is not installed")
    from ryecore.providers.openai import OpenAIProvider

    return OpenAIProvider(base_url=f"{base_url}/v1", api="chat")


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    ("make", "wire"),
    [(anthropic, AnthropicWire()), (gemini, GeminiWire()), (openai, ChatWire())],
    ids=["anthropic", "gemini", "openai"],
)
async def test_a_refused_key_has_its_status_and_a_next_step(
    make: Callable[[str], LlmProvider], wire: Wire, streams: bool
) -> None:
    request = LlmRequest("m-1", (Message.user("Hello?"),))
    with WireServer(wire) as server:
        refusal = wire.error("bad_key", "The key k-secret-1 is wrong.")
        server.answer(refusal)
        async with make(server.base_url) as provider:
            with pytest.raises(LlmError) as caught:
                await (
                    anext(aiter(provider.stream(request, key="k-secret-1")))
                    if streams
                    else provider.generate(request, key="k-secret-1")
                )
    error = caught.value
    assert (error.kind, error.status) == ("auth", refusal.status)
    assert f"{provider.provider_id} answered with status {refusal.status}" in str(error)
    assert "Look whether the key is valid, has credit" in str(error)
    assert "k-secret-1" not in str(error)
