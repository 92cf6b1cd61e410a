"""Every command of `rye`, and what terminals and pipes see of it."""

import fcntl
import json
import os
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from ryecore import __version__
from tests.unit.cli.conftest import run_on_terminal, start
from tests.workspace import BASH, PRIMITIVE

DIRECTIVE = """```xml
<directive name="d" version="1.0.0"><metadata/></directive>
```

Say hello.
"""
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "count": {"type": "integer"}},
    "required": ["name"],
}


def test_the_command_is_installed_and_has_a_version_and_help(run):
    (script,) = entry_points(group="console_scripts", name="rye")
    assert script.value == "ryecore.cli:main"
    assert run("--version").out.strip().endswith(__version__)
    shown = run("--help")
    assert shown.code == 0
    for command in ("execute", "keys", "sign", "trace", "trust-project", "verify"):
        assert command in shown.out


# execute


def test_execute_shows_the_result_and_the_chain(workspace, run):
    workspace.shell("a/t", "echo hi")
    done = run("execute", "tool:a/t")
    assert (done.code, done.err) == (0, "")
    assert "✓ tool:a/t" in done.out
    assert "hi" in done.out
    assert BASH in done.out
    assert "\x1b" not in done.out


def test_json_is_exactly_the_response_object(workspace, run):
    ref = workspace.shell("a/t", "cat")
    printed = run("execute", ref, "a=1", "--json", "--trace").json
    expected = workspace.execute(ref, {"a": 1}, trace=True).to_dict()
    for document in (printed, expected):
        document["metadata"]["duration_ms"] = 0
        for event in document["trace"]:
            event.pop("duration_ms", None)
    assert list(printed) == list(expected)
    keys = ("status", "type", "item_id", "data", "chain", "chain_elements", "metadata")
    assert {key: printed[key] for key in keys} == {key: expected[key] for key in keys}
    assert [event["step"] for event in printed["trace"]] == [
        event["step"] for event in expected["trace"]
    ]


def test_json_of_a_refusal_is_exactly_the_error_object(workspace, run):
    workspace.shell("a/t", "true", config_schema=SCHEMA)
    done = run("execute", "tool:a/t", "--json", "count=x")
    assert done.code == 2
    document = done.json
    assert document["status"] == "error"
    assert document["error_type"] == "invalid_parameters"
    assert document["item_id"] == "tool:a/t"
    assert document["chain"] == ["a/t", BASH, PRIMITIVE]
    assert len(document["failures"]) == 2


def test_a_tool_that_fails_exits_with_1_and_a_refusal_with_2(workspace, run):
    workspace.shell("a/fails", "echo why >&2; exit 7")
    failed = run("execute", "tool:a/fails")
    assert failed.code == 1
    assert "why" in failed.out
    refused = run("execute", "tool:a/nowhere")
    assert refused.code == 2
    assert "refused" in refused.err
    assert "next:" in refused.err
    assert refused.out == ""


def test_parameters_come_as_pairs_as_json_and_on_standard_input(workspace, run):
    ref = workspace.shell("a/t", "cat", config_schema=SCHEMA)
    pairs = run("execute", ref, "name=7", "count=7", "extra=[1, 2]", "--json")
    assert pairs.json["data"] == {"name": "7", "count": 7, "extra": [1, 2]}
    given = json.dumps({"name": "é", "count": 1})
    assert run("execute", ref, "--params", given, "--json").json["data"] == json.loads(given)
    assert run("execute", ref, "--params", "-", "--json", stdin=given).json["data"] == (
        json.loads(given)
    )
    both = run("execute", ref, "count=2", "--params", given, "--json").json["data"]
    assert both == {"name": "é", "count": 2}


@pytest.mark.parametrize("params", ["", "[]", "[" * 100_000, '{"a": NaN}', '{"a": "\\ud800"}'])
def test_params_that_are_no_json_object_are_refused(workspace, run, params):
    workspace.shell("a/t", "touch ran")
    done = run("execute", "tool:a/t", "--params", "-", stdin=params)
    assert done.code == 2
    assert "JSON" in done.err
    assert not (workspace.project / "ran").exists()


def test_standard_input_that_is_no_text_is_refused(workspace, run):
    workspace.shell("a/t", "true")
    assert run("execute", "tool:a/t", "--params", "-", stdin=b"\xff\xfe").code == 2


def test_a_dry_run_runs_nothing_and_shows_what_would_run(workspace, run):
    workspace.shell("a/t", "touch ran")
    done = run("execute", "tool:a/t", "--dry-run")
    assert done.code == 0
    assert "would run" in done.out
    assert not (workspace.project / "ran").exists()


