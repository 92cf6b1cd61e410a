"""FallbackChain: who is asked, how often, with what, and what is told of it."""

import anyio
import pytest

from ryecore.llm import (
    Backoff,
    Capabilities,
    ChainOptions,
    FallbackChain,
    FallbackPlanEntry,
    LlmError,
    LlmRequest,
    MediaPart,
    Message,
    ReasoningPart,
    Refuse,
    StreamEnd,
    TextDelta,
    TextPart,
    ToolSpec,
    Usage,
)
from tests.unit.llm.providers import HELLO, REQUEST, Asked, Provider, failing

pytestmark = pytest.mark.anyio
PICTURE = MediaPart("media://" + "0" * 64, "image/png", 3)


async def test_the_first_entry_answers_with_its_own_model_and_key():
    provider = Provider("a", HELLO)
    asked = Asked(FallbackPlanEntry(provider, "large"))

    result = await asked.stream()

    assert (result.text, result.model, result.provider) == ("Hello", "large", "a")
    assert (result.usage, result.stop_reason) == (Usage(3, 2), "stop")
    assert tuple(asked.chunks) == HELLO
    assert (provider.requests[0].model, provider.keys) == ("large", ["key-of-a"])
    assert (asked.chain.active_provider, asked.chain.active_model) == ("a", "large")
    (record,) = asked.records
    assert (record.outcome, record.number, record.usage) == ("success", 1, Usage(3, 2))


def test_an_empty_plan_is_refused():
    with pytest.raises(ValueError, match="at least one entry"):
        FallbackChain([], ChainOptions(key_for=str))


async def test_a_request_is_passed_on_as_it_is_where_nothing_has_to_change():
    provider = Provider("a", HELLO)
    await Asked(FallbackPlanEntry(provider, REQUEST.model)).stream()
    assert provider.requests[0] is REQUEST


async def test_an_entry_is_retried_with_growing_waits_before_the_next_one_is_asked():
    busy = Provider("a", *[failing("rate_limit")] * 3)
    asked = Asked(FallbackPlanEntry(busy, "m", 3, Backoff(0.5, 8.0)), Provider("b", HELLO))

    assert (await asked.stream()).provider == "b"

    assert asked.clock.slept == [0.5, 1.0]
    assert asked.outcomes == [
        ("a", 1, "error", "rate_limit"),
        ("a", 2, "error", "rate_limit"),
        ("a", 3, "error", "rate_limit"),
        ("b", 4, "success", None),
    ]


async def test_the_wait_that_a_provider_asks_for_wins_and_one_that_is_too_long_moves_on():
    first = Provider("a", failing("rate_limit", retry_after_s=3.0), HELLO)
    asked = Asked(FallbackPlanEntry(first, "m", 2), Provider("b", HELLO))
    await asked.stream()
    assert asked.clock.slept == [3.0]

    first = Provider("a", failing("rate_limit", retry_after_s=100.0), HELLO)
    asked = Asked(FallbackPlanEntry(first, "m", 2), Provider("b", HELLO, HELLO, HELLO))
    assert (await asked.stream()).provider == "b"
    assert asked.clock.slept == []
    asked.clock.at += 99
    assert (await asked.stream()).provider == "b"
    asked.clock.at += 2
    assert (await asked.stream()).provider == "a"


async def test_a_provider_alone_that_asks_for_too_long_is_asked_again_after_the_cap():
    asked = Asked(
        FallbackPlanEntry(Provider("a", failing("rate_limit", retry_after_s=100.0), HELLO), "m", 2)
    )
    assert (await asked.stream()).text == "Hello"
    assert asked.clock.slept == [8.0]


async def test_a_provider_that_failed_is_passed_over_until_its_cooldown_is_over():
    first = Provider("a", failing(), HELLO)
    asked = Asked(first, Provider("b", HELLO, HELLO), cooldown_s=30.0)

    await asked.stream()
    asked.records.clear()
    asked.clock.at += 10
    assert (await asked.stream()).provider == "b"
    assert asked.outcomes == [("a", 0, "skipped", None), ("b", 1, "success", None)]
    assert "cooldown for 20.0 s" in asked.records[0].reason

    asked.clock.at += 21
    assert (await asked.stream()).provider == "a"


async def test_where_all_are_in_cooldown_the_one_that_ends_first_is_asked():
    first = Provider("a", failing("rate_limit", retry_after_s=90.0), HELLO)
    second = Provider("b", failing("rate_limit", retry_after_s=20.0), HELLO)
    asked = Asked(first, second)
    with pytest.raises(LlmError):
        await asked.stream()
    asked.records.clear()

    assert (await asked.stream()).provider == "b"
    assert asked.outcomes == [("a", 0, "skipped", None), ("b", 1, "success", None)]


