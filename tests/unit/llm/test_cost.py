"""What attempts cost: exact, rounded up once, never negative, and honest about what isn't known."""

import json
import threading
from decimal import Decimal, localcontext
from fractions import Fraction
from math import ceil

import pytest
from genai_prices.data import providers
from hypothesis import given
from hypothesis import strategies as st

from ryecore.errors import MissingExtra
from ryecore.llm import AttemptCost, AttemptRecord, CostTracker, Price, Usage
from ryecore.llm.prices import bundled_cost

COUNTS = st.integers(0, 10**9)
USAGES = st.builds(Usage, *[COUNTS] * 6)
USD = st.decimals(0, 1000, places=6) | st.decimals(0, 1, places=18)
PRICES = st.builds(Price, USD, USD, *[USD | st.none()] * 3, USD, USD | st.none())
TIERED = ("anthropic", "claude-sonnet-4-5")
MODELS = [(one.id, model.id) for one in providers for model in one.models]


def attempt(outcome="success", usage=None, provider="acme", model="m", **facts):
    return AttemptRecord(0, provider, model, 1, outcome, usage=usage, **facts)


def exact(price, usage, media=0):
    def or_else(one, other):
        return Fraction(other if one is None else one)

    usd = (
        usage.input_tokens * Fraction(price.input)
        + usage.output_tokens * Fraction(price.output)
        + usage.cache_read_tokens * or_else(price.cache_read, price.input)
        + usage.cache_write_tokens * or_else(price.cache_write, price.input)
        + usage.cache_write_1h_tokens
        * or_else(price.cache_write_1h, or_else(price.cache_write, price.input))
        + usage.reasoning_tokens * or_else(price.reasoning, price.output)
    ) / 10**6 + media * Fraction(price.per_medium)
    return usd * 10**8


@given(PRICES, USAGES, st.integers(0, 100))
def test_a_cost_is_exact_and_rounded_up_once(price, usage, media):
    cost = price.cost_of(usage, media)
    assert cost == ceil(exact(price, usage, media))
    assert cost >= 0


def test_the_rates_of_equal_prices_are_made_once():
    # A host's price_of may return a new Price at each call.
    assert Price("3", "15")._rates is Price(Decimal(3), "15.0")._rates
    assert Price("3", "15")._rates != Price("3", "15", cache_read="0.3")._rates


@given(PRICES, USAGES, USAGES)
def test_more_tokens_never_cost_less_and_a_sum_never_more_than_its_parts(price, one, other):
    both = price.cost_of(one + other)
    assert both >= max(price.cost_of(one), price.cost_of(other))
    parts = price.cost_of(one) + price.cost_of(other)
    assert parts - 1 <= both <= parts


@given(PRICES, st.lists(USAGES, max_size=5))
def test_a_tracker_adds_up_what_its_attempts_cost(price, usages):
    tracker = CostTracker(lambda provider, model: price)
    costs = [tracker.record(attempt(usage=usage)) for usage in usages]
    assert tracker.cost_microcents == sum(cost.cost_microcents for cost in costs)
    assert tracker.usage == sum(usages, Usage())
    assert (tracker.unpriced, tracker.estimated) == (0, 0)
    assert json.loads(json.dumps(tracker.to_dict())) == tracker.to_dict()


def test_a_dollar_is_a_hundred_million_microcents():
    assert Price("1", "0").cost_of(Usage(1_000_000)) == 10**8
    assert Price("0.000001", 0).cost_of(Usage(1)) == 1  # a ten thousandth of one, rounded up
    assert Price(0, 0, per_medium="0.04").cost_of(Usage(), 2) == 8_000_000


@pytest.mark.parametrize("price", ["-1", "NaN", "Infinity", "free", "1e-19", "1e12", "1e-999999"])
def test_what_is_no_price_is_refused(price):
    with pytest.raises(ValueError, match="price"):
        Price(price, "1")


def test_a_float_is_no_price():
    with pytest.raises(TypeError, match="exact"):
        Price(0.1, "1")


