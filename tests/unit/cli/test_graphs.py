"""rye graph: validate, run, step, show and list, as real processes."""

import json
import re
import xml.etree.ElementTree as ET

import pytest

from tests.graphs import graph
from tests.unit.cli.conftest import Run
from tests.workspace import Workspace

FLOW = {
    "load": {
        "action": {"item_id": "tool:acme/double", "params": {"n": "${inputs.n}"}},
        "assign": {"n": "${result.n}"},
        "next": [
            {"to": "each", "when": {"path": "result.n", "op": "gt", "value": 3}},
            {"to": "done"},
        ],
    },
    "each": {
        "type": "foreach",
        "over": "${inputs.list}",
        "as": "m",
        "action": {"item_id": "tool:acme/double", "params": {"n": "${m}"}},
        "collect": "all",
        "next": "done",
    },
    "done": {"type": "return", "output": {"n": "${state.n}", "all": "${state.all}"}},
}
INPUTS = {"n": {"type": "integer"}, "list": {"type": "array", "default": [1, 2]}}
RUN_ID = r"acme/flow/flow-\d+(?:-\w+)?"


@pytest.fixture
def flow(workspace: Workspace) -> str:
    workspace.python(
        "acme/double", "def execute(params, project_path): return {'n': params['n'] * 2}"
    )
    return graph(workspace, FLOW, inputs=INPUTS, state={"n": 0, "all": []})


@pytest.fixture
def failing(workspace: Workspace) -> str:
    workspace.python("acme/bad", "def execute(params, project_path): raise ValueError('No tide.')")
    nodes = {
        "ask": {"action": {"item_id": "tool:acme/bad"}, "next": "done"},
        "done": {"type": "return"},
    }
    return graph(workspace, nodes, "acme/failing")


def test_a_graph_runs_told_line_by_line_and_its_output_is_printed(run: Run, flow: str) -> None:
    done = run("graph", "run", "acme/flow", "n=4")
    assert done.code == 0
    assert f"{flow}  completed  3 steps" in done.out
    assert "  n: 8\n" in done.out
    assert '  all: [{"n": 2}, {"n": 4}]\n' in done.out
    first, second, third, last = done.err.splitlines()
    assert re.fullmatch(rf"\[graph:{RUN_ID}\] step 1/3 load ✓ \d+\.\ds → each", first)
    assert re.fullmatch(rf"\[graph:{RUN_ID}\] step 2/3 each ✓ .+ → done \(2 items\)", second)
    assert re.fullmatch(rf"\[graph:{RUN_ID}\] step 3/3 done ✓ \d+\.\ds", third)
    assert "✓ completed, 3 steps" in last


@pytest.mark.parametrize("quiet", [("--quiet",), ()])
def test_nothing_is_told_where_that_is_wished(run: Run, flow: str, quiet: tuple[str, ...]) -> None:
    variables = {} if quiet else {"RYE_GRAPH_QUIET": "1"}
    done = run("graph", "run", flow, "--params", '{"n": 1}', "--json", *quiet, **variables)
    assert (done.code, done.err) == (0, "")
    assert done.json["data"]["output"] == {"n": 2, "all": []}


def test_inputs_can_be_read_and_are_checked(run: Run, flow: str) -> None:
    assert run("graph", "run", flow, "--params", "-", "--quiet", stdin='{"n": 2}').code == 0
    refused = run("graph", "run", flow, "n=many")
    assert refused.code == 2
    assert "integer" in refused.err
    assert run("graph", "run", flow, "--params", "[]").err.startswith("✗ refused\n  --params isn't")


def test_a_run_that_fails_says_why_where_and_how_to_go_on(
    workspace: Workspace, run: Run, failing: str
) -> None:
    done = run("graph", "run", failing)
    assert done.code == 1
    assert "ask ✗" in done.err
    assert "(ValueError: No tide.)" in done.err
    command = done.out.rsplit("next: ", 1)[1].split()
    assert command[:3] == ["rye", "graph", "resume"]
    shown = run("graph", "show", command[3])
    assert "✗ ask" in shown.out
    assert "ValueError: No tide." in shown.out
    assert "stands  before ask, behind step 1" in shown.out
    workspace.python("acme/bad", "def execute(params, project_path): return 'High.'")
    again = run(*command[1:])
    assert again.code == 0, again.out + again.err
    assert "completed" in again.out
    followed = run("graph", "show", command[3], "--json").json
    assert followed["followed_by"] == re.findall(r"run (\S+)", again.out)[0]


