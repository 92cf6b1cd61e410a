"""Classes of errors, and whether a thread asks again."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.convert.config import Configuration
from ryecore.errors import (
    ConfigError,
    LlmError,
    ToolArgsInvalidError,
    ToolCancelledError,
    ToolExecutionError,
    ToolPolicyError,
)
from ryecore.items.documents import parse_document
from ryecore.policy.hooks import CONTROLS
from ryecore.threads.planner.classification import (
    DEFAULT_CLASSIFICATION,
    ERROR_CLASSES,
    ERROR_CONFIG,
    Classification,
    ErrorPattern,
    GiveUp,
    RetryIn,
    RetryPolicy,
    classify,
    on_error_plan,
    read_classification,
)


def configuration(values):
    return Configuration.of(ERROR_CONFIG, values)


def llm(kind="unknown", message="It failed.", **facts):
    return LlmError(message, kind=kind, **facts)


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (llm("rate_limit", status=429), "rate_limited"),
        (llm("rate_limit", "Too many requests.", status=429), "rate_limited"),
        (llm("rate_limit", ""), "rate_limited"),
        (llm(status=429), "rate_limited"),
        (llm(message="You hit the rate limit"), "rate_limited"),
        (llm("rate_limit", "You exceeded your current quota; retry in 44 s", status=429),
         "rate_limited"),
        (llm("auth", "insufficient_quota: You exceeded your current quota"), "quota"),
        (llm("bad_request", "Your credit balance is too low"), "quota"),
        (llm("auth", status=402), "quota"),
        (llm("auth", status=401), "auth"),
        (llm(status=403), "auth"),
        (llm("bad_request", "timeout must be a number", status=400), "invalid"),
        (llm("context_length"), "invalid"),
        (llm("content_filter"), "invalid"),
        (llm("refused"), "invalid"),
        (llm(status=422), "invalid"),
        (llm("unavailable", "The request timed out"), "timeout"),
        (llm("unavailable", status=504), "timeout"),
        (llm("unavailable", "Connection reset by peer"), "connection"),
        (llm("unavailable", "Overloaded", status=529), "transient"),
        (llm("unavailable"), "transient"),
        (llm(status=503), "transient"),
        (llm(), "permanent"),
        (llm("cancelled"), "cancelled"),
        (llm("cancelled", "rate limit 429", status=429), "cancelled"),
        (ToolCancelledError("It was cancelled.", tool_name="t"), "cancelled"),
        (ToolPolicyError("It is denied.", tool_name="t"), "auth"),
        (ToolArgsInvalidError("No.", tool_name="t"), "invalid"),
        (ToolExecutionError("It timed out.", tool_name="t"), "timeout"),
        (ToolExecutionError("Division by zero.", tool_name="t"), "permanent"),
    ],
)  # fmt: skip
def test_errors_are_classed_by_kind_status_and_text(error, category):
    assert classify(error) == category


@pytest.mark.parametrize("control", [None, *CONTROLS])
def test_a_cancelled_call_is_never_made_again(control):
    assert on_error_plan(llm("cancelled"), 0, control) == GiveUp("cancelled")


def test_what_is_transient_is_tried_again_until_the_third_error_in_a_row():
    error = llm("unavailable")
    assert [on_error_plan(error, errors) for errors in range(4)] == [
        RetryIn(1.0, "transient"), RetryIn(2.0, "transient"), GiveUp("transient"),
        GiveUp("transient"),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["auth", "bad_request", "unknown", "refused"])
def test_what_is_permanent_is_not_tried_again_unless_a_hook_wants_it(kind):
    error = llm(kind)
    assert isinstance(on_error_plan(error, 0), GiveUp)
    assert isinstance(on_error_plan(error, 0, "retry"), RetryIn)
    assert isinstance(on_error_plan(error, 2, "retry"), GiveUp)


@pytest.mark.parametrize("control", ["fail", "abort"])
def test_a_hook_may_end_what_would_be_tried_again(control):
    assert on_error_plan(llm("unavailable"), 0, control) == GiveUp("transient")


def test_retry_after_wins_and_is_bounded():
    assert on_error_plan(llm("rate_limit", retry_after_s=44.0), 0, jitter=0) == RetryIn(
        44.0, "rate_limited"
    )
    assert on_error_plan(llm("rate_limit", retry_after_s=1e9), 0) == RetryIn(300.0, "rate_limited")
    for nonsense in (float("nan"), float("inf"), -1.0):
        plan = on_error_plan(llm("rate_limit", retry_after_s=nonsense), 0)
        assert plan == RetryIn(2.0, "rate_limited")


@given(
    st.sampled_from(sorted(DEFAULT_CLASSIFICATION.retry)),
    st.integers(0, 10**6),
    st.floats(allow_nan=False),
    st.none() | st.sampled_from(CONTROLS),
)
def test_a_wait_is_never_longer_than_its_bound(category, errors, jitter, control):
    classification = Classification(
        patterns=(ErrorPattern(category, frozenset({"unavailable"})),),
        retry={category: RetryPolicy(100, 0.5, 9)},
        max_consecutive_errors=100,
    )
    plan = on_error_plan(llm("unavailable"), errors, control, classification, jitter=jitter)
    if isinstance(plan, RetryIn):
        assert errors < 99
        assert 0 <= plan.seconds <= min(9, 0.5 * 2**errors)


def test_what_hooks_see_of_a_plan():
    assert on_error_plan(llm("unavailable"), 0).to_dict() == {
        "category": "transient", "retryable": True, "retry_in_s": 1.0,
    }  # fmt: skip
    assert on_error_plan(llm("auth"), 0).to_dict() == {"category": "auth", "retryable": False}


def test_every_class_has_a_name_and_a_default_is_a_class():
    assert {one.category for one in DEFAULT_CLASSIFICATION.patterns} <= set(ERROR_CLASSES)
    assert read_classification(configuration({})) == DEFAULT_CLASSIFICATION


def test_a_class_may_be_taken_from_what_is_tried_again():
    config = {"retry": {"transient": None}}
    assert isinstance(
        on_error_plan(llm("unavailable"), 0, None, read_classification(configuration(config))),
        GiveUp,
    )


@pytest.mark.parametrize(
    "config",
    [
        {"pattern": []}, {"patterns": {}}, {"patterns": [{"class": "odd", "kinds": ["auth"]}]},
        {"patterns": [{"class": "auth"}]}, {"patterns": ["auth"]},
        {"patterns": [{"class": "auth", "text": "("}]},
        {"patterns": [{"class": "auth", "text": 3}]},
        {"patterns": [{"class": "auth", "status": 401}]},
        {"patterns": [{"class": "auth", "status": ["4xx"]}]},
        {"patterns": [{"class": "auth", "kinds": "auth"}]},
        {"patterns": [{"class": "auth", "kind": ["auth"]}]},
        {"retry": []}, {"retry": {"odd": {}, "auth": {"tries": 1}}},
        {"retry": {"auth": {"attempts": 0}}}, {"retry": {"auth": {"base_s": "1"}}},
        {"max_consecutive_errors": 0}, {"max_consecutive_errors": True},
        {"retry_after_cap_s": float("nan")},
    ],
)  # fmt: skip
def test_configuration_of_another_form_is_refused_with_its_file(config):
    with pytest.raises(ConfigError, match=r"agent/error_classification\.yaml"):
        read_classification(configuration(config))


def test_every_problem_of_a_file_has_its_line_and_a_guess():
    text = (
        "patterns:\n  - {class: qota, kinds: [auth]}\n"
        "retry:\n  quota: {atempts: 3}\n  auth: {attempts: true}\n"
    )
    values = parse_document(text.encode(), Path(ERROR_CONFIG))
    with pytest.raises(ConfigError) as refusal:
        read_classification(Configuration.of(ERROR_CONFIG, values, text))
    assert [(one.line, one.place) for one in refusal.value.facts["problems"]] == [
        (2, ("patterns", 0, "class")),
        (4, ("retry", "quota", "atempts")),
        (5, ("retry", "auth", "attempts")),
    ]
    assert "Did you mean 'quota'?" in refusal.value.message
    assert "Did you mean 'attempts'?" in refusal.value.message