def test_the_timeout_is_kept_and_what_came_out_is_shown(workspace, run):
    workspace.shell("a/t", "echo begun; read -r < <(sleep 600)")
    done = run("execute", "tool:a/t", "--timeout", "0.3")
    assert done.code == 1
    assert "within 0.3 s" in done.out
    assert "begun" in done.out


def test_the_trace_is_shown_where_it_is_asked_for(workspace, run):
    workspace.shell("a/t", "true")
    assert "verify_integrity" not in run("execute", "tool:a/t").out
    assert "verify_integrity" in run("execute", "tool:a/t", "--trace").out
    refused = run("execute", "tool:a/nowhere", "--trace")
    assert "resolve" in refused.err


def test_the_project_may_be_named(workspace, run, tmp_path):
    workspace.shell("a/t", "pwd")
    done = run("execute", "tool:a/t", "--project", "../project")
    assert str(workspace.project) in done.out
    assert run("execute", "tool:a/t", "--project", str(tmp_path / "nowhere")).code == 2


@pytest.mark.parametrize(
    "args",
    [
        ("execute",),
        ("execute", "tool:a/t", "novalue"),
        ("execute", "tool:a/t", "--timeout", "soon"),
        ("execute", "tool:a/t", "--timeout", "nan"),
        ("execute", "a b"),
        ("execute", "tool:../../x"),
        ("execute", "directive:a/d"),
        ("verify", "x" * 5000),
        ("verify", "tool:" + "x" * 300 + ".py"),
        ("verify", "tool:a/nowhere"),
        ("verify", "\udcff"),
        ("sign", "/etc/passwd"),
        ("sign", "tool:a/nowhere"),
        ("keys", "trust", "/etc/passwd"),
        ("keys", "trust", "/dev"),
        ("keys", "list", "--project", "/nowhere"),
        ("banana",),
    ],
    ids=lambda args: " ".join(args)[:40],
)
def test_bad_input_is_refused_with_2_and_never_a_traceback(workspace, run, args):
    workspace.shell("a/t", "touch ran")
    done = run(*args)
    assert done.code == 2
    assert done.err
    assert not (workspace.project / "ran").exists()


def test_broken_items_are_refused_with_the_line(workspace, run):
    workspace.write("tools/a/broken.py", "def execute(:\n")
    done = run("execute", "tool:a/broken")
    assert done.code == 2
    assert "broken.py, line 2" in done.err


# What a terminal, a pipe and a closed pipe see


def test_a_terminal_has_colours_unless_no_color_is_set(workspace):
    workspace.shell("a/t", "echo hi")
    assert "\x1b[32m" in run_on_terminal(workspace, "execute", "tool:a/t")
    assert "\x1b" not in run_on_terminal(workspace, "execute", "tool:a/t", NO_COLOR="1")
    assert "\x1b" not in run_on_terminal(workspace, "execute", "tool:a/t", TERM="dumb")


@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}])
def test_what_a_tool_prints_cannot_steer_the_terminal(workspace, variables):
    workspace.shell(
        "a/t", r"printf 'x\033[2J\033]0;title\007\rhidden'; printf '\033[31m' >&2; exit 1"
    )
    shown = run_on_terminal(workspace, "execute", "tool:a/t", **variables)
    assert "\x1b[2J" not in shown
    assert "\x1b]0" not in shown
    assert "\x07" not in shown
    assert "\\x1b[2J" in shown


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_pipe_that_nobody_reads_is_no_error_to_speak_of(workspace, form):
    workspace.shell("a/t", "echo hi")
    reader, writer = os.pipe()
    os.close(reader)
    with start(workspace, "execute", "tool:a/t", *form, stdout=writer) as process:
        os.close(writer)
        _, err = process.communicate()
    assert (err, process.returncode) == (b"", 1)


def test_a_reader_that_stops_early_is_no_error_to_speak_of(workspace):
    workspace.shell("a/t", "seq 1 300000")
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    with start(workspace, "execute", "tool:a/t", "--json", stdout=writer) as process:
        os.close(writer)
        assert os.read(reader, 10)
        os.close(reader)
        assert process.stderr is not None
        assert process.stderr.read() == b""


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_half_characters_and_a_narrow_encoding_are_shown_somehow(workspace, run, run_process, form):
    workspace.shell("a/t", """echo '{"a": "\\ud800 é ✓"}'""")
    done = run("execute", "tool:a/t", *form)
    assert done.code == 0
    done = run_process("execute", "tool:a/t", *form, PYTHONIOENCODING="ascii")
    assert done.code == 0


# sign, verify, trace, keys, trust-project


