"""rye threads tree, watch, transcript, verify, replay, resume, fork and handoff."""

import json
import signal

import pytest

from ryecore.cli.threads_transcript import record_lines
from ryecore.state.events import RunEvent
from tests.graphs import graph
from tests.thread_deps import DEPS, furnish
from tests.unit.cli.conftest import Run, start
from tests.unit.cli.test_fork import HANG, until_asked
from tests.workspace import Workspace

GOING_ON = [["resume"], ["fork", "--at", "1"], ["handoff"]]
SEE_RUN = "See the run, and how to continue it: rye graph show"


@pytest.fixture(autouse=True)
def furnished(workspace: Workspace) -> None:
    furnish(workspace)


def forked(run: Run, *args: str) -> str:
    done = run("execute", *args, "--thread", "fork", "--deps", DEPS, "--json")
    assert done.code == 0, done.out
    return str(done.json["thread_id"])


def alter(workspace: Workspace, thread_id: str) -> None:
    path = workspace.path(f"state/threads/{thread_id}/transcript.jsonl")
    text = path.read_text()
    assert "I was told" in text
    path.write_text(text.replace("I was told", "I was sold"))


def test_a_transcript_is_printed_for_people_and_for_programs(run: Run) -> None:
    thread_id = forked(run, "directive:acme/sum", "x=4")
    printed = run("threads", "transcript", thread_id).out
    for words in ("started acme/sum", "Add 4 and 3.", "→ add", "← add", "✓ returned", "completed"):
        assert words in printed
    assert "checkpoint" not in printed
    lines = run("threads", "transcript", thread_id, "--json").out.splitlines()
    records = [json.loads(line) for line in lines]
    assert records[0]["event_type"] == "thread_started"
    assert {one["thread_id"] for one in records} == {thread_id}
    only = run("threads", "transcript", thread_id, "--types", "checkpoint,hook").out
    assert only.count("checkpoint") == only.count("\n") > 1
    refused = run("threads", "transcript", thread_id, "--types", "banana")
    assert (refused.code, "cognition_out" in refused.err) == (2, True)


def test_a_followed_transcript_ends_with_a_thread_s_end_and_continues_where_it_is_resumed(
    workspace: Workspace, run: Run
) -> None:
    process = start(workspace, *HANG)
    thread_id = until_asked(workspace, process)
    follower = start(workspace, "threads", "transcript", "-f", thread_id)
    assert follower.stdout is not None
    assert b"started acme/hang" in follower.stdout.readline()
    process.kill()
    process.communicate(timeout=60)
    printed = follower.communicate(timeout=60)[0].decode()
    assert printed.count("✗ error") == 1, printed
    assert "ended without recording a result" in printed.splitlines()[-1]
    assert f"next: rye threads resume {thread_id}" in run("threads", "show", thread_id).out
    resumed = run("threads", "resume", thread_id, "--deps", DEPS, "--limit", "duration_seconds=0.1")
    assert resumed.code == 1, resumed.err + resumed.out
    (later,) = (one for one in resumed.out.split() if one.startswith("acme/hang/"))
    assert "next:" not in run("threads", "show", later).out
    assert run("threads", "show", thread_id).out.endswith(f"  resumed by {later}\n")
    assert run("threads", "show", thread_id, "--json").json["resumed_by"] == [later]
    printed = run("threads", "transcript", "-f", thread_id).out
    assert f"▸ continues from {thread_id}" in printed
    assert "■ duration_exceeded" in printed
    assert "continues from" not in run("threads", "transcript", thread_id).out
    records = run("threads", "transcript", "-f", thread_id, "--json").out.splitlines()
    assert len({json.loads(one)["thread_id"] for one in records}) == 2


def test_the_start_of_a_run_on_a_node_which_chooses_the_model_names_none() -> None:
    started = {"directive": "acme/sum", "model": None, "limits": {"turns": 4}}
    first = record_lines(RunEvent("thread", 0.0, "thread_started", started)).plain().splitlines()[0]
    assert first.endswith("started acme/sum")


