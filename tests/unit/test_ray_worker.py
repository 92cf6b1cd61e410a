"""What a worker of a Ray cluster keeps for its caller. tests/integration/test_ray.py runs them."""

from pathlib import Path

from ryecore.ray_worker import KeptEvents


def test_events_come_in_order_and_once_taken_make_room_for_others() -> None:
    events = KeptEvents(most=2)
    events.add({"step": "a"})
    events.add({"step": "b"})
    assert events.after(0) == [{"step": "a"}, {"step": "b"}]
    assert events.after(0) == [{"step": "a"}, {"step": "b"}]  # as where an answer was lost
    assert events.after(2) == []
    events.add({"step": "c"})
    assert events.after(2) == [{"step": "c"}]


def test_one_event_tells_how_many_were_left_out() -> None:
    events = KeptEvents(most=2)
    for step in "abcde":
        events.add({"step": step})
    assert [one["step"] for one in events.after(0)] == ["a", "b"]
    assert events.after(2) == [{"step": "events_left_out", "left_out": 3}]
    events.add({"step": "f"})
    assert events.after(3, ended=True) == [{"step": "f"}]


def test_the_end_tells_what_was_left_out_though_nothing_was_taken() -> None:
    events = KeptEvents(most=1)
    events.add({"step": "a"})
    events.add({"step": "b"})
    found = events.after(0, ended=True)
    assert found == [{"step": "a"}, {"step": "events_left_out", "left_out": 1}]


def test_an_event_that_json_cannot_hold_says_so_and_hides_nothing() -> None:
    events = KeptEvents()
    events.add({"step": "plan", "cwd": Path("/tmp"), "more": "lost"})
    events.add({"step": "cost", "usd": float("nan")})
    first, second = events.after(0)
    assert first["step"] == "plan"
    assert "not JSON serializable" in str(first["error"])
    assert second["step"] == "cost"
    assert "Out of range float" in str(second["error"])
