"""Adapters are what hosts inject, for a type checker too."""

from typing import assert_type

from ryecore.llm import LlmProvider, MediaProvider
from ryecore.providers.anthropic import AnthropicProvider
from ryecore.providers.gemini import GeminiProvider
from ryecore.testing.conformance import CaseResult, ProviderConformance, run_conformance

anthropic: LlmProvider = AnthropicProvider(base_url="http://localhost:1", timeout_s=5)
gemini: LlmProvider = GeminiProvider(headers={"X-Tenant": "north"}, proxy="http://localhost:2")
media: MediaProvider = GeminiProvider()


class TestMine(ProviderConformance):
    def make_provider(self, base_url: str) -> LlmProvider:
        return AnthropicProvider(base_url=base_url)


assert_type(run_conformance(TestMine, "test_text"), tuple[CaseResult, ...])
