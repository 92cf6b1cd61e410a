"""The event log of one execution."""

import pytest

from ryecore.chain.trace import Trace
from ryecore.errors import ChainError


def test_events_are_kept_in_order_and_told_as_they_happen():
    told: list[object] = []
    trace = Trace(told.append)
    trace.add("resolve", item_id="a")
    trace.add("seal", files=1)
    assert [event["step"] for event in trace.events] == ["resolve", "seal"]
    assert told == list(trace.events)


def test_a_block_that_fails_ends_in_the_failing_event():
    trace = Trace()
    with pytest.raises(ChainError), trace.failing("plan", item_id="a"):
        raise ChainError("why", next_step="do")
    assert trace.events == ({"step": "plan", "item_id": "a", "failed": True, "error": "why do"},)


def test_a_block_that_succeeds_records_nothing_by_itself():
    trace = Trace()
    with trace.failing("plan"):
        pass
    assert trace.events == ()


def test_another_error_is_not_ours_to_record():
    trace = Trace()
    with pytest.raises(ZeroDivisionError), trace.failing("plan"):
        raise ZeroDivisionError
    assert trace.events == ()
