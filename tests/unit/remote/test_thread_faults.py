"""Threads on a node behind a network that loses, cuts, repeats and changes."""

import os
from collections.abc import Iterator
from pathlib import Path

import anyio.to_thread
import pytest

from ryecore.display.text import dollars
from tests.lying import lie
from tests.proxy import Fault, Hold, Proxy
from tests.remotes import connect
from tests.served_node import ServedNode, served_node
from tests.thread_host import COST, FACTORY, PlannedWorkspace
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_walkers")]

_CEILING = 100 * COST
_LIMITS = {"spend": _CEILING / 1e8, "tokens": 1_000_000}


@pytest.fixture
def planned(workspace: Workspace) -> PlannedWorkspace:
    return PlannedWorkspace(workspace)


@pytest.fixture
def served(planned: PlannedWorkspace) -> Iterator[ServedNode]:
    with served_node(planned.root / "node", "--deps", FACTORY, environ=planned.environ) as node:
        yield node


@pytest.fixture
def proxy(planned: PlannedWorkspace, served: ServedNode) -> Iterator[Proxy]:
    """The network before the node that the workspace names `gpu`."""
    with Proxy(int(served.url.rpartition(":")[2])) as network:
        connect(planned.workspace, served, url=network.url, timeout_s=1)
        yield network


