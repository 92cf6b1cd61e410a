"""`rye.map`: an item for each of many rows, in order, within a budget, resumed and retried."""

import json
from collections.abc import Awaitable, Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import pytest

from ryecore import CallContext, CancelToken, Limits, RyeError
from ryecore.errors import InputError, StateError, ThreadNotFound
from ryecore.llm import LlmRequest, Price
from ryecore.llm.result import Usage
from ryecore.testing import Turn, fail, say
from tests.scripted_host import ScriptedHost
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

USED = Usage(100, 10)
COST = 100 * 300 + 10 * 1500
"""What `USED` costs at 3 and 15 USD per million tokens, in microcents."""

INPUTS = '<input name="text" required="true"/><input name="times" type="integer" default="1"/>'


def _text(request: LlmRequest) -> str:
    """The row's text, which stands at the end of the directive's body."""
    return request.messages[0].text.rpartition("label ")[2].split()[0]


class Host(ScriptedHost):
    """A host whose model answers each row with its text, unless `broken` names it."""

    def __init__(self, root: Path, **deps: Any) -> None:
        self.asked: list[str] = []
        self.broken: set[str] = set()
        self.before: Callable[[str], Awaitable[None]] | None = None
        super().__init__(
            root,
            model=self._answer,
            price_of=lambda *_: Price(input="3", output="15"),
            unpriced_models=frozenset(),
            **deps,
        )
        self.ref = self.write("ds/label", "label {input:text}", permissions="", inputs=INPUTS)

    async def _answer(self, request: LlmRequest) -> Turn:
        text = _text(request)
        self.asked.append(text)
        await anyio.lowlevel.checkpoint()
        if self.before is not None:
            await self.before(text)
        if text in self.broken:
            return fail("content_filter", "no")
        return say(f"label of {text}", usage=USED)


def rows(count: int) -> list[dict[str, object]]:
    return [{"text": f"t{index}"} for index in range(count)]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


async def test_results_stand_in_the_order_of_the_rows_with_their_costs(host: Host) -> None:
    async def later_for_the_first(text: str) -> None:
        if text == "t0":
            await anyio.wait_all_tasks_blocked()

    host.before = later_for_the_first
    async with host.open() as rye:
        done = await rye.map(host.ref, rows(12), concurrency=4)
        kept = await rye.map.show(done.run_id)
        listed = await rye.graphs.list()
    assert host.asked[0] == "t0"
    assert done.status == "completed"
    assert done.outputs == [f"label of t{index}" for index in range(12)]
    assert [one.row for one in done] == list(range(12))
    assert done[3].inputs == {"text": "t3"}
    assert done[3].cost_usd == Decimal(COST).scaleb(-8)
    assert done.cost_usd == 12 * done[3].cost_usd
    assert len({one.thread_id for one in done.results}) == 12
    assert done.failed == ()
    assert kept == done
    assert [one.thread_id for one in listed] == [done.run_id]


async def test_a_hundred_rows_share_a_small_budget(host: Host) -> None:
    """More than the default of spawns, each of which could cost more than there is."""
    with anyio.fail_after(60):
        async with host.open() as rye:
            done = await rye.map(
                host.ref, rows(100), limits=Limits(spend_usd=Decimal("0.05")), concurrency=20
            )
    assert done.failed == ()
    assert done.spend_microcents == 100 * COST <= done.limit_microcents == 5_000_000


async def test_rows_fail_alone_and_only_they_are_retried(host: Host) -> None:
    host.broken = {"t1", "t3"}
    async with host.open() as rye:
        done = await rye.map(host.ref, rows(5), concurrency=2, limits={"spend": 0.05})
        assert done.status == "completed_with_errors"
        assert [one.row for one in done.failed] == [1, 3]
        assert done.outputs == ["label of t0", None, "label of t2", None, "label of t4"]
        assert "row 1" in str(done)
        assert done[1].error is not None
        host.asked.clear()
        host.broken = {"t3"}
        again = await done.retry_failed()
        assert sorted(host.asked) == ["t1", "t3"]
        assert [one.status for one in again] == [*["completed"] * 3, "failed", "completed"]
        host.broken = set()
        whole = await again.retry_failed()
        assert host.asked[2:] == ["t3"]
        assert whole.outputs == [f"label of t{index}" for index in range(5)]
        assert await whole.retry_failed() is whole
        assert whole.cost_usd == sum(one.cost_usd for one in whole)
        spent = [await rye.graphs.show(one.run_id) for one in (done, again, whole)]
    assert whole.spend_microcents == sum(one.cost.spend_microcents for one in spent)
    assert whole.spend_microcents >= 5 * COST
    assert whole.run_id != again.run_id != done.run_id


