import sys
import threading
from dataclasses import FrozenInstanceError
from types import FrameType
from typing import Any

import pytest
from attrs import evolve, fields
from attrs.exceptions import FrozenInstanceError as AttrsFrozenInstanceError

from ryecore.policy import CallContext, CancelToken


def test_a_token_cancels_once_and_for_all() -> None:
    token, told = CancelToken(), []
    token.on_cancel(lambda: told.append("one"))
    token.on_cancel(lambda: told.append("two"))
    assert not token.cancelled
    assert told == []
    token.cancel()
    token.cancel()
    assert token.cancelled
    assert told == ["one", "two"]


def test_who_asks_late_is_told_at_once() -> None:
    token, told = CancelToken(), []
    token.cancel()
    token.on_cancel(lambda: told.append("late"))()
    assert told == ["late"]


def test_who_takes_the_wish_back_is_not_told() -> None:
    token, told = CancelToken(), []
    forget = token.on_cancel(lambda: told.append("gone"))
    token.on_cancel(lambda: told.append("here"))
    forget()
    forget()
    token.cancel()
    forget()
    assert told == ["here"]


def test_a_callback_may_use_the_token() -> None:
    token, told = CancelToken(), []

    def again() -> None:
        token.cancel()
        token.on_cancel(lambda: told.append(token.cancelled))

    token.on_cancel(again)
    token.cancel()
    assert told == [True]


def test_threads_that_cancel_at_once_tell_everyone_once() -> None:
    for _ in range(50):
        token, told, start = CancelToken(), [], threading.Barrier(8)
        token.on_cancel(lambda told=told: told.append("early"))

        def race(
            token: CancelToken = token,
            told: list[str] = told,
            start: threading.Barrier = start,
            number: int = 0,
        ) -> None:
            start.wait()
            if number % 2:
                token.cancel()
            else:
                token.on_cancel(lambda: told.append("racing"))

        threads = [threading.Thread(target=race, kwargs={"number": n}) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(told) == ["early", *["racing"] * 4]


def test_a_signals_handler_may_cancel_at_any_line_and_everyone_is_told_once() -> None:
    told: list[list[str]] = []

    def interrupted_at(line: int) -> bool:
        """Interrupt the token's own code, as the handler of a signal does, at its nth line."""
        heard: list[str] = []
        token, left = CancelToken(), line

        def trace(frame: FrameType, event: str, arg: object) -> Any:
            nonlocal left
            if "policy/context.py" not in frame.f_code.co_filename:
                return None
            left -= event == "line"
            if left == 0 and event == "line":
                sys.settrace(None)
                token.cancel()
            return trace

        sys.settrace(trace)
        forget = token.on_cancel(lambda: heard.append("gone"))
        token.on_cancel(lambda: heard.append("here"))
        forget()
        sys.settrace(None)
        token.cancel()
        told.append(sorted(heard))
        return left <= 0

    def walk() -> None:
        line = 1
        while interrupted_at(line):
            line += 1

    thread = threading.Thread(target=walk, daemon=True)
    thread.start()
    thread.join(20)

    assert not thread.is_alive()
    assert len(told) > 8
    assert ["gone", "here"] in told
    assert all(heard in (["here"], ["gone", "here"]) for heard in told)


def test_the_hosts_own_context_may_do_everything_and_has_a_name() -> None:
    one, other = CallContext(), CallContext()
    assert one.capabilities is None
    assert (one.depth, one.deadline, one.cancellation, one.parent) == (0, None, None, None)
    assert one.call_id != other.call_id


def test_a_context_is_frozen() -> None:
    with pytest.raises((FrozenInstanceError, AttrsFrozenInstanceError)):
        CallContext().capabilities = frozenset({"*"})  # type: ignore[misc]


def test_a_changed_context_keeps_all_else() -> None:
    def none() -> None: ...

    names = [one.name for one in fields(CallContext)]
    values: Any = [
        frozenset({"rye.fetch.*"}),
        "run",
        2,
        3.0,
        CancelToken(),
        "call",
        "parent",
        none,
        {"tenant": "acme"},
        None,
        "mcp",
        None,
        None,
        [].append,
        none,
    ]
    ctx = CallContext(**dict(zip(names, values, strict=True)))
    assert ctx.for_host() == evolve(ctx, capabilities=None)
    assert ctx.as_call("other") == evolve(ctx, call_id="other")
    assert ctx.called_by("other") == evolve(ctx, caller="other")
    for changed in (ctx.for_host(), ctx.as_call("other"), ctx.called_by("other")):
        assert (changed.report_sink, changed.ask) == (ctx.report_sink, ctx.ask)