@pytest.mark.parametrize(
    ("record", "cost", "estimated"),
    [
        (attempt("success", Usage(10, 1)), 3000, False),
        (attempt("success"), 0, False),
        (attempt("error"), 0, False),
        (attempt("error", Usage(10)), 1000, False),
        (attempt("cut", text_bytes=9), 6000, True),
        (attempt("cancelled", text_bytes=9), 6000, True),
        (attempt("cut", Usage(10, 3), text_bytes=9), 7000, False),
        (attempt("cut", Usage(10, 1), text_bytes=9), 7000, True),
        (attempt("cut", Usage(10, 0, reasoning_tokens=2), text_bytes=9), 7000, True),
        (attempt("cut"), 0, False),
        (attempt("success", text_bytes=9), 6000, True),
        (attempt("success", Usage(), text_bytes=9), 6000, True),
        (attempt("success", Usage(10), text_bytes=9), 7000, True),
        (attempt("success", Usage(10, 1), text_bytes=9), 3000, False),
        (attempt("success", Usage(0, 1), text_bytes=9), 2000, False),
        (attempt("skipped"), 0, False),
        (attempt("refused"), 0, False),
        (attempt("success", media=("image/png", "image/png")), 2 * 10**8, False),
    ],
)
def test_what_an_attempt_costs_by_its_outcome(record, cost, estimated):
    tracker = CostTracker(lambda provider, model: Price("1", "20", per_medium=1))
    found = tracker.record(record)
    assert (found.cost_microcents, found.priced, found.estimated) == (cost, True, estimated)
    assert (tracker.cost_microcents, tracker.estimated) == (cost, int(estimated))


@pytest.mark.parametrize("usage", [None, Usage(), Usage(0, 7)])
def test_a_whole_answer_that_nobody_counted_is_estimated_with_what_was_read(usage):
    tracker = CostTracker(lambda provider, model: Price("1", "20"))
    found = tracker.record(attempt("success", usage, text_bytes=28), input_tokens_estimate=30)
    assert found == AttemptCost(17_000, True, True, Usage(30, 7))


@pytest.mark.parametrize("model", ["claude-opus-5", "claude-haiku-5-5"])  # flat and tiered
def test_bundled_prices_tell_what_is_written_for_an_hour_from_the_rest(model):
    def cost(usage):
        return CostTracker().record(attempt("success", usage, "anthropic", model)).cost_microcents

    plain = cost(Usage(8_000))
    assert cost(Usage(0, 0, 0, 8_000)) * 4 == plain * 5
    assert cost(Usage(cache_write_1h_tokens=8_000)) == plain * 2
    assert cost(Usage(0, 0, 0, 4_000, 0, 4_000)) * 8 == plain * 13
    assert cost(Usage(0, 0, 8_000)) * 10 == plain or model == "claude-haiku-5-5"


@pytest.mark.parametrize(
    ("usage", "saved"),
    [
        (Usage(1_000, 50), 0),
        (Usage(0, 50, 1_000), 90_000),
        (Usage(0, 50, 0, 1_000), -25_000),
        (Usage(0, 50, cache_write_1h_tokens=1_000), -100_000),
        (Usage(100, 50, 9_000, 1_000, 7), 9 * 90_000 - 25_000),
    ],
)
def test_what_a_cache_saved_is_told_and_what_writing_to_it_cost(usage, saved):
    price = Price("1", "20", cache_read="0.1", cache_write="1.25", cache_write_1h="2")
    tracker = CostTracker(lambda provider, model: price)
    found = tracker.record(attempt("success", usage))
    without = Usage(usage.total_input_tokens, 50, reasoning_tokens=usage.reasoning_tokens)
    assert found.cache_saved_microcents == saved == price.cost_of(without) - found.cost_microcents
    assert tracker.record(attempt("success", usage)).cache_saved_usd == Decimal(saved) / 10**8
    assert (
        tracker.cache_saved_microcents == tracker.to_dict()["cache_saved_microcents"] == 2 * saved
    )


def test_what_a_cache_saved_is_unknown_without_a_price():
    assert CostTracker().record(attempt(usage=Usage(0, 0, 10))).cache_saved_microcents == 0


def test_the_most_that_an_attempt_can_cost_knows_what_writing_to_the_cache_costs():
    price = Price("1", "0", cache_read="0.1", cache_write="1.25", cache_write_1h="2")
    tracker = CostTracker(lambda provider, model: price)
    assert tracker.worst_case("a", "b", 1_000, 0) == 125_000
    tracker.cache = "1h"
    assert tracker.worst_case("a", "b", 1_000, 0) == 200_000
    tracker.cache = None  # some providers cache unasked
    assert tracker.worst_case("a", "b", 1_000, 0) == 125_000