async def test_a_retry_has_what_is_left_of_the_limits(host: Host) -> None:
    async with host.open() as rye:
        with anyio.fail_after(30):
            done = await rye.map(host.ref, rows(30), limits={"spend": 10 * COST / 1e8})
            again = await done.retry_failed()
            assert 0 < len(again.failed) < 30
            assert again.spend_microcents <= 10 * COST
            whole = await again.retry_failed(limits={"spend": 0.05})
    assert whole.failed == ()
    assert whole.spend_microcents == 30 * COST


async def test_a_map_that_is_cancelled_is_resumed_with_the_rows_that_are_left(host: Host) -> None:
    token = CancelToken()

    async def stop(text: str) -> None:
        if text == "t3":
            token.cancel()
            await anyio.sleep_forever()

    host.before = stop
    async with host.open() as rye:
        with anyio.fail_after(30):
            done = await rye.map(
                host.ref, rows(6), concurrency=1, ctx=CallContext(cancellation=token)
            )
        assert done.status == "cancelled"
        assert [one.status for one in done] == [
            *["completed"] * 3, "interrupted", "pending", "pending",
        ]  # fmt: skip
        host.before = None
        host.asked.clear()
        with pytest.raises(StateError, match="whether it took effect is unknown"):
            await rye.map.resume(done.run_id)
        again = await rye.map.resume(done.run_id[:12], rerun=True)
    assert again.status == "completed"
    assert again.outputs == [f"label of t{index}" for index in range(6)]
    assert host.asked == ["t3", "t4", "t5"]


async def test_a_map_whose_task_is_cancelled_ends_and_can_be_resumed(host: Host) -> None:
    reached = anyio.Event()

    async def wait(text: str) -> None:
        if text == "t2":
            reached.set()
            await anyio.sleep_forever()

    host.before = wait
    async with host.open() as rye:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(rye.map, host.ref, rows(4))
                await reached.wait()
                tasks.cancel_scope.cancel()
        host.before = None
        ((run_id,),) = [[one.thread_id for one in await rye.graphs.list()]]
        done = await rye.map.resume(run_id, rerun=True)
    assert done.outputs == [f"label of t{index}" for index in range(4)]


async def test_all_rows_are_checked_before_one_runs(host: Host) -> None:
    wrong: list[Any] = [
        {"text": "fine"}, {"txt": "a"}, 3, {"text": "b", "times": "often"}, {"text": {1, 2}},
        {}, {}, {},
    ]  # fmt: skip
    async with host.open() as rye:
        with pytest.raises(InputError) as refused:
            await rye.map(host.ref, wrong)
        assert await rye.graphs.list() == ()
    said = str(refused.value)
    assert "7 of 8 rows do not fit directive:ds/label" in said
    assert "row 1: text: required, and missing; txt: unknown" in said
    assert "row 2: A row must be a mapping, not int" in said
    assert "row 3: times: 'often' is not an integer" in said
    assert "row 4: text: it isn't JSON" in said
    assert "… and 2 more" in said
    assert "\nValid inputs: text (string, required)" in said
    assert host.asked == []


class Frame:
    """As of pandas: iterating over it gives the names of its columns."""

    def __iter__(self) -> Iterator[str]:
        return iter(["text"])

    def to_dict(self, orient: str) -> list[dict[str, str]]:
        return [{"text": "a"}]


async def test_a_data_frame_is_refused_with_the_way_to_its_rows(host: Host) -> None:
    frame: Any = Frame()
    async with host.open() as rye:
        with pytest.raises(InputError, match="not a Frame") as refused:
            await rye.map(host.ref, frame)
    assert 'df.to_dict("records")' in refused.value.next_step


@pytest.mark.parametrize("none", [[], (), iter(()), {"text": "a"}, "text", 3, None])
async def test_what_are_no_rows_is_refused(host: Host, none: Any) -> None:
    async with host.open() as rye:
        with pytest.raises(InputError, match=r"There are no rows|Rows are a list of dicts, not a"):
            await rye.map(host.ref, none)


@pytest.mark.parametrize("wrong", [0, -1, 1001, True, 2.0, "4"])
async def test_a_concurrency_that_is_none_is_refused(host: Host, wrong: Any) -> None:
    async with host.open() as rye:
        with pytest.raises(InputError, match="not a whole number from 1 to 1,000"):
            await rye.map(host.ref, rows(1), concurrency=wrong)


