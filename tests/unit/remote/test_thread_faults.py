"""Threads on a node behind a network that loses, cuts, repeats and changes."""

from collections.abc import Iterator

import anyio.to_thread
import pytest

from ryecore.display.text import dollars
from tests.proxy import Fault, Proxy
from tests.remotes import connect
from tests.served_node import ServedNode, served_node
from tests.thread_host import COST, FACTORY, PlannedWorkspace
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio

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