async def test_the_last_resort_is_asked_once_a_call():
    first = Provider("a", failing("rate_limit", retry_after_s=90.0))
    second = Provider("b", failing("rate_limit", retry_after_s=20.0), failing())
    asked = Asked(first, second)
    for _ in range(2):
        with pytest.raises(LlmError):
            await asked.stream()
    assert (first.opened, second.opened) == (1, 2)


async def test_a_provider_that_asks_for_too_long_is_not_met_again_as_another_model():
    provider = Provider("a", failing("rate_limit", retry_after_s=100.0), HELLO)
    asked = Asked(FallbackPlanEntry(provider, "large", 2), FallbackPlanEntry(provider, "small"))
    assert (await asked.stream()).model == "large"
    assert asked.clock.slept == [8.0]


async def test_another_model_of_the_same_provider_is_still_asked_as_the_last_resort():
    provider = Provider("a", failing("unavailable"), HELLO)
    asked = Asked(FallbackPlanEntry(provider, "large"), FallbackPlanEntry(provider, "small"))
    assert (await asked.stream()).model == "small"


async def test_an_answer_ends_a_cooldown():
    provider = Provider("a", failing(), HELLO, HELLO)
    asked = Asked(provider, Provider("b", failing(), HELLO))
    with pytest.raises(LlmError):
        await asked.stream()
    assert (await asked.stream()).provider == "a"
    asked.records.clear()
    assert (await asked.stream()).provider == "a"
    assert asked.outcomes == [("a", 1, "success", None)]


@pytest.mark.parametrize("kind", ["context_length", "unknown"])
async def test_what_speaks_of_the_request_fails_over_and_cools_nobody_down(kind):
    first = Provider("a", failing(kind), HELLO)
    asked = Asked(FallbackPlanEntry(first, "m", 5), Provider("b", HELLO))
    assert (await asked.stream()).provider == "b"
    assert (await asked.stream()).provider == "a"


@pytest.mark.parametrize("kind", ["bad_request", "content_filter", "refused", "cancelled"])
async def test_what_no_other_could_answer_ends_the_call(kind):
    second = Provider("b", HELLO)
    with pytest.raises(LlmError) as caught:
        await Asked(FallbackPlanEntry(Provider("a", failing(kind)), "m", 5), second).stream()
    assert (caught.value.kind, second.opened) == (kind, 0)


@pytest.mark.parametrize("as_async", [True, False])
async def test_a_credential_is_renewed_once_a_call_and_asked_for_again(as_async):
    told = []

    def renew(provider_id):
        told.append(provider_id)
        return True

    async def renew_async(provider_id):
        return renew(provider_id)

    provider = Provider("a", failing("auth"), HELLO, failing("auth"), failing("auth"))
    keys = iter(["old", "new", "old", "new", "newer"])
    asked = Asked(
        provider,
        Provider("b", failing("auth")),
        key_for=lambda _: next(keys),
        on_auth_error=renew_async if as_async else renew,
    )

    assert (await asked.stream()).provider == "a"
    assert (provider.keys, told) == (["old", "new"], ["a"])
    with pytest.raises(LlmError) as caught:
        await asked.stream()
    assert (caught.value.kind, told) == ("auth", ["a", "a"])


async def test_a_renewal_that_fails_moves_on():
    def renew(provider_id):
        raise OSError("sk-very-secret-key-1234")

    first = Provider("a", failing("auth"))
    asked = Asked(first, Provider("b", HELLO), on_auth_error=renew)
    assert (await asked.stream()).provider == "b"
    assert first.opened == 1


@pytest.mark.parametrize("as_async", [True, False])
async def test_a_credential_that_cannot_be_had_is_auth_without_its_text(as_async):
    def fetch(provider_id):
        if provider_id == "a":
            raise KeyError("sk-very-secret-key-1234")
        return "key"

    async def fetch_async(provider_id):
        return fetch(provider_id)

    first = Provider("a", HELLO)
    asked = Asked(first, Provider("b", HELLO), key_for=fetch_async if as_async else fetch)
    assert (await asked.stream()).provider == "b"
    assert first.opened == 0
    assert asked.outcomes == [("a", 1, "error", "auth"), ("b", 2, "success", None)]
    assert "secret" not in repr(asked.records)
    assert "no credential for 'a': key_for raised KeyError." in asked.records[0].reason


async def test_no_error_shows_the_key_or_leads_to_what_was_raised():
    key = "a-key-of-no-known-form"
    sdk = ValueError(f"401 for {key}")
    own = LlmError(f"bad {key}", next_step=f"Change {key}.", kind="unavailable", header=key)
    own.__cause__ = sdk
    second = Provider("b", (sdk,))
    asked = Asked(Provider("a", (own,)), second, key_for=lambda _: key)

    with pytest.raises(LlmError) as caught:
        await asked.stream()

    error = caught.value
    assert (error.kind, error.provider, error.model) == ("unknown", "b", "1-model")
    assert "401 for ***" in error.message
    assert "a/0-model: bad ***" in error.message
    assert (error.__cause__, error.__context__) == (None, None)
    assert key not in repr((str(error), vars(error), asked.records, asked.chain.plan))


