from ryecore.llm import LlmProvider
from ryecore.testing.conformance import ProviderConformance
from tests.conformance.anthropic_wire import AnthropicWire
from tests.matrix import IS_SOAK


class TestAnthropic(ProviderConformance):
    wire = AnthropicWire()
    cut_step = 1 if IS_SOAK else 5
    backends = ("asyncio", "trio") if IS_SOAK else ("trio",)

    def make_provider(self, base_url: str) -> LlmProvider:
        from ryecore.providers.anthropic import AnthropicProvider

        return AnthropicProvider(base_url=base_url)