def test_no_graph_is_refused_with_what_to_do(run: Run, flow: str) -> None:
    missing = run("graph", "run", "acme/flaw")
    assert missing.code == 2
    assert "Did you mean" in missing.err
    assert flow in missing.err
    tool = run("graph", "run", "acme/double")
    assert tool.code == 2
    assert "is not a graph" in tool.err
    assert run("graph", "resume", "acme/flow/flow-1").err.count("There is no thread") == 1
    directive = run("graph", "run", "directive:acme/x")
    assert (directive.code, "is not a graph" in directive.err) == (2, True)


def test_a_run_can_go_on_by_itself(run: Run, flow: str) -> None:
    launched = run("graph", "run", flow, "n=1", "--async", "--json")
    assert launched.code == 0, launched.out
    run_id = launched.json["thread_id"]
    assert run("threads", "wait", run_id, "--timeout", "50").code == 0
    shown = run("graph", "show", run_id, "--json").json
    assert (shown["status"], shown["nodes"]["load"]["times"]) == ("completed", 1)
    assert run("graph", "run", flow, "n=1", "--async", "--limit", "turns=1").code == 2


def test_errors_that_were_ignored_are_named(workspace: Workspace, run: Run) -> None:
    workspace.python("acme/pick", "def execute(params, project):\n    return {'a': 1}[params['n']]")
    nodes = {
        "each": {
            "type": "foreach",
            "over": ["a", "b", "c", "d", "e"],
            "as": "n",
            "action": {"item_id": "tool:acme/pick", "params": {"n": "${n}"}},
        }
    }
    ref = graph(workspace, nodes, permissions=("rye.execute.tool.acme.*",), on_error="continue")
    ran = run("graph", "run", ref).out
    shown = run("graph", "show", re.findall(r"run (\S+)", ran)[0]).out
    assert "4 errors passed over\n    each[1]: KeyError: 'b'\n    each[2]: KeyError: 'c'" in ran
    assert "--json" in ran
    assert "ignored each[1]: KeyError: 'b'" in shown
    assert "and 1 more: --json" in shown


def test_one_node_runs_with_a_state_that_is_given(run: Run, flow: str) -> None:
    done = run("graph", "step", flow, "done", "n=1", "--state", '{"n": 7}')
    assert done.code == 0, done.err
    assert '"n": 7' in done.out
    load = run("graph", "step", flow, "load", "n=4", "--json")
    assert load.json["data"]["output"]["next_node"] == "each"
    assert load.json["data"]["output"]["state"]["n"] == 8
    unknown = run("graph", "step", flow, "lode", "n=1")
    assert (unknown.code, "load, each, done" in unknown.err) == (2, True)
    assert run("graph", "step", flow, "done", "--state", "-", "--params", "-").code == 2
    assert run("graph", "step", flow, "done", "--state", "{").code == 2


def test_a_run_goes_on_from_an_earlier_step_with_values_that_are_set(run: Run, flow: str) -> None:
    first = run("graph", "run", flow, "n=4", "--json", "--quiet").json["data"]["graph_run_id"]
    done = run("graph", "resume", first, "--at", "2", "--set", "n=70", "--json", "--quiet")
    assert done.code == 0, done.out + done.err
    assert done.json["data"]["output"] == {"n": 70, "all": [{"n": 2}, {"n": 4}]}
    over = run("graph", "resume", first)
    assert (over.code, "nothing is left to continue" in over.err) == (2, True)
    assert "rye graph show" in run("graph", "resume", first, "--at", "9").err
    assert run("graph", "resume", first, "--rerun", "--result", "1").code == 2
    assert "isn't JSON" in run("graph", "resume", first, "--result", "{").err
    assert "--member isn't JSON" in run("graph", "resume", first, "--member", "1={").err
    assert "isn't INDEX=JSON" in run("graph", "resume", first, "--member", "one=1").err


