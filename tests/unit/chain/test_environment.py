"""What a tool's process finds in its environment."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.chain.environment import apply_env_paths
from ryecore.errors import ConfigError, InputError, RyeError
from tests.variables import STEERING
from tests.workspace import Workspace, events

# Prints its environment as one JSON document, with nothing that a shell would add.
SHOW = {"command": "/usr/bin/env", "args": ["-0"]}


def environment(workspace: Workspace, *, tool=None, runtime=None, trace=False, **opened):
    """The environment that a tool's process gets, and the result."""
    workspace.yaml("a/runtime", config=SHOW, env_config={"env": runtime or {}})
    ref = workspace.yaml("a/tool", executor_id="a/runtime", env_config={"env": tool or {}})
    done = workspace.execute(ref, opened=opened, trace=trace)
    assert isinstance(done.data, dict)
    pairs = done.data["stdout"].rstrip("\0").split("\0")
    return dict(pair.split("=", 1) for pair in pairs if pair), done


def dotenv(workspace: Workspace, text: str) -> None:
    (workspace.project / ".env").write_text(text)


def test_later_wins_process_then_dotenv_then_runtime_then_tool(workspace):
    workspace.environ |= {"A": "process", "B": "process", "C": "process"}
    dotenv(workspace, "A=dotenv\nD=dotenv\nE=dotenv\nF=dotenv\n")
    found, _ = environment(
        workspace,
        runtime={"B": "runtime", "C": "runtime", "E": "runtime", "F": "runtime"},
        tool={"C": "tool", "D": "${D}", "F": "tool"},
    )
    assert {name: found[name] for name in "ABCDEF"} == {
        "A": "process",
        "B": "runtime",
        "C": "tool",
        "D": "dotenv",
        "E": "runtime",
        "F": "tool",
    }


def test_a_signed_value_may_build_on_variables_before_it(workspace):
    workspace.environ["BASE"] = "/base"
    found, _ = environment(
        workspace,
        runtime={"HERE": "${BASE}/r:${NOT_SET:-none}", "IN": "{project_path}"},
        tool={"THERE": "${HERE}/t"},
    )
    assert found["HERE"] == "/base/r:none"
    assert found["THERE"] == "/base/r:none/t"
    assert found["IN"] == str(workspace.project)


def test_what_a_variable_holds_is_not_expanded(workspace):
    workspace.environ["A"] = "${HOME} {project_path} $(id)"
    found, _ = environment(workspace, runtime={"B": "${A}"})
    assert found["A"] == found["B"] == "${HOME} {project_path} $(id)"


def test_nothing_of_a_dotenv_counts_that_nobody_asks_for(workspace):
    names = sorted({*STEERING, "FINE", "API_URL", "STRIPE_SK"})
    dotenv(workspace, "".join(f"{name}=evil\n" for name in names))
    found, done = environment(workspace, trace=True)
    assert "evil" not in found.values()
    event = events(done.trace, "resolve_env")[0]
    assert event["keys"] == []
    assert event["dropped"] == names
    assert {*STEERING} <= {*event["never"]}
    assert "rye env allow API_URL FINE" in event["next_step"]
    assert "rye env allow" in str(done)


def test_what_steers_programs_never_counts_though_a_signed_element_and_the_user_ask(workspace):
    dotenv(workspace, "FINE=yes\n" + "".join(f"{name}=evil\n" for name in STEERING))
    workspace.open().env.allow("FINE")
    wish = {name: f"${{{name}}}" for name in ("FINE", *STEERING)}
    found, done = environment(workspace, tool=wish, trace=True)
    assert "evil" not in json.dumps(found)
    assert found["FINE"] == "yes"
    assert events(done.trace, "resolve_env")[0]["never"] == sorted(STEERING)