def test_a_tool_is_made_signed_verified_and_run(workspace, run):
    path = workspace.write("tools/a/t.sh", f"# __executor_id__ = '{BASH}'\necho hi\n", sign=False)
    refused = run("execute", "tool:a/t")
    assert refused.code == 2
    assert "rye sign tool:a/t" in refused.err
    signed = run("sign", "tool:a/t")
    assert signed.code == 0
    assert "1 of 1 signed" in signed.out
    verified = run("verify", "tool:a/t")
    assert verified.code == 0
    assert workspace.key.public.fingerprint in verified.out
    assert run("execute", "tool:a/t").code == 0
    path.write_text(path.read_text() + "#\n")
    assert run("verify", "tool:a/t").code == 2


def test_a_glob_that_fails_in_part_exits_with_1(workspace, run):
    workspace.write("tools/a/fine.sh", "", sign=False)
    workspace.write("tools/a/bom.sh", b"\xef\xbb\xbf", sign=False)
    done = run("sign", "tool:a/*", "--json")
    assert done.code == 1
    assert done.json["total"] == 2
    assert len(done.json["signed"]) == 1
    shown = run("sign", "tool:a/*")
    assert "1 of 2 signed" in shown.out


def test_user_space_is_signed_on_request(workspace, run):
    workspace.write("tools/a/t.sh", f"# __executor_id__ = '{BASH}'\n", sign=False, space="user")
    assert run("sign", "tool:a/t").code == 2
    assert run("sign", "tool:a/t", "--user").code == 0
    assert run("execute", "tool:a/t").code == 0


def test_verify_prints_json_too(workspace, run):
    workspace.shell("a/t", "true")
    document = run("verify", "tool:a/t", "--json").json
    assert document["status"] == "success"
    assert document["item_id"] == "tool:a/t"
    assert document["key_fp"] == workspace.key.public.fingerprint


def test_trace_shows_the_chain_and_runs_nothing(workspace, run):
    workspace.shell("a/t", "touch ran")
    shown = run("trace", "tool:a/t")
    assert shown.code == 0
    assert "resolve_env" in shown.out
    document = run("trace", "tool:a/t", "--json").json
    assert document["chain"] == ["a/t", BASH, PRIMITIVE]
    assert document["trace"][0]["step"] == "resolve"
    assert not (workspace.project / "ran").exists()


def test_the_module_runs_like_the_script():
    done = subprocess.run(
        [sys.executable, "-m", "ryecore.cli", "--version"], capture_output=True, check=True
    )
    assert __version__.encode() in done.stdout


def test_what_no_space_holds_is_said_once_with_how_to_look(run):
    for command in (["execute"], ["trace"], ["graph", "run"], ["mcp", "tools"]):
        refused = run(*command, "acme/qqq")
        assert refused.code == 2
        assert refused.err.count("tool:acme/qqq was not found") == 1
        assert "rye search '*' --scope tool" in refused.err
    shown = run("graph", "show", "acme/qqq").err
    assert "these folders" not in shown
    assert "rye graph list" in shown


def test_an_unknown_limit_says_how_limits_are_written_here(workspace, run):
    workspace.write("directives/d.md", DIRECTIVE)
    for command in (["execute", "directive:d"], ["execute", "directive:d", "--thread", "fork"]):
        refused = run(*command, "--limit", "turnz=3", OPENAI_API_KEY="x")
        assert refused.code == 2
        assert "--limit turns=8" in refused.err
    assert "--limit turns=8" in run("execute", "directive:d", "--limit", "turns").err


def test_a_bare_id_is_fetched_by_the_kind_that_has_it(workspace, run):
    workspace.write("knowledge/acme/terms.md", "Net 30.\n")
    refused = run("fetch", "acme/terms")
    assert refused.code == 2
    assert "next: Write knowledge:acme/terms.\n" in refused.err
    workspace.write("config/acme/terms.yaml", "a: 1\n")
    assert "knowledge:acme/terms or config:acme/terms" in run("fetch", "acme/terms").err
    missing = run("fetch", "acme/missing").err
    assert "like tool:acme/missing. The kinds are tool, directive, knowledge, config." in missing
    for command in ("execute", "verify", "sign"):
        done = run(command, "acme/terms")
        assert done.code == 2
        assert "Did you mean knowledge:acme/terms or config:acme/terms?" in done.err


@pytest.mark.parametrize("command", [["execute"], ["fetch"], ["trace"], ["graph", "run"]])
def test_a_name_that_no_item_has_is_said_with_what_one_looks_like(run, command):
    for name in ("acme/bad name", "tool:acme/bad name", "tool:x.py"):
        refused = run(*command, name)
        assert refused.code == 2
        assert "like 'acme/csv/summarise'" in refused.err
