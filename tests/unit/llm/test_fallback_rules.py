"""What follows a try that failed: the whole table, and the bounds of what is waited."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.errors.agents import RETRYABLE_KINDS, LlmErrorKind
from ryecore.llm import Backoff
from ryecore.llm.fallback_rules import (
    Failover,
    GiveUp,
    Refresh,
    RetryAttempt,
    backoff_s,
    verdict_of,
)

KINDS = LlmErrorKind.__args__
BACKOFF = Backoff(base_s=0.25, cap_s=8.0)


def decide(kind, **facts):
    facts = {"attempt": 1, "max_attempts": 3, "backoff": BACKOFF, "random": 1.0} | facts
    return verdict_of(kind, cooldown_s=30.0, **facts)


@pytest.mark.parametrize(
    ("kind", "facts", "verdict"),
    [
        ("cancelled", {}, GiveUp()),
        ("refused", {}, GiveUp()),
        ("bad_request", {}, GiveUp()),
        ("content_filter", {}, GiveUp()),
        ("context_length", {}, Failover(0.0)),
        ("unknown", {}, Failover(0.0)),
        ("auth", {}, Failover(30.0)),
        ("auth", {"has_refresh": True}, Refresh()),
        ("auth", {"has_refresh": True, "attempt": 3}, Refresh()),
        ("auth", {"has_refresh": True, "refreshed": True}, Failover(30.0)),
        ("auth", {"refreshed": True}, Failover(30.0)),
        *[
            row
            for kind in ("rate_limit", "unavailable")
            for row in [
                (kind, {}, RetryAttempt(0.25)),
                (kind, {"attempt": 2}, RetryAttempt(0.5)),
                (kind, {"attempt": 2, "random": 0.5}, RetryAttempt(0.25)),
                (kind, {"random": 0.0}, RetryAttempt(0.0)),
                (kind, {"random": math.nan}, RetryAttempt(0.25)),
                (kind, {"random": -1.0}, RetryAttempt(0.0)),
                (kind, {"attempt": 3}, Failover(30.0)),
                (kind, {"attempt": 9, "max_attempts": 99}, RetryAttempt(8.0)),
                (kind, {"attempt": 9999, "max_attempts": 99999}, RetryAttempt(8.0)),
                (kind, {"retry_after_s": 2.0}, RetryAttempt(2.0)),
                (kind, {"retry_after_s": 0.0}, RetryAttempt(0.0)),
                (kind, {"retry_after_s": 8.0, "has_other": True}, RetryAttempt(8.0)),
                (kind, {"retry_after_s": 90.0, "has_other": True}, Failover(90.0)),
                (kind, {"retry_after_s": 1e9, "has_other": True}, Failover(3600.0)),
                (kind, {"retry_after_s": 90.0}, RetryAttempt(8.0)),
                (kind, {"retry_after_s": 90.0, "attempt": 3}, Failover(90.0)),
                (kind, {"retry_after_s": 2.0, "attempt": 3}, Failover(30.0)),
                (kind, {"retry_after_s": -1.0}, RetryAttempt(0.25)),
                (kind, {"retry_after_s": math.nan}, RetryAttempt(0.25)),
                (kind, {"retry_after_s": math.inf, "has_other": True}, RetryAttempt(0.25)),
            ]
        ],
        *[(kind, {"content_started": True, "has_refresh": True}, GiveUp()) for kind in KINDS],
    ],
)
def test_the_table(kind, facts, verdict):
    assert decide(kind, **facts) == verdict


FACTS = st.fixed_dictionaries(
    {
        "attempt": st.integers(1, 10_000),
        "max_attempts": st.integers(1, 10_000),
        "random": st.floats(),
        "retry_after_s": st.none() | st.floats(),
        "content_started": st.booleans(),
        "refreshed": st.booleans(),
        "has_refresh": st.booleans(),
        "has_other": st.booleans(),
        "backoff": st.builds(Backoff, st.floats(0, 1e6), st.floats(0, 1e6)),
    }
)


@given(st.sampled_from(KINDS), FACTS)
def test_whatever_comes_the_verdict_keeps_its_bounds(kind, facts):
    verdict = decide(kind, **facts)

    if kind == "cancelled" or facts["content_started"]:
        assert verdict == GiveUp()
    if isinstance(verdict, RetryAttempt):
        assert kind in RETRYABLE_KINDS
        assert facts["attempt"] < facts["max_attempts"]
        assert 0 <= verdict.delay_s <= facts["backoff"].cap_s
    if isinstance(verdict, Refresh):
        assert kind == "auth"
        assert facts["has_refresh"]
        assert not facts["refreshed"]
    if isinstance(verdict, Failover):
        assert 0 <= verdict.cooldown_s < math.inf


@given(st.integers(1, 200), st.floats(0, 1), st.floats(0.001, 100), st.floats(0.001, 100))
def test_waits_grow_up_to_the_cap(attempt, random, base_s, cap_s):
    def delay_s(attempt):
        return decide(
            "unavailable",
            attempt=attempt,
            max_attempts=1000,
            random=random,
            backoff=Backoff(base_s, cap_s),
        ).delay_s

    assert delay_s(attempt) <= delay_s(attempt + 1) <= random * cap_s
    assert delay_s(1) <= random * base_s


# The wait before a next attempt

TRIED = st.integers(1, 10_000)


@given(TRIED, st.floats(0.001, 60), st.floats(0.001, 600))
def test_waits_grow_and_stay_within_the_cap(tried: int, base_s: float, cap_s: float) -> None:
    assert 0 < backoff_s(tried, base_s, cap_s) <= cap_s
    assert backoff_s(tried, base_s, cap_s) <= backoff_s(tried + 1, base_s, cap_s)


@given(TRIED, st.floats())
def test_a_jitter_of_any_kind_takes_a_part_of_the_wait(tried: int, jitter: float) -> None:
    assert 0 <= backoff_s(tried, 0.25, 8.0, jitter) <= backoff_s(tried, 0.25, 8.0)


def test_the_first_waits_are_those_of_the_defaults() -> None:
    assert [backoff_s(tried, 0.25, 8.0) for tried in range(1, 8)] == [0.25, 0.5, 1, 2, 4, 8, 8]
