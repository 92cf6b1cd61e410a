"""Cases: execution, once under an id, of what is signed, within what the caller may."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from ryecore.lillux.keys import SigningKey
from ryecore.testing.conformance.bench import check, equal
from ryecore.testing.node.bench import (
    NodeCases,
    NodeUnderTest,
    Opener,
    Peer,
    Tree,
    node_case,
    restart_case,
    sha256_of,
)
from ryecore.testing.node.wire import canonical

__all__ = ["RunCases"]

_BEGIN_S: Final = 20.0
_WAITS: Final = "sleep 600"
_RAN: Final = "ran-42"
_SAYS: Final = "echo '{\"said\": \"'ran-$((6*7))'\"}'"  # its text doesn't hold what it says


class RunCases(NodeCases):
    """Runs, their reports, and how they are stopped."""

    @node_case
    def test_a_tool_runs_and_its_report_is_signed(self, node: NodeUnderTest) -> None:
        """The report says what ran for whom, in which snapshot, and how it ended."""
        peer, snapshot, ref = _with_tool(node, "cat")
        body = peer.execute_body(snapshot, ref, "runs/one", parameters={"name": "Ada\x1b[31m"})
        state = peer.execute(body)
        equal((state["status"], state["node_thread_id"]), ("completed", None), "the state")
        report = state["report"]
        plain = {name: value for name, value in body.items() if name != "wait_s"}
        expected = {
            "item_id": ref,
            "snapshot": snapshot,
            "request_sha256": sha256_of(canonical(plain)),
            "assumed": False,
            "changes": None,
        }
        equal({name: report[name] for name in expected}, expected, "the report")
        equal(report["result"]["data"], body["parameters"], "the result")
        equal(peer.state("runs/one"), state, "the state that is asked for later")

    @node_case
    def test_a_request_runs_once(self, node: NodeUnderTest) -> None:
        """The same request finds the run that there is, at once and later."""
        peer, snapshot, ref = _with_tool(node, 'date +\'{"at": "%s.%N"}\'; sleep 0.2')
        body = peer.execute_body(snapshot, ref, "once")
        with ThreadPoolExecutor(8) as threads:
            states = list(threads.map(lambda _: peer.execute(body), range(8)))
        states.append(peer.execute(body))
        states.append(peer.execute(body | {"wait_s": 0}))
        loose = json.dumps(dict(reversed(body.items())), indent=2).encode()
        answer = peer.send("POST", "/execute", loose)
        states.append(peer.proved_state(answer, "once"))
        check(all(one == states[0] for one in states), f"A request ran twice: {states}")

    @node_case
    def test_another_request_under_an_id_is_refused(self, node: NodeUnderTest) -> None:
        """An id belongs to the request that took it, and to its caller."""
        peer, snapshot, ref = _with_tool(node, _SAYS)
        body = peer.execute_body(snapshot, ref, "taken")
        first = peer.execute(body)
        changes: tuple[dict[str, Any], ...] = (
            {"parameters": {"other": 1}}, {"item_id": "tool:acme/other"}, {"timeout_s": 5.0},
            {"snapshot": "ab" * 32}, {"capabilities": []}, {"collect": True},
        )  # fmt: skip
        for change in changes:
            answer = peer.post("/execute", body | change)
            peer.refused(answer, "other_request", 409)
            check(b'"report"' not in answer.body, "A refusal shows the run.")
        other = Peer.allowed(node)
        other.refused(other.get("/runs/taken"), "not_found", 404)
        other.refused(other.post("/runs/taken/cancel", {}), "not_found", 404)
        other.refused(other.get("/runs/taken/events"), "not_found", 404)
        tree = Tree(other.key)
        theirs = other.execute_body(other.push(tree), tree.shell("acme/none", "true"), "taken")
        found = other.execute(theirs)
        equal(found["status"], "error", "another caller's own run of the same id")
        equal(peer.state("taken"), first, "the run after all this")

    @node_case
    def test_what_is_not_signed_does_not_run(self, node: NodeUnderTest) -> None:
        """Unsigned, tampered, moved, signed by a stranger, missing: verified on the node."""
        peer = Peer.allowed(node)
        tree, stranger = Tree(peer.key), SigningKey.generate()
        right = tree.shell("acme/right", _SAYS)
        signed = tree.files["project", ".ai/tools/acme/right.sh"]
        tree.write(".ai/tools/acme/moved.sh", signed)
        tree.write(".ai/tools/acme/added.sh", signed + b"true\n")
        tree.write(".ai/tools/acme/changed.sh", signed.replace(b"6*7", b"7*6"))
        unsigned = b"".join(
            line for line in signed.splitlines(keepends=True) if b"rye:signed" not in line
        )
        tree.write(".ai/tools/acme/unsigned.sh", unsigned)
        tree.shell("acme/strange", _SAYS, key=stranger)
        snapshot = peer.push(tree)
        for name in ("moved", "added", "changed", "unsigned", "strange", "missing"):
            state = peer.execute(peer.execute_body(snapshot, f"tool:acme/{name}", name))
            shown = json.dumps(state)
            equal(state["status"], "error", f"the status of the {name} tool: {shown[:500]}")
            equal(state["report"]["result"]["status"], "error", f"the result of the {name} tool")
            check(_RAN not in shown, f"The {name} tool ran.")
        state = peer.execute(peer.execute_body(snapshot, right, "right"))
        check(_RAN in json.dumps(state), f"The signed tool didn't run: {state}")

    @node_case
    def test_a_run_may_do_what_caller_and_request_both_say(self, node: NodeUnderTest) -> None:
        """The request's capabilities count only within the caller's scopes."""
        narrow = Peer.allowed(node, scopes=("rye.execute.tool.acme.one",))
        broad = Peer.allowed(node)
        for peer, capabilities, ref, runs in (
            (narrow, None, "tool:acme/one", True),
            (narrow, None, "tool:acme/two", False),
            (narrow, ["rye.*"], "tool:acme/one", True),
            (narrow, ["rye.*"], "tool:acme/two", False),
            (narrow, ["rye.execute.tool.acme.two"], "tool:acme/two", False),
            (narrow, ["rye.execute.tool.acme.two"], "tool:acme/one", False),
            (narrow, [], "tool:acme/one", False),
            (broad, None, "tool:acme/one", True),
            (broad, ["rye.execute.tool.acme.two"], "tool:acme/one", False),
            (broad, ["rye.execute.tool.acme.two"], "tool:acme/two", True),
            (broad, ["rye.fetch.*", "rye.sign.tool.acme.one"], "tool:acme/one", False),
        ):
            tree = Tree(peer.key)
            tree.shell("acme/one", _SAYS)
            tree.shell("acme/two", _SAYS)
            name = sha256_of(f"{capabilities} {ref}".encode())[:20]
            body = peer.execute_body(peer.push(tree), ref, name, capabilities=capabilities)
            answer = peer.post("/execute", body)
            ran = _RAN.encode() in answer.body
            whose = "narrow" if peer is narrow else "broad"
            equal(ran, runs, f"whether {ref} runs with {capabilities} in {whose} scopes")
            if not runs and answer.status != 200:
                peer.refused(answer, "forbidden", 403)

    @node_case
    def test_what_can_not_be_a_run_is_refused(self, node: NodeUnderTest) -> None:
        """Wrong members, ids and versions, before anything runs."""
        peer, snapshot, ref = _with_tool(node, _SAYS)
        body = peer.execute_body(snapshot, ref, "right")
        for changed in _wrong_bodies(body):
            answer = peer.send("POST", "/execute", json.dumps(changed).encode())
            shown = {name: one for name, one in changed.items() if one != body.get(name)}
            check(
                answer.status in (400, 413, 422),
                f"{shown!r:.200} is answered with {answer.status}: {answer.body[:300]!r}",
            )
        old = body | {"ryecore": "99.0.0"}
        refused = peer.refused(peer.post("/execute", old), "version", 409)
        shown = refused.document()["detail"]
        check("99.0.0" in shown and body["ryecore"] in shown, "Not both versions are named.")
        absent = body | {"snapshot": "ab" * 32}
        peer.refused(peer.post("/execute", absent), "snapshot_missing", 409)
        for name in (
            "right",
            "other",
            "..",
            "../status",
            "a//b",
            "%2e%2e/status",
            "%00",
            "x" * 300,
        ):
            peer.refused(peer.get(f"/runs/{name}"), "not_found", 404)
        for name in ("x/events", "x/cancel"):
            answer = peer.post("/execute", body | {"thread_id": name})
            if answer.status == 200:
                found = peer.get(f"/runs/{name}")
                equal(found.status, 200, f"the status of the run {name}, which there is")
        for wait in ("x", "nan", "-1", "inf", "1e400", "%00", "1_0", ""):
            answer = peer.get(f"/runs/none?wait_s={wait}")
            check(answer.status in (400, 404, 422), f"wait_s={wait} is {answer.status}.")

    @node_case
    def test_runs_do_not_see_each_others_changes(self, node: NodeUnderTest) -> None:
        """Each run begins with the snapshot, and what it changed is collected where asked for."""
        script = "test -e made && echo '{\"seen\": true}' || { echo x > made; rm old; " + (
            "ln -s /etc/passwd link; echo '{\"seen\": false}'; }"
        )
        peer, tree = Peer.allowed(node), Tree(SigningKey.generate())
        tree.key = peer.key
        tree.write("old", b"old")
        ref = tree.shell("acme/make", f'cd "$1"; {script}')
        snapshot = peer.push(tree)
        for name in ("first", "second"):
            state = peer.execute(peer.execute_body(snapshot, ref, name, collect=True))
            report = state["report"]
            equal(report["result"]["data"], {"seen": False}, f"what the {name} run sees")
            changes = {one["path"]: one["sha256"] for one in report["changes"]}
            equal(changes, {"made": sha256_of(b"x\n"), "old": None}, f"what the {name} changed")
        made = sha256_of(b"x\n")
        equal(peer.get(f"/objects/{made}").body, b"x\n", "a changed file")
        other = Peer.allowed(node)
        other.refused(other.get(f"/objects/{made}"), "not_found", 404)

    @node_case
    def test_changes_are_of_the_project_and_within_the_quota(self, node: NodeUnderTest) -> None:
        """A link in the place of the folder isn't followed, and a huge file isn't even read."""
        link = 'cd /; rm -rf "$1"; ln -s /etc "$1"; echo "{}"'
        huge = 'truncate -s 1T "$1/huge"; echo "{}"'
        for name, script in (("link", link), ("huge", huge)):
            peer, snapshot, ref = _with_tool(node, script)
            state = peer.execute(peer.execute_body(snapshot, ref, name, collect=True))
            check(state["status"] != "running", f"The changes of the run {name} take too long.")
            changes = state["report"]["changes"] or []
            came = [one["path"] for one in changes if one["sha256"] is not None]
            equal(came, [], f"what came of the run {name}")

    @node_case
    def test_a_result_beyond_the_bound(self, node: NodeUnderTest) -> None:
        """A tool that says too much, or never ends its line, leaves the node as it was."""
        peer, snapshot, ref = _with_tool(node, "head -c 40000000 /dev/zero | tr '\\0' x")
        state = peer.execute(peer.execute_body(snapshot, ref, "much"))
        check(state["status"] in ("completed", "error"), f"The run is {state['status']}.")
        equal(peer.get("/status").status, 200, "the status of the node afterwards")

    @node_case
    def test_a_run_is_awaited(self, node: NodeUnderTest) -> None:
        """An answer comes at once, or once the run has ended, as the caller asks."""
        peer, snapshot, ref = _with_tool(node, "read line || true; sleep 1; echo '{}'")
        state = peer.execute(peer.execute_body(snapshot, ref, "later", wait_s=0))
        equal(state["status"], "running", "the state at once")
        equal(peer.state("later", wait_s=25)["status"], "completed", "the state at the end")

    @node_case
    def test_a_run_is_cancelled_or_killed(self, node: NodeUnderTest) -> None:
        """It ends with a report that says so; what has ended stays as it is."""
        peer, snapshot, ref = _with_tool(node, _WAITS)
        for name, how, status in (
            ("soft", {}, "cancelled"),
            ("hard", {"kill": True, "grace_s": 0}, "killed"),
        ):
            body = peer.execute_body(snapshot, ref, name, wait_s=0)
            equal(peer.execute(body)["status"], "running", "the state at once")
            answer = peer.post(f"/runs/{name}/cancel", how)
            check(answer.status in (200, 202), f"{answer.status}: {answer.body[:300]!r}")
            state = peer.state(name, wait_s=25)
            equal(state["status"], status, f"the state of a run that was stopped with {how}")
            again = peer.post(f"/runs/{name}/cancel", {"kill": True})
            equal(peer.proved_state(again, name), state, "the state after a second stop")
            equal(peer.execute(body), state, "the state of the repeated request")
        wrong: tuple[object, ...] = (
            {"kill": "yes"}, {"grace_s": "x"}, {"grace_s": None}, {"more": 1}, [], None, "kill",
        )  # fmt: skip
        for document in wrong:
            answer = peer.post("/runs/hard/cancel", document)
            peer.refused(answer, "invalid", 400, 422)
        peer.refused(peer.post("/runs/none/cancel", {}), "not_found", 404)

    @restart_case
    def test_a_tool_that_ran_when_the_node_ended(self, open_node: Opener, folder: Path) -> None:
        """It doesn't run again: the run ended as an error, whose effect is unknown."""
        began = folder / "began"
        with open_node() as node:
            script = f"echo x >> '{began}'; while test -e '{began}'; do sleep 0.1; done"
            peer, snapshot, ref = _with_tool(node, script)
            _, quick, says = _with_tool(node, _SAYS, peer)
            ended = peer.execute(peer.execute_body(quick, says, "ended"))
            body = peer.execute_body(snapshot, ref, "left", wait_s=0)
            peer.execute(body)
            _wait_for(began)
        with open_node() as node:
            peer = Peer(node, peer.key)
            state = peer.state("left", wait_s=25)
            equal(state["status"], "error", f"the status of what was left: {state}")
            equal(peer.execute(body), state, "the repeated request")
            equal(peer.state("ended"), ended, "a run that had ended")
        equal(began.read_text(), "x\n", "what the tool left, once for each time that it ran")


