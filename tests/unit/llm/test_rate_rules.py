"""RateLimit and RateWindow: how much goes into a minute, and what has to wait how long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.errors import ConfigError
from ryecore.llm import RateLimit
from ryecore.llm.rate_rules import RateWindow


@pytest.mark.parametrize(
    ("numbers", "what"),
    [
        ({}, "limits nothing"),
        ({"requests_per_minute": 0}, "requests_per_minute must be a number of at least 1"),
        ({"tokens_per_minute": -5}, "tokens_per_minute must be a number of at least 1"),
        ({"requests_at_once": True}, "requests_at_once is of the type bool"),
        ({"requests_per_minute": 1.5}, "requests_per_minute is of the type float"),
        ({"tokens_per_minute": "40k"}, "tokens_per_minute is of the type str"),
    ],
)
def test_a_limit_that_is_none_is_refused(numbers, what):
    with pytest.raises(ConfigError, match=what):
        RateLimit(**numbers)


@pytest.mark.parametrize(
    ("limit", "taken", "tokens", "wait_s"),
    [
        (RateLimit(requests_per_minute=2), [], 1, 0),
        (RateLimit(requests_per_minute=2), [(0, 1)], 1, 0),
        (RateLimit(requests_per_minute=2), [(0, 1), (5, 1)], 1, 55),
        (RateLimit(tokens_per_minute=100), [(0, 60)], 40, 0),
        (RateLimit(tokens_per_minute=100), [(0, 60)], 41, 55),
        (RateLimit(tokens_per_minute=100), [(0, 60), (6, 40)], 61, 61),
        (RateLimit(tokens_per_minute=100), [(0, 60)], 9_000, 55),  # more than ever fits
        (RateLimit(tokens_per_minute=100), [(0, 100)], 0, 0),
        (RateLimit(requests_per_minute=1, tokens_per_minute=100), [(0, 10)], 95, 55),
        (RateLimit(requests_at_once=1), [(0, 10)], 95, 0),
    ],
)
def test_a_request_waits_until_what_it_exceeds_is_a_minute_old(limit, taken, tokens, wait_s):
    window = RateWindow(limit)
    for at_s, count in taken:
        window.take(at_s, count)

    assert window.wait_s(10, tokens) == wait_s


@pytest.mark.parametrize(("ahead", "wait_s"), [(0, 55), (1, 60), (2, 115), (3, 120), (4, 175)])
def test_those_ahead_in_the_line_count(ahead, wait_s):
    window = RateWindow(RateLimit(requests_per_minute=2))
    window.take(0, 1)
    window.take(5, 1)

    assert window.wait_s(10, 1, ahead=ahead) == wait_s


def test_a_settled_request_counts_its_real_tokens_from_when_it_arrived():
    window = RateWindow(RateLimit(tokens_per_minute=100))
    quick, slow = window.take(0, 50), window.take(0, 50)

    window.settle(quick, 0.5, 20)
    window.settle(slow, 30, 60)

    assert window.wait_s(31, 20) == 0
    assert window.wait_s(31, 21) == 60.5 - 31
    assert window.wait_s(31, 41) == 65 - 31
    assert window.wait_s(61, 40) == 0


def test_a_request_that_was_not_sent_counts_no_longer():
    window = RateWindow(RateLimit(requests_per_minute=1, requests_at_once=1))
    taken = window.take(0, 5)
    assert (window.wait_s(0, 5), window.is_full) == (65, True)

    window.give_back(taken)

    assert (window.wait_s(0, 5), window.is_full) == (0, False)


def test_one_that_runs_for_longer_than_its_minute_is_settled_without_harm():
    window = RateWindow(RateLimit(tokens_per_minute=100, requests_at_once=1))
    taken = window.take(0, 100)
    assert window.wait_s(65, 100) == 0

    window.settle(taken, 90, 5_000)

    assert (window.wait_s(90, 100), window.is_full) == (0, False)


def test_a_hold_delays_all_and_a_shorter_one_does_not_shorten_it():
    window = RateWindow(RateLimit(requests_per_minute=9))
    window.hold(0, 8)
    window.hold(0, 3)
    assert window.wait_s(1, 1) == 7
    assert window.wait_s(8, 1) == 0


LIMITS = st.builds(
    RateLimit,
    requests_per_minute=st.integers(1, 6),
    tokens_per_minute=st.integers(1, 50),
)
REQUESTS = st.lists(
    st.tuples(
        st.floats(0, 40),  # from the request before it
        st.integers(0, 60),  # tokens taken
        st.floats(0, 90),  # until its end
        st.floats(0, 1),  # when in that time the provider gets it, within five seconds
    ),
    max_size=30,
)


@given(LIMITS, REQUESTS)
def test_no_minute_of_the_provider_has_more_than_the_limit(limit, requests):
    """Each is sent as soon as it may; the provider gets it at any time before its end."""
    window, now_s, arrived, running = RateWindow(limit), 0.0, [], []
    for gap_s, tokens, lasts_s, share in requests:
        now_s += gap_s
        while True:
            for end_s, taken in [one for one in running if one[0] <= now_s]:
                window.settle(taken, end_s, taken.tokens)
                running.remove((end_s, taken))
            wait_s = window.wait_s(now_s, tokens)
            if wait_s <= 0:
                break
            now_s = min([now_s + wait_s, *(end_s for end_s, _ in running)])
        taken = window.take(now_s, tokens)
        running.append((now_s + lasts_s, taken))
        arrived.append((now_s + share * min(lasts_s, 5), taken.tokens))
    for last_s, _ in arrived:
        of_minute = [tokens for at_s, tokens in arrived if last_s - 60 < at_s - 1e-6 <= last_s]
        assert len(of_minute) <= limit.requests_per_minute
        assert sum(of_minute) <= limit.tokens_per_minute


@given(LIMITS, st.lists(st.integers(1, 60), min_size=1, max_size=20))
def test_the_wait_in_a_line_is_never_estimated_too_long(limit, line):
    """What would be too late by the estimate would be too late."""
    window = RateWindow(limit)
    tokens_ahead = [sum(map(window.fitting, line[:place])) for place in range(len(line))]
    estimates = [
        window.wait_s(0, tokens, ahead=place, tokens_ahead=tokens_ahead[place])
        for place, tokens in enumerate(line)
    ]
    now_s = 0.0
    for tokens, estimate in zip(line, estimates, strict=True):
        while (wait_s := window.wait_s(now_s, tokens)) > 0:
            now_s += wait_s
        window.settle(window.take(now_s, tokens), now_s, window.fitting(tokens))
        assert estimate <= now_s + 1e-6
