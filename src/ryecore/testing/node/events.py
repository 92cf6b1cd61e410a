"""Cases: the events of runs."""

import json
from typing import Any, Final

from ryecore.testing.conformance.bench import check, equal
from ryecore.testing.node.bench import NodeCases, NodeUnderTest, Peer, Tree, node_case
from ryecore.testing.node.wire import NodeAnswer

__all__ = ["EventCases"]

_NAMES: Final = {"status", "run", "tree"}


class EventCases(NodeCases):
    """What a caller hears of its runs, and what it doesn't."""

    @node_case
    def test_events_have_ids_and_end_with_the_run(self, node: NodeUnderTest) -> None:
        """Each has a higher id than the one before; the last status is the run's own."""
        peer, thread_id = _running(node, "sleep 0.5; echo '{}'")
        live = _events(peer, thread_id)
        later = _events(peer, thread_id)
        equal(later, live, "the events that are read again")
        ids = [one["id"] for one in live]
        check(ids == sorted(set(ids)) and ids[0] >= 1, f"The ids aren't in order: {ids}")
        check({one["event"] for one in live} <= _NAMES, f"An event has another name: {live}")
        statuses = [one["data"]["status"] for one in live if one["event"] == "status"]
        check(set(statuses[:-1]) <= {"running"}, f"The statuses aren't in order: {statuses}")
        equal(statuses[-1], "completed", "the last status")

    @node_case
    def test_events_resume_behind_an_id(self, node: NodeUnderTest) -> None:
        """`Last-Event-ID` leads to what is behind it, once each; anything else is refused."""
        peer, thread_id = _running(node, "echo '{}'")
        found = _events(peer, thread_id)
        for at in range(len(found) + 1):
            after = found[at - 1]["id"] if at else 0
            equal(_events(peer, thread_id, str(after)), found[at:], f"the events behind {after}")
        equal(_events(peer, thread_id, str(10**12)), [], "the events behind the last one")
        for wrong in ("x", "-1", "1.5", "9" * 40, "1 OR 1=1", "\u0661".encode().decode("latin-1")):
            answer = peer.get(f"/runs/{thread_id}/events", Last_Event_ID=wrong)
            check(answer.status in (400, 422), f"Last-Event-ID {wrong!r} is {answer.status}.")

    @node_case
    def test_a_broken_off_stream_leaves_the_run_alone(self, node: NodeUnderTest) -> None:
        """Who stops reading misses nothing, and stops nothing."""
        peer, thread_id = _running(node, "sleep 1; echo '{}'")
        for _ in range(5):
            begun = peer.send("GET", f"/runs/{thread_id}/events", stream=True, first_bytes=0)
            equal(begun.status, 200, "the status")
        equal(peer.state(thread_id, wait_s=25)["status"], "completed", "the run")
        last = _events(peer, thread_id)[-1]
        equal(last["data"]["status"], "completed", "the last event")

    @node_case
    def test_events_are_the_callers_own(self, node: NodeUnderTest) -> None:
        """Runs of one id have each their own events, and a guessed id has none."""
        (first, thread_id), (second, other_id) = (_running(node, "echo '{}'") for _ in range(2))
        equal(thread_id, other_id, "the ids")
        for peer in (first, second):
            peer.state(thread_id, wait_s=25)
        counts = {len(_events(peer, thread_id)) for peer in (first, second)}
        equal(len(counts), 1, "how many numbers of events there are")
        stranger = Peer.allowed(node)
        for name in (thread_id, "none", "..", "%2e%2e"):
            answer = stranger.get(f"/runs/{name}/events")
            stranger.refused(answer, "not_found", 404)


def _running(node: NodeUnderTest, script: str) -> tuple[Peer, str]:
    peer = Peer.allowed(node)
    tree = Tree(peer.key)
    ref = tree.shell("acme/tool", script)
    peer.execute(peer.execute_body(peer.push(tree), ref, "heard", wait_s=0))
    return peer, "heard"


def _events(peer: Peer, thread_id: str, after: str | None = None) -> list[dict[str, Any]]:
    more = {} if after is None else {"Last-Event-ID": after}
    answer = peer.send("GET", f"/runs/{thread_id}/events", more=more, stream=True)
    return _read(answer)


def _read(answer: NodeAnswer) -> list[dict[str, Any]]:
    equal(answer.status, 200, f"the status of events: {answer.body[:300]!r}")
    media_type = answer.headers["content-type"].partition(";")[0]
    equal(media_type, "text/event-stream", "the media type of events")
    check(answer.is_whole, "The stream broke off.")
    events = []
    for block in answer.body.decode().split("\n\n"):
        fields = dict(
            line.split(": ", 1) for line in block.splitlines() if not line.startswith(":")
        )
        if fields:
            equal(set(fields), {"id", "event", "data"}, f"the fields of {block[:200]!r}")
            data = json.loads(fields["data"])
            events.append({"id": int(fields["id"]), "event": fields["event"], "data": data})
    return events
