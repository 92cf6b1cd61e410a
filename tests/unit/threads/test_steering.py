"""Hooks that steer a running thread: on errors, after steps, at limits, as its context fills."""

from pathlib import Path
from typing import Any

import pytest

from ryecore.llm.request import Capabilities
from ryecore.llm.result import Usage
from ryecore.testing import FunctionProvider, call, fail, hang, say
from ryecore.tools import tool
from tests.scripted_host import TOTAL, ScriptedHost
from tests.unit.threads.hooking import control, hooks, note, notes, noting, ran

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("wish", "state", "code", "asked"),
    [
        ("retry", "completed", "", 3),
        ("fail", "error", "provider_auth", 1),
        ("abort", "error", "provider_auth", 1),
        ("continue", "error", "provider_auth", 1),
        ("skip", "error", "provider_auth", 1),
    ],
)
async def test_a_model_error_is_steered(
    tmp_path: Path, wish: str, state: str, code: str, asked: int
) -> None:
    host = ScriptedHost(tmp_path, fail("auth"), call("add", {"a": 1, "b": 1}), say("2"))
    noting(host)
    hooks(host, note("n", "error", params={"wish": wish, "was": "${classification.category}"}))
    done = await host.run(host.write("acme/x"))
    assert (done.ended, len(host.model.requests)) == (state, asked)
    assert done.code == code
    assert notes(host) == [{"hook": "n", "wish": wish, "was": "auth"}]


async def test_a_model_error_is_handed_off(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, call("add", {"a": 1, "b": 1}), fail("auth"), say("2"))
    hooks(host, control("h", "error", "handoff"))
    ref = host.write("acme/x")
    async with host.open() as rye:
        thread = await rye.start(ref)
        done = await thread.result()
        assert (done.ended, done.text) == ("completed", "2")
        first = await thread.record()
    assert (first.status, first.continuation_thread_id) == ("continued", done.thread_id)


@pytest.mark.parametrize(
    ("wish", "state"),
    [("fail", "error"), ("abort", "error"), ("continue", "completed"), ("skip", "completed"),
     ("retry", "completed")],
)  # fmt: skip
async def test_a_tools_error_is_steered(tmp_path: Path, wish: str, state: str) -> None:
    host = ScriptedHost(tmp_path, call("explode"), say("It broke."))
    hooks(host, control("h", "error", wish, condition={"path": "error.tool", "value": "explode"}))
    done = await host.run(host.write("acme/x"))
    assert done.ended == state
    if state == "error":
        assert "h" in done.error
        assert len(host.model.requests) == 1


async def test_a_tools_error_is_handed_off(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, call("explode"), say("Done by the next."))
    hooks(host, control("h", "error", "handoff"))
    done = await host.run(host.write("acme/x"))
    assert (done.ended, done.text) == ("completed", "Done by the next.")
    chain = await host.store().registry.get_chain(done.thread_id)
    assert [one.status for one in chain] == ["continued", "completed"]


@pytest.mark.parametrize("wish", ["fail", "abort"])
async def test_a_step_is_the_last_where_a_hook_says_so(tmp_path: Path, wish: str) -> None:
    host = ScriptedHost(tmp_path, *(call("add", {"a": 1, "b": n}) for n in range(5)))
    at_two = {"path": "cost.turns", "op": "gte", "value": 2}
    hooks(host, control("enough", "after_step", wish, condition=at_two))
    done = await host.run(host.write("acme/x"))
    assert (done.ended, done.cost.turns) == ("error", 2)
    assert "enough" in done.error


async def test_a_step_hands_off(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, call("add", {"a": 1, "b": 1}), say("2"))
    hooks(host, control("over", "after_step", "handoff"))
    done = await host.run(host.write("acme/x"))
    assert (done.ended, done.text) == ("completed", "2")


@pytest.mark.parametrize("event", ["thread_started", "context_window_pressure",
                                   "context_limit_reached"])  # fmt: skip
async def test_other_events_end_a_thread_too(tmp_path: Path, event: str) -> None:
    used = {"context_window_pressure": 850, "context_limit_reached": 950}.get(event, 10)
    answers = iter([call("add", {"a": 1, "b": 1}, usage=Usage(used, 0)), say("on and on")])
    model = FunctionProvider(
        lambda _: next(answers), provider_id="scripted",
        capabilities=Capabilities(context_tokens=1000, max_output_tokens=50),
    )  # fmt: skip
    host = ScriptedHost(tmp_path, model=model)
    hooks(host, control("no", event, "abort"))
    done = await host.run(host.write("acme/x", "Long words. " * 400))
    assert (done.ended, done.code) == ("error", "stopped")
    assert "the hook no" in done.error
    assert len(model.requests) == (0 if event == "thread_started" else 1)
    assert len(await host.store().registry.list_threads()) == 1


async def test_a_hook_refuses_outputs(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, call("rye_directive_return", {"total": 3}))
    hooks(host, control("no", "directive_return", "fail",
                         condition={"path": "outputs.total", "op": "lt", "value": 5}))  # fmt: skip
    done = await host.run(host.write("acme/x", outputs=TOTAL))
    assert (done.ended, done.code, done.outputs) == ("error", "validation", {})
    assert "The hook no refuses the outputs" in done.error


