from ryecore.llm import LlmProvider
from ryecore.testing.conformance import ProviderConformance
from tests.conformance.gemini_wire import GeminiWire
from tests.matrix import IS_SOAK


class TestGemini(ProviderConformance):
    wire = GeminiWire()
    cut_step = 1 if IS_SOAK else 5

    def make_provider(self, base_url: str) -> LlmProvider:
        from ryecore.providers.gemini import GeminiProvider

        return GeminiProvider(base_url=base_url)
