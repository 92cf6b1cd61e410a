"""Amounts of money and tokens, and what is left of an account."""

from hypothesis import given
from hypothesis import strategies as st

from ryecore.policy.budget import NOTHING, Account, Amount, grant, outstanding

WHOLE = st.integers(-(2**60), 2**60)
AMOUNTS = st.builds(Amount, WHOLE, WHOLE)


@given(AMOUNTS, AMOUNTS)
def test_what_is_added_can_be_taken_away(one: Amount, other: Amount) -> None:
    assert one + other - other == one
    assert one + other == other + one
    assert one - one == NOTHING
    assert one + NOTHING == one


@given(AMOUNTS, AMOUNTS)
def test_an_amount_covers_what_is_no_larger_in_both(one: Amount, other: Amount) -> None:
    assert one.at_most(other) + one.at_least(other) == one + other
    assert one.covers(one.at_most(other))
    assert one.at_least(other).covers(other)
    assert one.covers(other) == (one.at_least(other) == one)
    rest = one - other
    assert one.covers(other) == (rest.spend_microcents >= 0 and rest.tokens >= 0)


def test_more_money_makes_up_for_no_tokens() -> None:
    assert not Amount(10**9, 1).covers(Amount(1, 2))
    assert not Amount(1, 10**9).covers(Amount(2, 1))


@given(AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS)
def test_what_is_left_and_what_is_used_make_the_ceiling(
    ceiling: Amount, own: Amount, children: Amount, held: Amount, reserved: Amount
) -> None:
    account = Account("a", None, ceiling, own, children, held, reserved)
    assert account.available + account.total + held + reserved == ceiling


@given(st.integers(0, 2**53), st.integers(0, 2**53))
def test_a_reservation_shrinks_by_what_was_cascaded(ceiling: int, cascaded: int) -> None:
    left = outstanding(ceiling, cascaded)
    assert left >= 0
    assert cascaded + left == max(ceiling, cascaded)


@given(AMOUNTS, st.lists(AMOUNTS))
def test_a_child_gets_what_it_wants_or_the_least_that_is_left(
    wanted: Amount, left: list[Amount]
) -> None:
    granted = grant(wanted, left)
    assert wanted.covers(granted)
    assert all(one.covers(granted) for one in left)
    assert granted.tokens in (wanted.tokens, *(one.tokens for one in left))