@pytest.mark.parametrize(
    "declared",
    [
        {"env_config": {"env": {"PATH": "${ACME}:${PATH}"}}},
        {"env_config": {"env": {"VIA": "${ACME}/x", "PYTHONPATH": "${VIA}"}}},
        {"config": {"command": "${ACME}"}},
        {"config": {"command": "/bin/sh", "args": ["-c", "${ACME}"]}},
        {"config": {"command": "/bin/sh", "args": ["${ACME}/run.sh"]}},
        {"config": {"command": "env", "args": ["-i", "/bin/bash", "-e", "${ACME}"]}},
        {"config": {"command": "${PY}", "args": ["-c", "${ACME}"]}, "env_config": {"interpreter": {
            "type": "system_binary", "binary": "python3", "var": "PY"}}},
        {"env_config": {"interpreter": {"type": "system_binary", "binary": "sh", "var": "ACME"}}},
        {"env_config": {"interpreter": {
            "type": "local_binary", "binary": "sh", "var": "SH", "fallback": "sh",
            "search_paths": ["."], "search_roots": ["${ACME}"]}}},
        {"anchor": {
            "enabled": True, "mode": "always",
            "env_paths": {"PATH": {"prepend": ["${ACME}"]}}}},
    ],
)  # fmt: skip
def test_a_dotenv_chooses_no_program_through_another_name(workspace, declared):
    dotenv(workspace, f"ACME={workspace.root}\n")
    workspace.yaml("a/runtime", **{"config": SHOW, **declared})
    ref = workspace.yaml("a/tool", executor_id="a/runtime", env_config={"env": {"MINE": "${ACME}"}})
    try:
        done = workspace.execute(ref, trace=True)
    except RyeError as refused:
        trace = refused.trace
    else:
        trace = done.trace
        assert f"MINE={workspace.root}" not in done.data["stdout"]
        assert str(workspace.root) + ":" not in done.data["stdout"]
    assert events(trace, "resolve_env")[0]["never"] == ["ACME"]


@pytest.mark.parametrize(
    "declared",
    [
        {"env_config": {"env": {"GREETING": "${GREETING}"}}},
        {"env_config": {"env": {"SAY": "<${GREETING:-none}>"}}},
        {"config": {"args": ["-0", "SAID=${GREETING}"]}},
    ],
)
def test_a_dotenv_sets_what_a_signed_element_names(workspace, declared):
    dotenv(workspace, "GREETING=hello\nOTHER=1\n")
    workspace.yaml("a/runtime", config={**SHOW, **declared.pop("config", {})})
    done = workspace.execute(
        workspace.yaml("a/tool", executor_id="a/runtime", **declared), trace=True
    )
    assert "hello" in done.data["stdout"]
    assert "OTHER" not in done.data["stdout"]
    assert events(done.trace, "resolve_env")[0] == {
        "step": "resolve_env",
        "contributed_by": ".env",
        "keys": ["GREETING"],
        "dropped": ["OTHER"],
        "next_step": "Name it in the tool's signed env_config.env, or run: rye env allow OTHER",
    }


def test_the_user_and_the_host_allow_names_of_one_project(workspace):
    dotenv(workspace, "ONE=1\nTWO=2\nTHREE=3\nSTRIPE_SK=4\n")
    opened = workspace.open()
    path = opened.env.allow("ONE", "STRIPE_SK")
    assert path.is_relative_to(workspace.user / ".ai/config/projects/env")
    states = {one.name: one.state for one in opened.env.names()}
    assert states == {"ONE": "allowed", "TWO": "asked", "THREE": "asked", "STRIPE_SK": "allowed"}
    found, _ = environment(workspace, allow_env=["TWO"])
    assert {"ONE", "TWO", "THREE", "STRIPE_SK"} & set(found) == {"ONE", "TWO"}
    found, _ = environment(workspace, inherit_env="all")  # the host's rule counts for them too
    assert found["STRIPE_SK"] == "4"
    found, _ = environment(workspace, tool={"STRIPE_SK": "${STRIPE_SK}"})
    assert (found["ONE"], found["STRIPE_SK"], found.get("TWO")) == ("1", "4", None)
    opened.env.forget("ONE")
    assert "ONE" not in environment(workspace)[0]
    path.write_text(path.read_text().replace("STRIPE_SK", "THREE"))  # no longer what was signed
    assert "THREE" not in environment(workspace)[0]


def test_what_steers_programs_can_not_be_allowed(workspace):
    with pytest.raises(InputError, match="'LD_PRELOAD' can't be allowed"):
        workspace.open().env.allow("FINE", "LD_PRELOAD")
    for names in (["NODE_OPTIONS"], "FINE"):
        with pytest.raises(ConfigError):
            workspace.open(allow_env=names)
    with pytest.raises(InputError, match="was not allowed"):
        workspace.open().env.forget("FINE")


def test_who_executed_a_tool_that_failed_is_told_what_the_dotenv_did_not_set(workspace):
    dotenv(workspace, "A=1\nB=1\nC=1\nD=1\nE=1\nF=1\nGREETING=1\n")
    ref = workspace.shell("a/t", ': "${GREETING:?}"')
    done = workspace.execute(ref)
    assert done.to_dict()["metadata"]["hint"] == (
        "The project's .env did not set GREETING.\n"
        "Name it in the tool's signed env_config.env, or run: rye env allow GREETING"
    )
    assert "rye env allow GREETING" in str(done)
    workspace.open().env.allow("GREETING")
    done = workspace.execute(ref)
    assert done.success
    assert "hint" not in done.to_dict()["metadata"]


