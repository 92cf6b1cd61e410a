"""A run that ended here without the node's report: what it spent was charged in full.

A late report corrects that, and what runs there though it was stopped here is stopped there.

Source: docs/design/remote.md#at-home; decision 72.
"""

from ryecore.policy.budget import Mark
from ryecore.remote.calls import check_report
from ryecore.remote.following import REPORTED, REQUESTED
from ryecore.remote.ports import Node
from ryecore.remote.protocol.models import CancelBody, ExecuteBody, read_answer
from ryecore.remote.protocol.reports import read_report
from ryecore.remote.pull import pull_files
from ryecore.remote.spending import ATTEMPT, TURN
from ryecore.state.model import ThreadRecord
from ryecore.state.store import ThreadStore

__all__ = ["correct", "lacks_report"]


async def lacks_report(store: ThreadStore, record: ThreadRecord) -> bool:
    """Return whether what a run on a node has spent is assumed, because no report came."""
    if record.place is None or not record.ended:
        return False
    charges = await store.ledger.charges(record.thread_id)
    return any(one.mark == "assumed" for one in charges)


async def correct(store: ThreadStore, record: ThreadRecord, node: Node) -> bool:
    """Ask the node for the report of a run that ended here without one.

    Args:
        store: The threads.
        record: The run's row.
        node: The node that it was sent to.

    Returns:
        Whether there is one, and what it cost is charged now.

    Raises:
        RemoteError: The node can't be reached, or what it reports isn't this run's.
    """
    requests: list[ExecuteBody] = []
    async for one in store.records.read(record.thread_id):
        if one.type == REQUESTED:
            requests.append(read_answer(one.payload["body"], ExecuteBody))
        if one.type == REPORTED:
            return False  # a part of what the node reported is assumed there
    if not requests:
        return False
    thread_id = requests[-1].thread_id
    found = await node.state(thread_id)
    if found is not None and found.report is None and record.status in ("cancelled", "killed"):
        found = await node.cancel(thread_id, CancelBody(kill=record.status == "killed"))
    if found is None or found.report is None:
        return False
    report = read_report(found.report, node.key)
    check_report(report, requests, node)
    mark: Mark = "assumed" if report.assumed else "counted"
    await store.ledger.settle(record.thread_id, TURN, ATTEMPT, report.cost.amount, mark=mark)
    await store.registry.set_cost(record.thread_id, report.cost)
    await store.synced()
    await pull_files(node, report, found.report, store.node_files(record.thread_id))
    return True