def test_the_start_of_a_resumed_thread_says_what_is_left_in_figures_that_are_read() -> None:
    limits = {"tokens": 998740, "spend": 0.49551234, "duration_seconds": 1790.79185}
    started = {"directive": "acme/sum", "model": "a/b", "limits": limits}
    shown = record_lines(RunEvent("thread", 0.0, "thread_started", started)).plain()
    assert (
        "limits: tokens 998,740, spend 0.495512, duration_seconds 1,790.79" in shown.splitlines()[1]
    )
    assert "1,790.791" not in shown


@pytest.mark.parametrize("timestamp", [1e20, -1e20, 1e300])
def test_a_record_with_figures_beyond_all_bounds_is_shown(timestamp: float) -> None:
    spent = {"outcome": "success", "spend_microcents": 10**400}
    shown = record_lines(RunEvent("thread", timestamp, "model_call_end", spent)).plain()
    assert shown.startswith("--:--:--  cost")


def test_a_transcript_leaves_out_requests_that_were_repeated_for_a_shorter_answer(
    run: Run,
) -> None:
    thread_id = forked(run, "directive:acme/sum", "x=4", "--limit", "tokens=3000")
    printed = run("threads", "transcript", thread_id).out
    named = run("threads", "transcript", thread_id, "--types", "model_call_end").out
    assert "not sent: its longest possible answer didn't fit into what is left" in named
    assert "not sent" not in printed
    assert printed.count("success") == named.count("success") == 2
    assert not any(word in printed + named for word in ("refused", "freed"))
    in_json = run("threads", "transcript", thread_id, "--json").out
    assert in_json.count('"refused"') == named.count("not sent")


def test_a_transcript_that_was_altered_says_which_turn_it_is(
    workspace: Workspace, run: Run
) -> None:
    thread_id = forked(run, "directive:acme/talk")
    proved = run("threads", "verify", thread_id)
    assert (proved.code, "nothing altered or cut" in proved.out) == (0, True)
    assert run("threads", "verify", thread_id, "--json").json["ok"] is True
    alter(workspace, thread_id)
    shown = run("threads", "verify", thread_id)
    assert shown.code == 1
    assert "turn 1    altered" in shown.out
    assert "turn 0    attested" in shown.out
    document = run("threads", "verify", thread_id, "--json").json
    assert (document["status"], document["ok"]) == ("error", False)
    for command in (["replay"], ["resume", "--deps", DEPS], ["fork", "--at", "1", "--deps", DEPS]):
        refused = run("threads", *command, thread_id)
        assert refused.code == 2
        assert "was altered or cut" in refused.err
        assert f"rye threads verify {thread_id}" in refused.err


def test_what_was_decided_comes_out_the_same_again(run: Run) -> None:
    thread_id = forked(run, "directive:acme/parent")
    done = run("threads", "replay", thread_id)
    assert (done.code, "as recorded" in done.out) == (0, True)
    document = run("threads", "replay", thread_id, "--json").json
    assert (document["ok"], document["turns"], document["differences"]) == (True, 2, [])


def test_an_ended_thread_is_resumed_with_a_message(run: Run) -> None:
    thread_id = forked(run, "directive:acme/talk")
    done = run("threads", "resume", thread_id, "And now?", "--deps", DEPS, "--limit", "turns=3")
    assert (done.code, "I was told: And now?" in done.out) == (0, True)
    new = run("threads", "list", "--all", "--json").json["threads"][0]["thread_id"]
    again = run("threads", "show", new, "--json").json
    assert (again["limits"]["turns"], again["continuation_of"]) == (3, thread_id)
    assert again["chain"] == [thread_id, new]
    assert f"chain   {thread_id}" in run("threads", "show", new).out
    assert "✓ acme/talk" in run("threads", "tree", new).out