def test_who_lacks_a_credential_is_told_that_the_tool_has_to_name_it(workspace):
    dotenv(workspace, "STRIPE_SK=4\nURL=https://ada:lovelace@host/\nGREETING=1\n")
    ref = workspace.shell("a/t", 'echo "$1" STRIPE_SK URL >&2; exit 1')
    needed = 'Add STRIPE_SK: "${STRIPE_SK}", URL: "${URL}" to the tool\'s signed env_config.env'
    opened = workspace.open()
    for allowed in ([], ["STRIPE_SK", "URL"]):
        if allowed:
            opened.env.allow(*allowed)
        hint = workspace.execute(ref).to_dict()["metadata"]["hint"]
        assert hint.startswith("The project's .env did not set STRIPE_SK, URL.\n")
        assert needed in hint
        assert "rye env allow" not in hint  # which would not be enough
    assert [one.name for one in opened.env.names() if one.needs_naming] == ["STRIPE_SK", "URL"]
    named = {name: f"${{{name}}}" for name in ("STRIPE_SK", "URL")}
    done = workspace.execute(workspace.shell("a/n", "exit 1", env_config={"env": named}))
    assert "hint" not in done.to_dict()["metadata"]


def test_a_failure_that_names_no_variable_has_no_hint_at_the_dotenv(workspace):
    dotenv(workspace, "GREETING=1\nLD_PRELOAD=/x\n")
    for failing in ("exit 1", "echo LD_PRELOAD is not set >&2; exit 1"):
        done = workspace.execute(workspace.shell("a/t", failing))
        assert "hint" not in done.to_dict()["metadata"]


def test_names_that_are_allowed_and_missing_are_listed(workspace):
    opened = workspace.open(allow_env=["BY_HOST"])
    opened.env.allow("GREETING")
    assert {one.name: one.state for one in opened.env.names()} == {
        "BY_HOST": "missing",
        "GREETING": "missing",
    }
    dotenv(workspace, "GREETING=1\n")
    assert {one.name: one.state for one in opened.env.names()} == {
        "BY_HOST": "missing",
        "GREETING": "allowed",
    }


def test_a_dotenv_cannot_define_a_function_for_a_shell(workspace):
    dotenv(workspace, "BASH_FUNC_ls%%='() { echo evil; }'\n")
    done = workspace.execute("tool:rye/bash", {"command": "ls -d ."}, trace=True)
    assert done.data["stdout"] == ".\n"
    assert events(done.trace, "resolve_env")[0]["never"] == ["BASH_FUNC_ls%%"]


def test_a_dotenv_is_read_with_quotes_and_comments_and_without_interpolation(workspace):
    workspace.environ["OTHER"] = "other"
    dotenv(
        workspace,
        "# note\nA='single ${OTHER}'\nB=\"double\\nline\"\nC=${OTHER}\nexport D=x # c\nE=\nF\n",
    )
    found, _ = environment(workspace, allow_env=["A", "B", "C", "D", "E", "F"])
    assert {name: found.get(name) for name in "ABCDEF"} == {
        "A": "single ${OTHER}",
        "B": "double\nline",
        "C": "${OTHER}",
        "D": "x",
        "E": "",
        "F": None,
    }


def test_a_dotenv_that_cannot_be_read_is_refused(workspace):
    import os

    os.mkfifo(workspace.project / ".env")
    with pytest.raises(ConfigError, match=r"\.env") as refused:
        environment(workspace, trace=True)
    assert refused.value.trace[-1]["contributed_by"] == ".env"
    assert refused.value.trace[-1]["failed"]


@pytest.mark.parametrize("target", ["../outside", "{root}/outside", "conf/../../outside", "hop"])
def test_a_dotenv_that_is_a_link_out_of_the_project_is_not_read(workspace, target):
    (workspace.root / "outside").write_text("OTHERS=secret\n")
    (workspace.project / "conf").mkdir()
    (workspace.project / "hop").symlink_to("../outside")
    (workspace.project / ".env").symlink_to(target.format(root=workspace.root))
    found, done = environment(workspace, tool={"OTHERS": "${OTHERS}"}, trace=True)
    assert found["OTHERS"] == ""
    (told,) = [one for one in events(done.trace, "resolve_env") if one["contributed_by"] == ".env"]
    assert "leaves the project" in told["not_read"]
    assert "Put the file itself" in told["next_step"]
    (workspace.project / ".env").unlink()
    (workspace.project / ".env").symlink_to("conf/own")
    (workspace.project / "conf/own").write_text("OTHERS=own\n")
    found, _ = environment(workspace, tool={"OTHERS": "${OTHERS}"})
    assert found["OTHERS"] == "own"


