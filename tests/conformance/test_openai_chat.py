import pytest

from ryecore.llm import LlmProvider
from ryecore.testing.conformance import ProviderConformance
from tests.conformance.openai_wire import ChatWire
from tests.matrix import IS_SOAK

pytest.importorskip("openai", reason="the extra openai is not installed")


class TestOpenAIChat(ProviderConformance):
    wire = ChatWire()
    cut_step = 1 if IS_SOAK else 5
    backends = ("asyncio", "trio") if IS_SOAK else ("asyncio",)

    def make_provider(self, base_url: str) -> LlmProvider:
        from ryecore.providers.openai import OpenAIProvider

        return OpenAIProvider(base_url=f"{base_url}/v1", api="chat")