def test_media_without_a_price_of_their_own_are_unpriced():
    made = attempt("success", Usage(5), media=("image/png",))
    tracker = CostTracker(lambda provider, model: Price("1", "20"))
    assert tracker.record(made) == AttemptCost(0, False, False, Usage(5))
    assert tracker.unpriced == 1
    assert tracker.worst_case("a", "b", 10, 10, media=1) is None
    assert tracker.worst_case("a", "b", 10, 10) is not None
    by_tokens = CostTracker(lambda provider, model: Price("1", "20", per_medium="0"))
    assert by_tokens.record(made) == AttemptCost(500, True, False, Usage(5))


def test_bundled_prices_are_none_of_media():
    pytest.importorskip("genai_prices")
    made = attempt("success", Usage(5), provider="openai", model="gpt-4o", media=("image/png",))
    assert not CostTracker(bundled=True).record(made).priced


def test_an_estimate_takes_what_was_read_along():
    tracker = CostTracker(lambda provider, model: Price("1", "20"))
    found = tracker.record(attempt("cut", text_bytes=4), input_tokens_estimate=30)
    assert found == AttemptCost(5000, True, True, Usage(30, 1))


def test_a_model_without_a_price_costs_nothing_and_says_so():
    tracker = CostTracker()
    found = tracker.record(attempt(usage=Usage(10, 10), provider="nobody-knows"))
    assert (found.cost_microcents, found.priced, tracker.unpriced) == (0, False, 1)
    assert tracker.usage == Usage(10, 10)


def test_the_hosts_price_comes_before_a_bundled_one():
    usage = Usage(100)
    host = CostTracker(lambda provider, model: Price("9", "9") if provider == "anthropic" else None)
    assert host.record(attempt(usage=usage, provider="anthropic")).cost_microcents == 90_000
    assert CostTracker(bundled=False).record(attempt("success", usage, *TIERED)).priced is False


def test_bundled_prices_count_each_token_once_and_hold_their_tiers():
    def cost(usage):
        return CostTracker().record(attempt("success", usage, *TIERED)).cost_microcents

    assert cost(Usage(700, 60, 200, 100, 40)) == (700 * 3 + 100 * 15) * 100 + 200 * 30 + 100 * 375
    assert CostTracker().record(attempt("success", Usage(0, 0, 1), "openai", "gpt-5")) == (
        AttemptCost(13, True, False, Usage(0, 0, 1), 112)  # 12.5 instead of 125, rounded up
    )
    assert cost(Usage(200_000)) == 200_000 * 300
    assert cost(Usage(200_000, 0, 1)) == 200_000 * 600 + 60


def test_bundled_prices_are_exact_in_a_host_that_calculates_roughly():
    with localcontext(prec=2):
        found = CostTracker().record(attempt("success", Usage(123_457), *TIERED))
    assert found.cost_microcents == 123_457 * 300


@given(st.sampled_from(MODELS), st.lists(USAGES, min_size=1, max_size=3))
def test_a_bundled_price_that_is_looked_up_once_is_the_librarys_own_to_the_microcent(model, usages):
    tracker = CostTracker()
    for usage in usages:
        found = tracker.record(attempt("success", usage, *model))
        expected = bundled_cost(*model, usage)
        assert (found.cost_microcents, found.priced) == (expected or 0, expected is not None)


def test_bundled_prices_start_no_thread_and_are_known_for_what_they_price_alone():
    before = set(threading.enumerate())
    tracker = CostTracker()
    assert not tracker.record(attempt("success", Usage(1), "openai", "no-such-model")).priced
    assert tracker.record(attempt("success", Usage(1), "openai", "gpt-5")).priced
    assert not set(threading.enumerate()) - before


def test_who_asks_for_bundled_prices_is_told_that_they_are_missing(monkeypatch):
    monkeypatch.setattr("ryecore.llm.prices._installed", lambda: False)
    with pytest.raises(MissingExtra) as caught:
        CostTracker(bundled=True)
    assert (caught.value.extra, caught.value.next_step) == (
        "prices",
        "pip install 'ryecore[prices]'",
    )
    assert CostTracker().record(attempt("success", Usage(1), *TIERED)).priced is False


def test_a_price_takes_what_is_exact():
    assert Price("0.10", Decimal("2"), 0) == Price(Decimal("0.1"), 2, "0")