def test_who_executed_a_tool_that_failed_is_told_that_the_dotenv_was_not_read(workspace):
    (workspace.root / "outside").write_text("OTHERS=secret\n")
    (workspace.project / ".env").symlink_to("../outside")
    done = workspace.execute("tool:rye/bash", {"command": "exit 3"})
    assert "leaves the project" in str(done.to_dict())


@pytest.mark.parametrize("line", ["A=b{}x", "A=b{}#x", "A={}", "export{}A=b", "#{}x"])
def test_a_dotenv_that_would_hold_up_its_reader_is_refused_at_once(workspace, line):
    for blank in (" ", "\t", "\v", "\u3000"):
        dotenv(workspace, line.format(blank * 100_000))
        with pytest.raises(ConfigError, match="blanks in a row"):
            environment(workspace)


def test_a_folder_called_dotenv_is_not_a_dotenv(workspace):
    (workspace.project / ".env").mkdir()
    found, _ = environment(workspace)
    assert found["HOME"]


def test_a_huge_dotenv_is_refused(workspace):
    dotenv(workspace, "A=" + "x" * (2 * 1024 * 1024))
    with pytest.raises(ConfigError, match=r"\.env"):
        environment(workspace)


CREDENTIALS = ["OPENAI_API_KEY", "DB_PASSWORD", "STRIPE_SK", "SLACK_WEBHOOK", "KUBECONFIG"]


def test_credentials_stay_out_of_a_tools_process_and_the_trace_counts_them(workspace):
    workspace.environ |= dict.fromkeys(CREDENTIALS, "hunter2")
    workspace.environ["PLAIN"] = "postgres://me:hunter2@db/app"
    found, done = environment(workspace, trace=True)
    assert "hunter2" not in json.dumps(found)
    assert events(done.trace, "resolve_env")[0]["withheld"] == len(CREDENTIALS) + 1


def test_a_signed_element_that_names_a_credential_gets_it_and_nothing_shows_it(workspace):
    workspace.environ |= {"OPENAI_API_KEY": "hunter2", "GITHUB_TOKEN": "hunter3"}
    ref = workspace.shell(
        "a/tool",
        '[[ "$OPENAI_API_KEY" == h*2 && -z "$GITHUB_TOKEN" ]]',
        env_config={"env": {"OPENAI_API_KEY": "${OPENAI_API_KEY}"}},
    )
    done = workspace.execute(ref, trace=True)
    assert done.success
    assert "hunter" not in done.to_json() + str(done) + repr(done) + done._repr_html_()
    contributed = [
        event for event in events(done.trace, "resolve_env") if event["contributed_by"] == "a/tool"
    ]
    assert contributed[0]["keys"] == ["OPENAI_API_KEY"]


def test_a_dotenv_credential_can_be_named_by_a_signed_element_too(workspace):
    dotenv(workspace, "STRIPE_API_KEY=hunter2\n")
    found, _ = environment(workspace, tool={"STRIPE_API_KEY": "${STRIPE_API_KEY}"})
    assert found["STRIPE_API_KEY"] == "hunter2"


def test_a_dry_run_shows_no_value_of_the_environment(workspace):
    workspace.environ["GITHUB_TOKEN"] = "hunter2"
    ref = workspace.shell("a/t", "true", env_config={"env": {"GITHUB_TOKEN": "${GITHUB_TOKEN}"}})
    done = workspace.execute(ref, dry_run=True, trace=True)
    assert "GITHUB_TOKEN" in done.to_dict()["plan"]["env"]
    assert "hunter2" not in repr(done) + str(done) + done.to_json() + done._repr_html_()


def test_a_credential_that_no_signed_element_names_is_not_expanded_into_arguments(workspace):
    workspace.environ["GITHUB_TOKEN"] = "hunter2"
    workspace.yaml("a/runtime", config={"command": "/bin/echo", "args": ["<${GITHUB_TOKEN}>"]})
    done = workspace.execute(workspace.shell("a/tool", "", executor_id="a/runtime"), trace=True)
    assert done.data["stdout"] == "<>\n"
    assert "hunter2" not in done.to_json()


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("safe", {"PLAIN"}),
        ("all", {"PLAIN", "GITHUB_TOKEN", "A_SECRET"}),
        ("none", set()),
        (["A_SECRET"], {"PLAIN", "A_SECRET"}),
    ],
)
def test_the_host_may_change_what_is_inherited(workspace, rule, expected):
    workspace.environ |= {"PLAIN": "1", "GITHUB_TOKEN": "2", "A_SECRET": "3"}
    found, _ = environment(workspace, inherit_env=rule)
    assert {"PLAIN", "GITHUB_TOKEN", "A_SECRET"} & set(found) == expected
    assert found["PATH"]


