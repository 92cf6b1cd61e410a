import pytest

from ryecore.llm import LlmProvider
from ryecore.testing.conformance import ProviderConformance
from tests.conformance.openai_wire import ResponsesWire
from tests.matrix import IS_SOAK

pytest.importorskip("openai", reason="the extra openai is not installed")


class TestOpenAIResponses(ProviderConformance):
    wire = ResponsesWire()
    cut_step = 3 if IS_SOAK else 11  # its events are long
    backends = ("asyncio", "trio") if IS_SOAK else ("trio",)

    def make_provider(self, base_url: str) -> LlmProvider:
        from ryecore.providers.openai import OpenAIProvider

        return OpenAIProvider(base_url=f"{base_url}/v1", api="responses")