def test_validation_lists_every_problem_with_its_line(
    workspace: Workspace, run: Run, flow: str
) -> None:
    nodes = {
        "a": {"action": {"item_id": "tool:acme/duble"}, "next": "b"},
        "b": {"action": {"item_id": "tool:acme/double"}, "next": "done"},
        "done": {"type": "return"},
    }
    calling = run("graph", "validate", graph(workspace, nodes, "acme/calling"))
    assert calling.code == 1
    path = workspace.path("tools/acme/calling.yaml")
    line = next(at for at, text in enumerate(path.read_text().splitlines(), 1) if "duble" in text)
    assert f"✗ {path}:{line}  config.nodes.a.action.item_id" in calling.out
    broken = graph(
        workspace, {"a": {"type": "gate", "next": "z"}, "b": {"type": "return"}}, "acme/b"
    )
    done = run("graph", "validate", broken, "--json")
    assert (done.code, done.json["is_valid"]) == (1, False)
    assert all(one["line"] and one["path"] for one in done.json["errors"])
    assert any("'z'" in one["message"] for one in done.json["errors"])
    good = run("graph", "validate", "acme/flow")
    assert (good.code, good.out) == (0, "✓ acme/flow  0 errors\n")
    assert run("graph", "validate", "acme/double").code == 2
    assert not workspace.path("state").exists()  # nothing of it ran


def test_a_graph_is_shown_with_its_nodes_edges_and_conditions(run: Run, flow: str) -> None:
    shown = run("graph", "show", "acme/flow", COLUMNS="100").out
    assert "3 nodes" in shown
    assert "inputs  n (integer, optional), list (array, optional)" in shown
    assert "→ each  result.n > 3" in shown
    assert "→ done  else" in shown
    assert "foreach  tool:acme/double for each of ${inputs.list}, into all  → done" in shown
    narrow = run("graph", "show", flow, COLUMNS="60").out
    assert max(map(len, narrow.splitlines())) <= 60
    document = run("graph", "show", flow, "--json").json
    assert document["nodes"]["each"]["item_id"] == "tool:acme/double"
    assert document["nodes"]["load"]["next"][0]["when"]["op"] == "gt"


def test_a_graph_and_a_run_are_drawn(workspace: Workspace, run: Run, flow: str) -> None:
    assert "flowchart TD" in run("graph", "show", flow, "--mermaid").out
    run_id = run("graph", "run", flow, "n=1", "--json", "--quiet").json["data"]["graph_run_id"]
    picture = run("graph", "show", run_id, "--svg", "-")
    assert picture.code == 0
    assert "skipped" in picture.out  # each wasn't come to
    assert ET.fromstring(picture.out).tag.endswith("svg")
    assert run("graph", "show", run_id, "--svg", "a.svg").out == "drawn: a.svg\n"
    assert (workspace.project / "a.svg").read_text() == picture.out
    workspace.path("tools/acme/flow.yaml").unlink()
    gone = run("graph", "show", run_id, "--svg", "-")
    assert (gone.code, "can't be loaded any more" in gone.err) == (2, True)
    assert "✓ load" in run("graph", "show", run_id).out


def test_what_is_neither_graph_nor_run_is_said(workspace: Workspace, run: Run, flow: str) -> None:
    done = run("graph", "show", "acme/flox")
    assert done.code == 2
    assert "neither a graph nor a run" in done.err
    assert "rye graph list" in done.err
    assert "was not found" in run("graph", "show", "tool:acme/flox").err
    workspace.shell("acme/work", "echo hello")
    thread_id = run("execute", "tool:acme/work", "--async", "--json").json["thread_id"]
    run("threads", "wait", thread_id)
    other = run("graph", "show", thread_id)
    assert (other.code, "isn't a run of a graph" in other.err) == (2, True)


