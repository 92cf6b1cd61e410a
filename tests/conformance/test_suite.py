"""The suite catches adapters that are wrong, each by the case that is meant for it."""

import pytest

from ryecore.llm import (
    LlmError,
    LlmProvider,
)
from ryecore.testing.conformance import ProviderConformance, run_conformance
from tests.adapters import make_anthropic
from tests.conformance.anthropic_wire import AnthropicWire


@pytest.mark.parametrize(
    ("adapter", "name"),
    [
        ("SwallowsCuts", "test_a_stream_cut_at_every_byte"),
        ("KeepsKeys", "test_no_key_is_kept_after_its_call"),
        ("Retries", "test_refusals_have_their_kind"),
        ("Retries", "test_a_broken_answer_is_not_asked_for_again"),
        ("CountsTwice", "test_usage_read_from_the_cache"),
        ("ShowsKeys", "test_refusals_say_why"),
        ("KeepsCauses", "test_refusals_have_their_kind"),
        ("SplitsDeltas", "test_the_end_comes_last_and_once"),
        ("Buffers", "test_text_in_many_deltas"),
        ("KeepsCookies", "test_no_cookie_is_kept"),
        ("QuotesBadKeys", "test_a_key_that_no_header_can_carry"),
        ("MixesKeys", "test_each_call_has_its_own_key"),
        ("ReadsTheEnvironment", "test_the_environment_does_not_leak_in"),
    ],
)
def test_it_catches(adapter: str, name: str) -> None:
    class Mutant(ProviderConformance):
        wire = AnthropicWire()

        def make_provider(self, base_url: str) -> LlmProvider:
            from tests.conformance import wrong_adapters

            made: LlmProvider = getattr(wrong_adapters, adapter)(base_url=base_url)
            return made

    class Sound(Mutant):
        def make_provider(self, base_url: str) -> LlmProvider:
            return make_anthropic(base_url=base_url)

    (mutant,) = run_conformance(Mutant, name)
    assert mutant.outcome == "failed"
    assert isinstance(mutant.error, AssertionError | LlmError)
    if name != "test_a_stream_cut_at_every_byte":
        (sound,) = run_conformance(Sound, name)
        assert sound.outcome == "passed"


def test_what_a_vendor_lacks_is_skipped_with_its_reason() -> None:
    class Suite(ProviderConformance):
        wire = AnthropicWire()

        def make_provider(self, base_url: str) -> LlmProvider:
            return make_anthropic(base_url=base_url)

    (result,) = run_conformance(Suite, "test_temperature")

    assert result.outcome == "skipped"
    assert str(result.error) == "This vendor has no temperature."