async def test_what_each_entry_said_is_bounded():
    asked = Asked(*[Provider(f"p{i}", failing(message="long " * 1000)) for i in range(50)])
    with pytest.raises(LlmError) as caught:
        await asked.stream()
    assert len(str(caught.value)) < 3000
    assert "p0/0-model: long" in str(caught.value)
    assert "And 41 more." in str(caught.value)


async def test_an_entry_that_cannot_do_what_is_needed_is_skipped():
    blind = Provider("a", HELLO)
    request = LlmRequest("m", (Message.user("See", PICTURE),))
    asked = Asked(blind, Provider("b", HELLO, capabilities=Capabilities(input_media={"image/*"})))

    assert (await asked.stream(request)).provider == "b"
    assert asked.outcomes == [("a", 0, "skipped", None), ("b", 1, "success", None)]
    assert "image/png" in asked.records[0].reason


async def test_where_nobody_can_do_what_is_needed_the_error_says_what_it_is():
    request = LlmRequest("m", (Message.user("See", PICTURE),), tools=(ToolSpec("t", "", {}),))
    asked = Asked(Provider("a"), Provider("b", capabilities=Capabilities(tools=False)))
    with pytest.raises(LlmError) as caught:
        await asked.stream(request)
    assert caught.value.kind == "bad_request"
    assert "image/png" in caught.value.message
    assert "tools" in caught.value.message
    assert caught.value.next_step


async def test_reasoning_goes_back_to_its_origin_alone():
    kept = Message.user("Hi")
    messages = (
        kept,
        Message("assistant", (ReasoningPart("hm", "a", "sealed"), TextPart("Yes."))),
        Message("assistant", (ReasoningPart("hm", "a"),)),
    )
    request = LlmRequest("m", messages)
    first, second = Provider("a", failing()), Provider("b", HELLO)
    await Asked(first, second).stream(request)

    assert first.requests[0].messages is messages
    assert second.requests[0].messages == (kept, Message("assistant", (TextPart("Yes."),)))
    assert second.requests[0].messages[0] is kept


@pytest.mark.parametrize("as_async", [True, False])
async def test_the_host_can_refuse_an_attempt_and_nobody_else_is_asked(as_async):
    seen = []

    def check(entry, request, number):
        seen.append((entry.model, request.model, number))
        return Refuse("budget_exceeded", "The budget is spent.")

    async def check_async(entry, request, number):
        return check(entry, request, number)

    providers = Provider("a", HELLO), Provider("b", HELLO)
    asked = Asked(*providers, before_attempt=check_async if as_async else check)
    with pytest.raises(LlmError) as caught:
        await asked.stream()

    error = caught.value
    assert (error.kind, error.code, error.message) == (
        "refused",
        "budget_exceeded",
        "The budget is spent.",
    )
    assert seen == [("0-model", "0-model", 1)]
    assert asked.outcomes == [("a", 1, "refused", "refused")]
    assert sum(provider.opened for provider in providers) == 0


async def test_a_whole_answer_follows_the_same_rules():
    first = Provider("a", failing("rate_limit"), failing("rate_limit"))
    asked = Asked(FallbackPlanEntry(first, "m", 2), Provider("b", HELLO))
    result = await asked.chain.generate(REQUEST)
    assert (result.text, result.provider) == ("Hello", "b")
    assert [outcome for _, _, outcome, _ in asked.outcomes] == ["error", "error", "success"]

    broken = Provider("a", (TextDelta("Hel"), StreamEnd("error", Usage(1, 1))), HELLO)
    asked = Asked(FallbackPlanEntry(broken, "m", 2))
    assert (await asked.chain.generate(REQUEST)).text == "Hello"
    assert asked.records[0].usage == Usage(1, 1)

    asked = Asked(Provider("a", (anyio.sleep_forever,)), Provider("b", HELLO), stall_s=0.05)
    assert (await asked.chain.generate(REQUEST)).provider == "b"


async def test_what_the_host_raises_goes_through_as_it_is():
    def refuse(chunk):
        raise LookupError("not mine")

    provider = Provider("a", HELLO)
    asked = Asked(FallbackPlanEntry(provider, "m", 3), Provider("b", HELLO))
    with pytest.raises(LookupError, match="not mine"):
        await asked.chain.stream(REQUEST, refuse)
    assert (provider.opened, provider.closed) == (1, 1)
    assert asked.outcomes == [("a", 1, "cancelled", "cancelled")]


def test_options_show_nothing_of_what_they_hold():
    assert repr(ChainOptions(key_for={"a": "sk-secret"}.__getitem__, media=object())) == (
        "ChainOptions(stall_s=60.0, cooldown_s=30.0)"
    )