async def test_a_tool_is_mapped_and_fails_alone(workspace: Workspace) -> None:
    ref = workspace.python(
        "acme/half", "def execute(params, project):\n    return 12 // params['n']"
    )
    async with workspace.open() as rye:
        done = await rye.map(ref, [{"n": 1}, {"n": 0}, {"n": 4}])
    assert [one.output for one in done] == [12, None, 3]
    assert done[1].error is not None
    assert "ZeroDivisionError" in done[1].error
    assert done.cost_usd == 0


async def test_an_item_that_was_altered_is_refused_and_ends_a_map(workspace: Workspace) -> None:
    """Before the first row by its check, and between rows as any call would be."""
    ref = workspace.python(
        "acme/change",
        "from pathlib import Path\n"
        "def execute(params, project):\n"
        f"    path = Path({str(workspace.path('tools/acme/change.py'))!r})\n"
        "    path.write_text(path.read_text() + '\\n# more')\n",
    )
    async with workspace.open() as rye:
        done = await rye.map(ref, [{}, {}, {}], concurrency=1)
        assert done.status == "error"
        assert done.error is not None
        assert "was changed after the key" in done.error
        with pytest.raises(RyeError, match="was changed after the key"):
            await rye.map(ref, [{}])


async def test_a_caller_maps_only_what_it_may_execute(host: Host) -> None:
    host.workspace.shell("acme/other", "true")
    model = CallContext(capabilities=frozenset({"rye.execute.directive.ds.*"}))
    async with host.open() as rye:
        with pytest.raises(InputError, match=r"rye\.execute\.tool\.acme\.other"):
            await rye.map("tool:acme/other", [{}], ctx=model)
        done = await rye.map(host.ref, rows(2), ctx=model)
    assert done.status == "completed"


async def test_the_graph_of_maps_has_no_file_and_runs_by_no_other_way(host: Host) -> None:
    async with host.open() as rye:
        with pytest.raises(InputError, match="rye map REF FILE"):
            await rye.graphs.run("tool:rye/map")
        flow = host.write("ds/other", permissions="")
        thread = await rye.execute(flow, thread="fork")
        with pytest.raises(ThreadNotFound):
            await rye.map.show("nothing")
        with pytest.raises(InputError, match="isn't the run of a map"):
            await rye.map.show(thread.thread_id)


async def test_a_map_is_shown_and_resumed_as_a_graph(host: Host) -> None:
    host.broken = {"t1"}
    async with host.open() as rye:
        done = await rye.map(host.ref, rows(3), labels={"tenant": "acme"})
        view = await rye.graphs.show(done.run_id)
        assert not view.is_changed
        assert "directive:ds/label for each of ${state.rows}" in view.render(width=200).plain()
        assert view.record.labels == {"tenant": "acme"}
        host.broken = set()
        again = await rye.graphs.resume(done.run_id, at=0, failed=True)
        assert again.ended == "completed"
        whole = await rye.map.show(again.run_id)
    assert whole.outputs == [f"label of t{index}" for index in range(3)]
    assert host.asked.count("t0") == 1


async def test_a_result_is_written_as_json_and_as_columns(host: Host) -> None:
    async with host.open() as rye:
        done = await rye.map(host.ref, rows(2))
    document = done.to_dict()
    assert document["rows"] == document["rows_completed"] == 2
    assert document["spend"] == 2 * COST / 1e8
    assert done[0]._fields == (
        "row", "status", "output", "error", "cost_usd", "thread_id", "inputs",
    )  # fmt: skip
    assert json.loads(json.dumps(document))["results"][1] == {
        "row": 1,
        "status": "completed",
        "output": "label of t1",
        "error": None,
        "spend": COST / 1e8,
        "thread_id": done[1].thread_id,
        "inputs": {"text": "t1"},
    }
    with pytest.raises(AttributeError):
        done.status = "error"  # type: ignore[misc]


def test_a_blocking_map_returns_rows_that_are_retried(host: Host) -> None:
    host.broken = {"t1"}
    with host.workspace.sync(agent=host.deps) as rye:
        done = rye.map(host.ref, rows(3), concurrency=3)
        assert [one.row for one in done.failed] == [1]
        host.broken = set()
        again = done.retry_failed()
        assert again.outputs == [f"label of t{index}" for index in range(3)]
        assert rye.map.show(again.run_id) == again
