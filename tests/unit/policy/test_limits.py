"""Limits: names, values and layers."""

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.policy.limits import DEFAULT_LIMITS, LIMIT_NAMES, Limits, read_limits

COUNTS = st.none() | st.integers(0, 9)
AMOUNTS = st.none() | st.decimals(0, 9, places=2)
LIMITS = st.builds(
    Limits,
    turns=COUNTS,
    tokens=COUNTS,
    spend_usd=AMOUNTS,
    spawns=COUNTS,
    depth=COUNTS,
    duration_s=AMOUNTS,
)


@pytest.mark.parametrize("prefix", ["", "max_"])
@pytest.mark.parametrize("as_text", [False, True])
def test_every_name_is_read_in_both_spellings_as_number_and_as_text(prefix, as_text):
    given_values = {
        "turns": 8, "tokens": 1000, "spend": 0.5, "spawns": 0, "depth": 3, "duration_seconds": 60,
    }  # fmt: skip
    found = read_limits(
        {
            f"{prefix}{name}": str(value) if as_text else value
            for name, value in given_values.items()
        }
    )
    assert found == Limits(8, 1000, Decimal("0.5"), 0, 3, Decimal(60))
    assert found.to_dict() == {**given_values, "spend_currency": "USD"}
    assert json.dumps(found.to_dict())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("turns", -1), ("turns", 1.5), ("turns", "1.5"), ("turns", True), ("turns", None),
        ("turns", "x"), ("turns", ""), ("turns", [1]), ("turns", 2**60), ("turns", 10**5000),
        ("turns", "9" * 5000), ("turns", "1e999999999"), ("turns", float("nan")),
        ("turns", float("inf")), ("turns", "1_000"), ("spend", "-0.01"), ("spend", "NaN"),
        ("spend", "sNaN"), ("spend", "Infinity"), ("spend", float("nan")), ("spend", "0.5 USD"),
        ("spend", {}), ("duration_seconds", -1), ("duration_seconds", "soon"), ("laps", 1),
        ("max_laps", 1), ("spend_usd", 1), ("", 1), ("spend_currency", "EUR"),
        ("spend_currency", 3),
    ],
    ids=lambda value: str(value)[:12] if not isinstance(value, int) else "number",
)  # fmt: skip
def test_a_name_or_a_value_that_cannot_be_is_refused(name, value):
    with pytest.raises(ValueError, match=r".") as refusal:
        read_limits({name: value})
    assert len(str(refusal.value)) < 200


def test_money_stays_exact():
    assert read_limits({"spend": "0.1"}).spend_usd == Decimal("0.1")
    assert read_limits({"spend": 0.1}).spend_usd == Decimal("0.1")


def test_every_problem_is_listed_with_the_valid_names():
    with pytest.raises(ValueError, match="laps") as refusal:
        read_limits({"laps": 1, "turns": -1, "depth": 1, "max_depth": 2})
    for text in ("laps", "turns is -1", "depth and max_depth", ", ".join(LIMIT_NAMES)):
        assert text in str(refusal.value)


@given(LIMITS, LIMITS, LIMITS)
def test_layers_need_no_brackets_and_the_upper_one_wins(one, two, three):
    assert one.under(two).under(three) == one.under(two.under(three))
    merged = one.under(two)
    for name in ("turns", "spend_usd", "depth"):
        above = getattr(two, name)
        assert getattr(merged, name) == (getattr(one, name) if above is None else above)


def test_zero_is_a_limit_and_beats_a_default():
    assert DEFAULT_LIMITS.under(read_limits({"turns": 0})).turns == 0


def test_without_a_word_the_defaults_hold():
    assert DEFAULT_LIMITS.under(Limits()).to_dict() == {
        "turns": 25, "tokens": 1_000_000, "spend": 5, "spawns": 50, "depth": 10,
        "duration_seconds": 1800, "spend_currency": "USD",
    }  # fmt: skip


# Made by hand


@pytest.mark.parametrize("amount", [0.1, "0.1", Decimal("0.1")])
def test_amounts_are_taken_as_number_and_as_text_and_stay_exact(amount):
    limits = Limits(spend_usd=amount, duration_s=amount)
    assert limits == Limits(spend_usd=Decimal("0.1"), duration_s=Decimal("0.1"))
    assert limits.spend_microcents == 10_000_000


@pytest.mark.parametrize("name", ["turns", "tokens", "spawns", "depth"])
@pytest.mark.parametrize("value", [-2, 1.5, 8.0, "8", True, 2**53 + 1])
def test_a_count_that_is_no_whole_number_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"^{name} is .* whole number"):
        Limits(**{name: value})


@pytest.mark.parametrize("name", ["spend_usd", "duration_s"])
@pytest.mark.parametrize("value", [-0.01, "x", True, float("nan"), float("inf"), 2.0**54, [1]])
def test_an_amount_that_cannot_be_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"^{name} is .* number"):
        Limits(**{name: value})


@pytest.mark.parametrize(
    ("usd", "microcents"),
    [("0", 0), ("0.000000019", 1), ("1e-99", 0), ("12.34", 1_234_000_000),
     ("0." + "9" * 37, 99_999_999), (2**53, 2**53 * 10**8)],
)  # fmt: skip
def test_a_ceiling_in_microcents_is_rounded_down(usd, microcents):
    assert Limits(spend_usd=usd).spend_microcents == microcents
    assert Limits().spend_microcents is None


@given(LIMITS, LIMITS)
def test_a_child_never_has_more_than_its_parent_and_is_one_generation_down(own, parent):
    child = own.capped_by(parent)
    for name in ("turns", "tokens", "spend_usd", "spawns", "duration_s"):
        said = [one for one in (getattr(own, name), getattr(parent, name)) if one is not None]
        assert getattr(child, name) == (min(said) if said else None)
    if parent.depth is not None:
        assert child.depth is not None
        assert child.depth <= parent.depth - 1
    if own.depth is not None:
        assert child.depth is not None
        assert child.depth <= own.depth


def test_the_child_of_one_at_depth_zero_may_not_be():
    assert Limits(depth=3).capped_by(Limits(depth=0)).depth == -1
    assert Limits(depth=3).capped_by(Limits(depth=-1)).depth == -1