async def test_who_goes_on_has_room_in_a_small_context(tmp_path: Path) -> None:
    @tool
    def page(number: int) -> str:
        """A page."""
        return f"{number} of many words. " * 90

    asked = 0

    def model(request: Any) -> Any:
        nonlocal asked
        asked += 1
        size = sum(len(repr(one)) for one in request.messages) // 4
        if asked > 12:
            return say("Read.", usage=Usage(size, 5))
        return call("page", {"number": asked}, usage=Usage(size, 20))

    small = Capabilities(context_tokens=3_000, max_output_tokens=1_000)
    provider = FunctionProvider(model, provider_id="scripted", capabilities=small)
    host = ScriptedHost(tmp_path, model=provider, tools=[page])
    done = await host.run(host.write("acme/x"))
    assert (done.ended, done.text) == ("completed", "Read."), done.error
    *before, _ = await host.store().registry.get_chain(done.thread_id)
    assert before
    assert all(one.cost.turns >= 2 for one in before)


# Limits


async def test_a_limit_hook_hands_off_for_no_fresh_turns(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, *(call("add", {"a": n, "b": n}) for n in range(9)))
    noting(host)
    turns = {"path": "limit_code", "value": "turns_exceeded"}
    hooks(
        host, control("go", "limit", "handoff", condition=turns),
        note("see", "limit", layer=4, params={"max": "${current_max}", "at": "${current_value}"}),
    )  # fmt: skip
    done = await host.run(host.write("acme/x", limits='turns="2"'))
    assert (done.ended, done.code, done.cost.turns) == ("error", "turns_exceeded", 2)
    assert notes(host) == [{"hook": "see", "max": 2, "at": 2}]
    assert len(host.model.requests) == 2
    assert len(await host.store().registry.list_threads()) == 1


async def test_a_handoff_at_a_limit_that_stays_met_ends(tmp_path: Path) -> None:
    host = ScriptedHost(
        tmp_path, *(call("add", {"a": n, "b": n}, usage=Usage(900, 100)) for n in range(50))
    )
    hooks(host, control("go", "limit", "handoff"))
    limits = 'tokens="8000" spawns="0"'
    done = await host.run(host.write("acme/x", "Long words. " * 400, limits=limits))
    assert (done.ended, done.code) == ("error", "tokens_exceeded")
    rows = await host.store().registry.list_threads()
    *before, last = (one.status for one in reversed(rows))
    assert (set(before), last) == ({"continued"}, "error")
    assert len(rows) <= 5  # each one got an answer within what the one before had left


async def test_a_limit_of_time_asks_its_hooks(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, call("add", {"a": 1, "b": 1}), hang())
    hooks(host, control("see", "limit", "fail"))
    done = await host.run(host.write("acme/x", limits='duration_seconds="0.3"'))
    assert (done.ended, done.code) == ("error", "duration_exceeded")
    assert ran(host, done.thread_id) == [("see", "limit", True)]


async def test_context_pressure_and_the_handoff_at_its_end(tmp_path: Path) -> None:
    usages = (Usage(100, 0), Usage(820, 0), Usage(950, 0), Usage(100, 0))
    answers = iter([
        *(call("add", {"a": n, "b": 1}, usage=used) for n, used in enumerate(usages[:3])),
        say("Done.", usage=usages[3]),
    ])  # fmt: skip
    model = FunctionProvider(
        lambda _: next(answers), provider_id="scripted",
        capabilities=Capabilities(context_tokens=1000, max_output_tokens=50),
    )  # fmt: skip
    host = ScriptedHost(tmp_path, model=model)
    noting(host)
    hooks(host, *(
        note(one, one, params={"used": "${used}"})
        for one in ("context_window_pressure", "context_limit_reached", "thread_continued")
    ))  # fmt: skip
    done = await host.run(host.write("acme/x", "Long words. " * 400))
    assert (done.ended, done.text) == ("completed", "Done."), done.error
    assert [(one["hook"], one["used"]) for one in notes(host)][:2] == [
        ("context_window_pressure", 0.821), ("context_limit_reached", 0.951),  # with the results
    ]  # fmt: skip
    assert notes(host)[2]["hook"] == "thread_continued"


async def test_who_has_overspent_is_not_handed_off(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, call("add", {"a": 1, "b": 1}, usage=Usage(90_000, 1)))
    hooks(host, control("go", "limit", "handoff"))
    done = await host.run(host.write("acme/x", limits='tokens="200000"'))
    assert (done.ended, done.code) == ("error", "tokens_exceeded")
    assert "more than was held" in done.error
    assert len(await host.store().registry.list_threads()) == 1


# Streams


@pytest.mark.parametrize(("wish", "state"), [("retry", "completed"), ("fail", "error")])
async def test_an_answer_that_breaks_off_is_steered(tmp_path: Path, wish: str, state: str) -> None:
    broken = say("Half an ans") + fail("bad_request", status=400)
    host = ScriptedHost(tmp_path, call("add", {"a": 1, "b": 1}), broken, say("The whole answer."))
    hooks(host, control("h", "error", wish))
    done = await host.run(host.write("acme/x"))
    assert done.ended == state
    assert done.cost.turns == 2
    assert ran(host, done.thread_id) == [("h", "error", True)]
    if state == "completed":
        assert done.text == "The whole answer."
        assert "Half an ans" not in repr(host.model.requests[-1].messages)
    charges = await host.store().ledger.charges(done.thread_id)
    assert [one.mark for one in charges][1] in ("estimated", "counted")
    assert charges[1].actual.tokens > 0  # what was streamed was paid for
    told = host.records(done.thread_id, "token_delta")
    assert any("Half an ans" in one.payload["text"] for one in told)