def test_runs_are_listed_and_nothing_else(workspace: Workspace, run: Run, flow: str) -> None:
    assert run("graph", "list").out == "no graph has run here yet\n"
    workspace.shell("acme/work", "echo hello")
    run("execute", "tool:acme/work", "--async")
    first = run("graph", "run", flow, "n=1", "--json", "--quiet").json["data"]["graph_run_id"]
    second = run("execute", flow, "n=1", "--json").json["data"]["graph_run_id"]
    listed = run("graph", "list", "--json").json["runs"]
    assert [one["thread_id"] for one in listed] == [second, first]
    shown, left_out = run("graph", "list", "--limit", "1").out.splitlines()
    assert second in shown
    assert left_out == "1 more of 2; see them: rye graph list --offset 1 --limit 1"
    assert run("graph", "list", "--running").out == "no graph runs\n"
    assert run("graph", "list", "--limit", "0").code == 2


def test_a_hostile_error_neither_steers_the_terminal_nor_breaks_the_lines(
    workspace: Workspace, run: Run
) -> None:
    workspace.python(
        "acme/bad", "def execute(params, project_path): raise ValueError('\\x1b[2J\\rx')"
    )
    nodes = {"a": {"action": {"item_id": "tool:acme/bad"}, "next": "b"}, "b": {"type": "return"}}
    done = run("graph", "run", graph(workspace, nodes, "acme/bad_flow"))
    run_id = re.findall(r"  run (\S+)", done.out)[0]
    shown = run("graph", "show", run_id)
    for text in (done.out, done.err, shown.out):
        assert "\x1b" not in text
        assert "\r" not in text
    assert json.loads(run("graph", "show", run_id, "--json").out)["error"]


def test_a_dry_run_says_what_a_graph_would_do_and_refuses_a_broken_one(
    workspace: Workspace, run: Run, flow: str
) -> None:
    done = run("execute", flow, "n=4", "--dry-run", "--json")
    assert (done.code, done.json["status"]) == (0, "validation_passed")
    assert done.json["data"]["nodes"]["load"] == "action tool:acme/double"
    shown = run("execute", flow, "n=4", "--dry-run").out
    assert "foreach tool:acme/double for each of ${inputs.list}, into all" in shown
    broken = graph(workspace, {"a": {"type": "gate", "next": "z"}}, "acme/broken")
    refused = run("execute", broken, "--dry-run")
    assert refused.code == 2
    assert "'z'" in refused.err
    assert not workspace.path("state").exists()


def test_a_graph_is_found_and_fetched_as_the_tool_that_it_is(run: Run, flow: str) -> None:
    (found,) = run("search", "flow", "--json").json["results"]
    assert (found["id"], found["type"]) == (flow, "tool")
    assert "tool_type" in run("fetch", flow).out


def test_a_run_in_a_project_whose_ai_is_a_link_out_of_it_is_refused(
    run: Run, workspace: Workspace, flow: str
) -> None:
    (workspace.project / ".ai").rename(workspace.root / "elsewhere")
    (workspace.project / ".ai").symlink_to("../elsewhere")
    done = run("graph", "run", flow, "n=4")
    assert done.code == 2
    assert "link that leaves" in done.err
    assert "Traceback" not in done.err
    assert not (workspace.root / "elsewhere/state").exists()


def test_a_repeated_start_of_an_ended_run_says_that_nothing_was_run_again(
    run: Run, flow: str
) -> None:
    start = ("graph", "run", flow, "n=1", "--idempotency-key", "order-1")
    first, again = run(*start), run(*start)
    assert "already started" not in first.out
    assert first.err
    assert "already started with this idempotency key: nothing was repeated" in again.out
    assert "  n: 2\n" in again.out
    assert again.err == ""
    assert run(*start, "--json").json["metadata"]["already_started"] is True


def test_the_log_of_a_run_points_to_its_records_and_each_step_is_proved_once(
    run: Run, failing: str
) -> None:
    run_id = run("graph", "run", failing, "--json").json["data"]["graph_run_id"]
    done = run("threads", "log", run_id)
    assert (done.code, done.out) == (0, "")
    assert done.err == f"no log; its records: rye graph show {run_id}\n"
    steps = re.findall(r"step \d+", run("threads", "verify", run_id).out)
    assert steps
    assert len(steps) == len(set(steps))