def test_a_thread_is_forked_at_a_turn(run: Run) -> None:
    thread_id = forked(run, "directive:acme/talk")
    done = run("threads", "fork", thread_id, "Otherwise.", "--at", "1", "--deps", DEPS)
    assert (done.code, "I was told: Otherwise." in done.out) == (0, True)
    refused = run("threads", "fork", thread_id, "--at", "9", "--deps", DEPS)
    assert refused.code == 2
    assert "Turn 9 can't be forked after" in refused.err
    assert "Name a turn that has ended" in refused.err


def test_a_list_says_what_was_taken_and_spent(run: Run) -> None:
    forked(run, "directive:acme/sum", "x=4")
    assert "2 turns  $0       directive:acme/sum" in run("threads", "list", "--all").out


def test_a_watch_that_is_piped_prints_a_line_for_each_change(run: Run) -> None:
    thread_id = forked(run, "directive:acme/parent")
    lines = run("threads", "watch", thread_id).out.splitlines()
    assert len(lines) == 2
    assert all("completed" in line and "turn" in line for line in lines)
    document = run("threads", "tree", thread_id, "--json").json
    assert document["threads"][0]["children"][0]["item_id"] == "directive:acme/sum"
    assert "no running threads" in run("threads", "tree").out


def test_of_a_thread_that_runs_it_says_so(workspace: Workspace, run: Run) -> None:
    process = start(workspace, *HANG)
    thread_id = until_asked(workspace, process)
    refused = run("threads", "resume", thread_id, "--deps", DEPS)
    assert refused.code == 2
    assert "still runs" in refused.err
    assert f"rye threads cancel {thread_id}" in refused.err
    assert "▸ acme/hang" in run("threads", "tree").out
    assert run("threads", "transcript", thread_id).code == 0  # as far as it is
    asked = run("threads", "handoff", thread_id)
    assert (asked.code, "asked to hand off" in asked.out) == (0, True)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    ended = run("threads", "handoff", thread_id)
    assert (ended.code, "cancelled" in ended.err) == (2, True)


@pytest.mark.parametrize("command", [*GOING_ON, ["tree"], ["watch"], ["transcript"], ["verify"],
                                     ["replay"]])  # fmt: skip
def test_what_there_is_not_is_refused_with_a_next_step(run: Run, command: list[str]) -> None:
    for thread_id in ("no-such-thread", "../..", ""):
        done = run("threads", *command, thread_id)  # without models, too
        assert done.code == 2
        assert "There is no thread" in done.err
        assert "rye threads list --all" in done.err


def test_a_tool_s_thread_has_no_conversation(workspace: Workspace, run: Run) -> None:
    workspace.shell("acme/work", "echo hello")
    thread_id = run("execute", "tool:acme/work", "--async", "--json").json["thread_id"]
    run("threads", "wait", thread_id)
    for command in (*GOING_ON, ["transcript"], ["verify"], ["replay"]):
        done = run("threads", *command, thread_id)  # without models, too
        assert done.code == 2
        assert "no conversation and no transcript" in done.err
        assert "next" in done.err


def test_a_graph_s_run_has_no_conversation(workspace: Workspace, run: Run) -> None:
    ref = graph(workspace, {"end": {"type": "return"}})
    run_id = run("graph", "run", ref, "--json").json["data"]["graph_run_id"]
    for command in (*GOING_ON, ["transcript"], ["replay"]):
        done = run("threads", *command, run_id)  # without models, too
        assert (done.code, f"next: {SEE_RUN} {run_id}" in done.err) == (2, True), done.err
    assert run("graph", "show", run_id).code == 0


@pytest.mark.parametrize("command", [["resume"], ["fork", "--at", "1"]])
def test_without_models_it_can_not_go_on(run: Run, command: list[str]) -> None:
    thread_id = forked(run, "directive:acme/talk")
    done = run("threads", *command, thread_id)
    assert done.code == 2
    assert "OPENAI_API_KEY" in done.err
    assert "--deps" in done.err