def _with_tool(node: NodeUnderTest, script: str, peer: Peer | None = None) -> tuple[Peer, str, str]:
    """Return a caller, the snapshot that it has pushed with a signed tool, and the tool."""
    peer = peer or Peer.allowed(node)
    tree = Tree(peer.key)
    ref = tree.shell("acme/tool", script)
    return peer, peer.push(tree), ref


def _wait_for(path: Path) -> None:
    """Wait until a tool has made a file."""
    deadline = time.monotonic() + _BEGIN_S
    while not path.exists():
        check(time.monotonic() < deadline, "A tool didn't begin.")
        time.sleep(0.02)


def _wrong_bodies(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield bodies that can't become a run."""
    wrong: tuple[dict[str, Any], ...] = (
        {"thread_id": ""}, {"thread_id": "../up"}, {"thread_id": "a/../b"}, {"thread_id": "/a"},
        {"thread_id": "a\x1b[31m"}, {"thread_id": "x" * 300}, {"thread_id": None},
        {"thread_id": 7}, {"thread_id": ".hidden"}, {"thread_id": "a\n"}, {"thread_id": "é"},
        {"thread": "fork"}, {"thread": "sideways"}, {"thread": None},
        {"item_id": "knowledge:acme/x"}, {"item_id": "acme/x"}, {"item_id": ""},
        {"item_id": None}, {"item_id": "directive:acme/x"}, {"parameters": []},
        {"parameters": None}, {"parameters": "x"}, {"snapshot": None}, {"ryecore": None},
        {"limits": 5}, {"model": 5}, {"timeout_s": "long"}, {"wait_s": "long"},
        {"wait_s": None}, {"capabilities": "rye.*"}, {"capabilities": [1]},
        {"ceiling": 5}, {"ceiling": {"spend_microcents": 1}},
        {"ceiling": {"spend_microcents": "1", "tokens": 1}}, {"envelope": "not sealed"},
        {"envelope": 5}, {"collect": "yes"}, {"more": 1},
    )  # fmt: skip
    for changes in wrong:
        yield body | changes
    for name in ("thread_id", "item_id", "parameters", "thread", "snapshot", "ryecore"):
        yield {key: value for key, value in body.items() if key != name}