def test_the_environment_is_the_one_that_the_rye_was_opened_with(workspace, monkeypatch):
    monkeypatch.setenv("FROM_THIS_PROCESS", "1")
    found, _ = environment(workspace)
    assert "FROM_THIS_PROCESS" not in found


@pytest.mark.parametrize("entry", ["", ".", "src", "{project}", "{project}/src"])
@pytest.mark.parametrize(
    "name", ["PYTHONPATH", "LD_LIBRARY_PATH", "NODE_PATH", "BASH_ENV", "CDPATH"]
)
def test_an_inherited_path_to_code_does_not_lead_into_an_untrusted_project(workspace, name, entry):
    entry = entry.format(project=workspace.project)
    workspace.environ[name] = f"{entry}:/usr/share"
    found, done = environment(workspace, runtime={"AGAIN": f"${{{name}}}"}, trace=True)
    assert found[name] == found["AGAIN"] == "/usr/share"
    assert events(done.trace, "resolve_env")[0]["narrowed"] == [name]
    assert f"keeps the project out of {name}" in str(done)


def test_a_library_that_the_system_finds_by_its_name_may_be_preloaded(workspace):
    workspace.environ["LD_PRELOAD"] = f"libm.so.6 ./evil.so:{workspace.project}/evil.so"
    found, _ = environment(workspace)
    assert found["LD_PRELOAD"] == "libm.so.6"


def test_a_setting_called_env_is_no_search_path(workspace):
    workspace.environ["ENV"] = "production"
    assert environment(workspace)[0]["ENV"] == "production"
    workspace.environ["ENV"] = "./.shrc"
    assert "ENV" not in environment(workspace)[0]


def test_a_trusted_projects_own_folders_stay_in_an_inherited_path(workspace):
    workspace.environ["PYTHONPATH"] = f"{workspace.project}/src:src"
    found, _ = environment(workspace, trust_project_interpreters=True)
    assert found["PYTHONPATH"] == f"{workspace.project}/src"


@pytest.mark.parametrize("folder", ["{project}/.venv/bin", ".venv/bin"])
def test_what_a_tool_calls_by_name_is_no_program_of_an_untrusted_project(workspace, folder):
    planted = workspace.project / ".venv/bin/date"
    planted.parent.mkdir(parents=True)
    planted.write_text("#!/bin/sh\necho planted\n")
    planted.chmod(0o755)
    workspace.environ["PATH"] = (
        f"{folder.format(project=workspace.project)}:{workspace.environ['PATH']}"
    )
    ref = workspace.shell("a/t", "date")
    done = workspace.execute(ref, trace=True)
    assert "planted" not in done.data["stdout"]
    assert "keeps the project out of PATH" in str(done)
    if folder.startswith("{"):
        done = workspace.execute(ref, opened={"trust_project_interpreters": True})
        assert done.data["stdout"] == "planted\n"


def test_a_planted_module_is_not_what_a_system_tool_imports(workspace):
    (workspace.project / "bisect.py").write_text("raise SystemExit('planted')\n")
    (workspace.project / "f").write_text("a\n")
    workspace.environ["PYTHONPATH"] = "."
    ref, parameters = "tool:rye/file-system/edit", {"path": "f", "old_text": "a", "new_text": "b"}
    assert workspace.execute(ref, parameters).success


def test_folders_go_before_and_behind_and_once():
    changes = {"P": (["a", "b"], ["z"]), "NEW": (["n"], []), "GONE": (["?"], [])}
    changed = apply_env_paths(
        {"P": "b:c", "X": "x"}, changes, lambda text: None if text == "?" else text
    )
    assert changed == {"P": "a:b:c:z", "NEW": "n", "X": "x"}


@given(st.lists(st.text("abc", min_size=1, max_size=2), max_size=6))
def test_no_empty_entry_that_would_mean_the_working_folder_is_ever_made(entries):
    changed = apply_env_paths({"P": "::" + ":".join(entries)}, {"P": (["x"], [""])}, str)
    assert "" not in changed["P"].split(":")