@pytest.mark.parametrize(
    "faults",
    [
        {"POST /execute": Fault(lose_request=True)},
        {"POST /execute": Fault(lose_answer=True)},
        {"POST /execute": Fault(repeat=True)},
        {"POST /execute": Fault(cut_request_bytes=20)},
        {"POST /(snapshots|objects|execute)": Fault(cut_answer_bytes=30)},
        {"GET /runs/": Fault(cut_answer_bytes=10), "GET /runs": Fault(lose_request=True)},
        {"GET /objects/": Fault(cut_answer_bytes=400)},
        {"GET /runs/": Fault(answer=b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 2\r\n\r\nno")},
    ],
)
async def test_a_run_is_carried_out_once_over_a_bad_network(
    planned: PlannedWorkspace, proxy: Proxy, faults: dict[str, Fault]
) -> None:
    ref = planned.write("work", ["mark", {"text": "once"}])
    for pattern, fault in faults.items():
        proxy.fail(pattern, fault)
    async with planned.workspace.open() as rye:
        done = await rye.execute(ref, thread="fork", target="remote:gpu")
        assert (done.status, done.error) == ("success", None)
        account = await rye.threads.account(done.thread_id)
        assert account.own.spend_microcents == 2 * COST
        assert (await rye.threads.verify(done.thread_id)).problems == ()
    assert (planned.root / "marks").read_text() == "once\n"


async def test_a_run_goes_on_while_the_network_is_down(
    planned: PlannedWorkspace, proxy: Proxy
) -> None:
    ref = planned.write("long", ["gate", {"name": "long"}])
    async with planned.workspace.open() as rye:
        thread = await rye.start(ref, target="remote:gpu")
        await planned.begun("long")
        with proxy.down():
            await anyio.to_thread.run_sync(proxy.wait_for_refusal)
            planned.allow("long")
            assert await thread.status() == "running"
        done = await thread.result()
        assert (done.ended, done.cost.spend_microcents) == ("completed", 2 * COST)


async def test_what_is_charged_in_full_is_corrected_by_a_late_report(
    planned: PlannedWorkspace, proxy: Proxy
) -> None:
    ref = planned.write("lost", ["gate", {"name": "lost"}])
    async with planned.workspace.open() as rye:
        thread = await rye.start(ref, limits=_LIMITS, target="remote:gpu")
        await planned.begun("lost")
        account = await rye.threads.account(thread.thread_id)
        assert account.held.spend_microcents == _CEILING
        with proxy.down():
            await thread.cancel()
            done = await thread.result()
            assert done.ended == "cancelled"
            assert "The node gpu has not confirmed that" in str(done.error)
            account = await rye.threads.account(thread.thread_id)
            assert account.own.spend_microcents == _CEILING
            assert [one.mark for one in await rye.threads.charges(thread.thread_id)] == ["assumed"]
            shown = await rye.threads.show(thread.thread_id)
            assert shown.assumed_spend_microcents == _CEILING
            assert "of the spend; the real cost isn't known" in str(shown)
    spent = _CEILING
    with anyio.fail_after(30):
        while spent != COST:  # the first one tells the node, which then reports
            async with planned.workspace.open() as rye:  # one Rye asks every five seconds
                await rye.threads.wait(thread.thread_id)
                spent = (await rye.threads.account(thread.thread_id)).own.spend_microcents
    async with planned.workspace.open() as rye:
        report = await rye.threads.show(thread.thread_id)
        assert report.status == "cancelled"
        assert report.record.cost.spend_microcents == COST
        proved = await rye.threads.verify(thread.thread_id)
        assert (proved.ok, proved.problems) == (True, ())
        assert proved.node is not None
        other = await rye.execute(planned.write("other"), thread="fork", target="remote:gpu")
        of_other = (await rye.threads.show(str(other.to_dict()["thread_id"]))).folder
        kept = of_other / "node/report.json"
        (report.folder / "node/report.json").write_bytes(kept.read_bytes())
        swapped = await rye.threads.verify(thread.thread_id)
        assert not swapped.ok
        assert "another run" in str(swapped.problems)


async def test_a_tool_that_was_stopped_unheard_is_stopped_later(
    planned: PlannedWorkspace, proxy: Proxy
) -> None:
    pipe = planned.root / "pipe"
    os.mkfifo(pipe)
    ref = planned.workspace.shell("acme/stay", f"echo $$ > {pipe}; exec sleep 1000")
    async with planned.workspace.open() as rye:
        thread_id = (await rye.execute(ref, async_=True, target="remote:gpu")).data["thread_id"]
        pid = int(await anyio.to_thread.run_sync(pipe.read_text))
        with proxy.down():
            await rye.threads.cancel(thread_id)
            report = await rye.threads.wait(thread_id)
            assert (report.status, "has not confirmed that" in str(report.error)) == (
                "cancelled",
                True,
            )
        os.kill(pid, 0)
    with anyio.fail_after(30):
        while Path(f"/proc/{pid}").exists():
            async with planned.workspace.open() as rye:  # one Rye asks every five seconds
                await rye.threads.wait(thread_id)


async def test_a_changed_answer_is_not_believed(planned: PlannedWorkspace, proxy: Proxy) -> None:
    ref = planned.write("work", ["mark", {"text": "once"}])
    changed = Fault(change_answer=lambda answer: answer.replace(b"completed", b"cancelled"))
    proxy.fail("(POST /execute|GET /runs/[^ ]*wait_s)", changed, times=100)
    async with planned.workspace.open() as rye:
        done = await rye.execute(ref, thread="fork", limits=_LIMITS, target="remote:gpu")
        assert (done.status, done.code) == ("error", "remote_untrusted")
        account = await rye.threads.account(done.thread_id)
        assert account.own.spend_microcents == _CEILING


async def test_a_refused_run_costs_nothing(
    planned: PlannedWorkspace, proxy: Proxy, served: ServedNode
) -> None:
    served.allow(planned.workspace.key, max_spend_microcents=COST)
    ref = planned.write("work", ["mark", {"text": "never"}])
    async with planned.workspace.open() as rye:
        done = await rye.execute(ref, thread="fork", limits=_LIMITS, target="remote:gpu")
        assert (done.status, done.code) == ("error", "remote")
        more, wanted = dollars(COST), dollars(_CEILING)
        assert f"spend {more} more here, and this run may spend {wanted}." in str(done.error)
        account = await rye.threads.account(done.thread_id)
        assert account.own.spend_microcents == account.held.spend_microcents == 0
    assert not (planned.root / "marks").exists()


async def test_what_is_refused_when_it_is_sent_again_costs_nothing(
    planned: PlannedWorkspace, proxy: Proxy, served: ServedNode
) -> None:
    served.allow(planned.workspace.key, max_spend_microcents=COST)
    ref = planned.write("work", ["mark", {"text": "never"}])
    asked = Hold()
    proxy.fail("POST /execute", Fault(lose_request=True), times=100)
    proxy.fail("GET /runs/", Fault(hold_request=asked), times=2)
    async with planned.workspace.open() as rye:
        thread = await rye.start(ref, limits=_LIMITS, target="remote:gpu")
        await anyio.to_thread.run_sync(asked.reached)
        proxy.stop_failing()
        asked.release()
        done = await thread.result()
        assert (done.status, done.code) == ("error", "remote")
        account = await rye.threads.account(done.thread_id)
        assert account.own.spend_microcents == account.held.spend_microcents == 0
        assert [one.mark for one in await rye.threads.charges(done.thread_id)] == ["counted"]
    assert not (planned.root / "marks").exists()


async def test_a_project_may_change_before_the_node_has_it(
    planned: PlannedWorkspace, proxy: Proxy
) -> None:
    ref = planned.write("work", ["mark", {"text": "once"}])
    offered = Hold()
    proxy.fail("POST /snapshots", Fault(hold_request=offered))
    async with planned.workspace.open() as rye:
        thread = await rye.start(ref, target="remote:gpu")
        await anyio.to_thread.run_sync(offered.reached)
        planned.write("other", ["mark", {"text": "twice"}])
        planned.write("work", ["mark", {"text": "once"}], ["mark", {"text": "again"}])
        offered.release()
        done = await thread.result()
        assert (done.status, done.error) == ("success", None)
        proved = await rye.threads.verify(done.thread_id)
        assert (proved.ok, proved.problems) == (True, ())
    assert (planned.root / "marks").read_text() == "once\nagain\n"


async def test_a_late_request_that_runs_in_place_of_a_newer_one_is_followed(
    planned: PlannedWorkspace, served: ServedNode, proxy: Proxy
) -> None:
    connect(planned.workspace, served, url=proxy.url, timeout_s=20)
    ref = planned.write("work", ["mark", {"text": "once"}], ["gate", {"name": "late"}])
    file = planned.workspace.path("directives/acme/work.md")
    late, offered, pushing = Hold(), Hold(), Hold()
    # When it comes at last, its caller has hung up: the first of the two is read to its end.
    proxy.fail("POST /execute", Fault(hold_request=late, repeat=True))
    for hold in (offered, pushing):
        proxy.fail("POST /snapshots", Fault(hold_request=hold))
    async with planned.workspace.open() as rye, planned.workspace.open() as other:
        thread = await rye.start(ref, limits=_LIMITS, target="remote:gpu")
        await anyio.to_thread.run_sync(late.reached)
        proxy.cut()  # so that it is sent again
        await anyio.to_thread.run_sync(offered.reached)
        first = file.read_bytes()
        planned.write("work", ["mark", {"text": "twice"}])
        second = file.read_bytes()
        offered.release()
        await anyio.to_thread.run_sync(pushing.reached)  # for the new request
        file.write_bytes(first)
        await other.remotes.push()
        file.write_bytes(second)
        late.release()
        await planned.begun("late")
        pushing.release()
        planned.allow("late")
        done = await thread.result()
        assert (done.status, done.error) == ("success", None)
        account = await rye.threads.account(done.thread_id)
        assert account.own.spend_microcents == 3 * COST
        proved = await rye.threads.verify(done.thread_id)
        assert (proved.ok, proved.problems) == (True, ())
    assert (planned.root / "marks").read_text() == "once\n"


async def test_a_run_of_which_the_node_had_another_request_may_have_spent_its_budget(
    planned: PlannedWorkspace, proxy: Proxy, served: ServedNode
) -> None:
    ref = planned.write("work", ["mark", {"text": "never"}])
    other = {"type": "other_request", "title": "Another one had this id.", "status": 409}
    proxy.fail("POST /execute", lie(served.identity.key, lambda _: other, status=409))
    async with planned.workspace.open() as rye:
        done = await rye.execute(ref, thread="fork", limits=_LIMITS, target="remote:gpu")
        assert (done.status, done.code) == ("error", "remote")
        account = await rye.threads.account(done.thread_id)
        assert account.own.spend_microcents == _CEILING


async def test_a_run_that_began_before_its_request_failed_is_followed(
    planned: PlannedWorkspace, proxy: Proxy, served: ServedNode
) -> None:
    ref = planned.write("work", ["mark", {"text": "once"}])
    proxy.fail("POST /execute", Fault(), times=1)  # which lacks the project yet
    failed = {"type": "failed", "title": "The node failed at this request.", "status": 500}
    proxy.fail("POST /execute", lie(served.identity.key, lambda _: failed, status=500))
    async with planned.workspace.open() as rye:
        done = await rye.execute(ref, thread="fork", limits=_LIMITS, target="remote:gpu")
        assert (done.status, done.error) == ("success", None)
        account = await rye.threads.account(done.thread_id)
        assert account.own.spend_microcents == 2 * COST
    assert (planned.root / "marks").read_text() == "once\n"


async def test_a_run_whose_repeated_request_is_refused_is_followed(
    planned: PlannedWorkspace, proxy: Proxy, served: ServedNode
) -> None:
    ref = planned.write("work", ["mark", {"text": "once"}])
    late = {"type": "clock", "title": "It was signed at another time.", "status": 401}
    proxy.fail("POST /execute", Fault(), times=1)  # which lacks the project yet
    proxy.fail("POST /execute", Fault(lose_answer=True), times=1)  # the run begins
    proxy.fail("POST /execute", lie(served.identity.key, lambda _: late, status=401))
    async with planned.workspace.open() as rye:
        done = await rye.execute(ref, thread="fork", limits=_LIMITS, target="remote:gpu")
        assert (done.status, done.error) == ("success", None)
        account = await rye.threads.account(done.thread_id)
        assert account.own.spend_microcents == 2 * COST
    assert (planned.root / "marks").read_text() == "once\n"


async def test_a_run_goes_on_while_a_clock_is_wrong(
    planned: PlannedWorkspace, served: ServedNode, proxy: Proxy
) -> None:
    ref = planned.write("work", ["gate", {"name": "there"}])
    late = {"type": "clock", "title": "It was signed at another time.", "status": 401}
    async with planned.workspace.open() as rye:
        thread = await rye.start(ref, target="remote:gpu")
        await planned.begun("there")
        proxy.fail("GET /runs/[^/]*$", lie(served.identity.key, lambda _: late, status=401))
        proxy.cut()  # the request that waits for the end is made again
        planned.allow("there")
        done = await thread.result()
    assert (done.ended, done.cost.spend_microcents) == ("completed", 2 * COST)


async def test_files_that_cant_come_home_at_the_end_come_when_somebody_looks(
    planned: PlannedWorkspace, proxy: Proxy
) -> None:
    ref = planned.write("work", ["mark", {"text": "there"}])
    gone = Fault(change_answer=lambda answer: answer.replace(b"there", b"where"))
    proxy.fail("GET /objects/", gone)
    async with planned.workspace.open() as rye:
        done = await rye.execute(ref, thread="fork", target="remote:gpu")
        assert done.status == "success"
        folder = (await rye.threads.show(done.thread_id)).folder
        assert (await rye.threads.verify(done.thread_id)).problems == ()
        await rye.threads.show(done.thread_id)
        sent = proxy.count("GET /objects/")
    (folder / "node/transcript.jsonl").unlink()  # at home: this is no fault of the network
    async with planned.workspace.open() as rye:
        assert not (await rye.threads.verify(done.thread_id)).ok
    assert proxy.count("GET /objects/") == sent


async def test_a_run_that_is_stopped_while_it_is_pushed_costs_nothing(
    planned: PlannedWorkspace, proxy: Proxy
) -> None:
    ref = planned.write("work", ["mark", {"text": "never"}])
    pushing = Hold()
    proxy.fail("POST /objects", Fault(hold_request=pushing))
    async with planned.workspace.open() as rye:
        thread = await rye.start(ref, limits=_LIMITS, target="remote:gpu")
        await anyio.to_thread.run_sync(pushing.reached)
        await thread.cancel()
        done = await thread.result()
        assert done.ended == "cancelled"
        account = await rye.threads.account(done.thread_id)
        assert account.own.spend_microcents == account.held.spend_microcents == 0
        assert [one.mark for one in await rye.threads.charges(done.thread_id)] == ["counted"]
    assert not (planned.root / "marks").exists()


async def test_a_run_of_a_node_that_was_never_reached_costs_nothing(
    planned: PlannedWorkspace, served: ServedNode
) -> None:
    connect(planned.workspace, served, timeout_s=1)
    served.process.kill()
    served.process.wait()
    ref = planned.write("work", ["mark", {"text": "never"}])
    async with planned.workspace.open() as rye:
        thread = await rye.start(ref, limits=_LIMITS, target="remote:gpu")
        await thread.cancel()
        done = await thread.result()
        assert done.ended == "cancelled"
        account = await rye.threads.account(done.thread_id)
        assert account.own.spend_microcents == account.held.spend_microcents == 0
