"""What a tool's process finds in its environment."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.chain.environment import apply_env_paths
from ryecore.errors import ConfigError, InputError, RyeError
from tests.house import House, events
from tests.variables import STEERING

# Prints its environment as one JSON document, with nothing that a shell would add.
SHOW = {"command": "/usr/bin/env", "args": ["-0"]}


def environment(house: House, *, tool=None, runtime=None, trace=False, **opened):
    """The environment that a tool's process gets, and the result."""
    house.yaml("a/runtime", config=SHOW, env_config={"env": runtime or {}})
    ref = house.yaml("a/tool", executor_id="a/runtime", env_config={"env": tool or {}})
    done = house.execute(ref, opened=opened, trace=trace)
    assert isinstance(done.data, dict)
    pairs = done.data["stdout"].rstrip("\0").split("\0")
    return dict(pair.split("=", 1) for pair in pairs if pair), done


def dotenv(house: House, text: str) -> None:
    (house.project / ".env").write_text(text)


def test_later_wins_process_then_dotenv_then_runtime_then_tool(house):
    house.environ |= {"A": "process", "B": "process", "C": "process"}
    dotenv(house, "A=dotenv\nD=dotenv\nE=dotenv\nF=dotenv\n")
    found, _ = environment(
        house,
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


def test_a_signed_value_may_build_on_variables_before_it(house):
    house.environ["BASE"] = "/base"
    found, _ = environment(
        house,
        runtime={"HERE": "${BASE}/r:${NOT_SET:-none}", "IN": "{project_path}"},
        tool={"THERE": "${HERE}/t"},
    )
    assert found["HERE"] == "/base/r:none"
    assert found["THERE"] == "/base/r:none/t"
    assert found["IN"] == str(house.project)


def test_what_a_variable_holds_is_not_expanded(house):
    house.environ["A"] = "${HOME} {project_path} $(id)"
    found, _ = environment(house, runtime={"B": "${A}"})
    assert found["A"] == found["B"] == "${HOME} {project_path} $(id)"


def test_nothing_of_a_dotenv_counts_that_nobody_asks_for(house):
    names = sorted({*STEERING, "FINE", "API_URL", "STRIPE_SK"})
    dotenv(house, "".join(f"{name}=evil\n" for name in names))
    found, done = environment(house, trace=True)
    assert "evil" not in found.values()
    event = events(done.trace, "resolve_env")[0]
    assert event["keys"] == []
    assert event["dropped"] == names
    assert {*STEERING} <= {*event["never"]}
    assert "rye env allow API_URL FINE" in event["next_step"]
    assert "rye env allow" in str(done)


def test_what_steers_programs_never_counts_though_a_signed_element_and_the_user_ask(house):
    dotenv(house, "FINE=yes\n" + "".join(f"{name}=evil\n" for name in STEERING))
    house.open().env.allow("FINE")
    wish = {name: f"${{{name}}}" for name in ("FINE", *STEERING)}
    found, done = environment(house, tool=wish, trace=True)
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
def test_a_dotenv_chooses_no_program_through_another_name(house, declared):
    dotenv(house, f"ACME={house.root}\n")
    house.yaml("a/runtime", **{"config": SHOW, **declared})
    ref = house.yaml("a/tool", executor_id="a/runtime", env_config={"env": {"MINE": "${ACME}"}})
    try:
        done = house.execute(ref, trace=True)
    except RyeError as refused:
        trace = refused.trace
    else:
        trace = done.trace
        assert f"MINE={house.root}" not in done.data["stdout"]
        assert str(house.root) + ":" not in done.data["stdout"]
    assert events(trace, "resolve_env")[0]["never"] == ["ACME"]


@pytest.mark.parametrize(
    "declared",
    [
        {"env_config": {"env": {"GREETING": "${GREETING}"}}},
        {"env_config": {"env": {"SAY": "<${GREETING:-none}>"}}},
        {"config": {"args": ["-0", "SAID=${GREETING}"]}},
    ],
)
def test_a_dotenv_sets_what_a_signed_element_names(house, declared):
    dotenv(house, "GREETING=hello\nOTHER=1\n")
    house.yaml("a/runtime", config={**SHOW, **declared.pop("config", {})})
    done = house.execute(house.yaml("a/tool", executor_id="a/runtime", **declared), trace=True)
    assert "hello" in done.data["stdout"]
    assert "OTHER" not in done.data["stdout"]
    assert events(done.trace, "resolve_env")[0] == {
        "step": "resolve_env",
        "contributed_by": ".env",
        "keys": ["GREETING"],
        "dropped": ["OTHER"],
        "next_step": "Name it in the tool's signed env_config.env, or run: rye env allow OTHER",
    }


def test_the_user_and_the_host_allow_names_of_one_project(house):
    dotenv(house, "ONE=1\nTWO=2\nTHREE=3\nSTRIPE_SK=4\n")
    opened = house.open()
    path = opened.env.allow("ONE", "STRIPE_SK")
    assert path.is_relative_to(house.user / ".ai/config/projects/env")
    states = {one.name: one.state for one in opened.env.names()}
    assert states == {"ONE": "allowed", "TWO": "asked", "THREE": "asked", "STRIPE_SK": "allowed"}
    found, _ = environment(house, allow_env=["TWO"])
    assert {"ONE", "TWO", "THREE", "STRIPE_SK"} & set(found) == {"ONE", "TWO"}
    found, _ = environment(house, inherit_env="all")  # the host's rule counts for them too
    assert found["STRIPE_SK"] == "4"
    found, _ = environment(house, tool={"STRIPE_SK": "${STRIPE_SK}"})
    assert (found["ONE"], found["STRIPE_SK"], found.get("TWO")) == ("1", "4", None)
    opened.env.forget("ONE")
    assert "ONE" not in environment(house)[0]
    path.write_text(path.read_text().replace("STRIPE_SK", "THREE"))  # no longer what was signed
    assert "THREE" not in environment(house)[0]


def test_what_steers_programs_can_not_be_allowed(house):
    with pytest.raises(InputError, match="'LD_PRELOAD' can't be allowed"):
        house.open().env.allow("FINE", "LD_PRELOAD")
    for names in (["NODE_OPTIONS"], "FINE"):
        with pytest.raises(ConfigError):
            house.open(allow_env=names)
    with pytest.raises(InputError, match="was not allowed"):
        house.open().env.forget("FINE")


def test_who_executed_a_tool_that_failed_is_told_what_the_dotenv_did_not_set(house):
    dotenv(house, "A=1\nB=1\nC=1\nD=1\nE=1\nF=1\nGREETING=1\n")
    ref = house.shell("a/t", ': "${GREETING:?}"')
    done = house.execute(ref)
    assert done.to_dict()["metadata"]["hint"] == (
        "The project's .env did not set GREETING.\n"
        "Name it in the tool's signed env_config.env, or run: rye env allow GREETING"
    )
    assert "rye env allow GREETING" in str(done)
    house.open().env.allow("GREETING")
    done = house.execute(ref)
    assert done.success
    assert "hint" not in done.to_dict()["metadata"]


def test_who_lacks_a_credential_is_told_that_the_tool_has_to_name_it(house):
    dotenv(house, "STRIPE_SK=4\nURL=https://ada:lovelace@host/\nGREETING=1\n")
    ref = house.shell("a/t", 'echo "$1" STRIPE_SK URL >&2; exit 1')
    needed = 'Add STRIPE_SK: "${STRIPE_SK}", URL: "${URL}" to the tool\'s signed env_config.env'
    opened = house.open()
    for allowed in ([], ["STRIPE_SK", "URL"]):
        if allowed:
            opened.env.allow(*allowed)
        hint = house.execute(ref).to_dict()["metadata"]["hint"]
        assert hint.startswith("The project's .env did not set STRIPE_SK, URL.\n")
        assert needed in hint
        assert "rye env allow" not in hint  # which would not be enough
    assert [one.name for one in opened.env.names() if one.needs_naming] == ["STRIPE_SK", "URL"]
    named = {name: f"${{{name}}}" for name in ("STRIPE_SK", "URL")}
    done = house.execute(house.shell("a/n", "exit 1", env_config={"env": named}))
    assert "hint" not in done.to_dict()["metadata"]


def test_a_failure_that_names_no_variable_has_no_hint_at_the_dotenv(house):
    dotenv(house, "GREETING=1\nLD_PRELOAD=/x\n")
    for failing in ("exit 1", "echo LD_PRELOAD is not set >&2; exit 1"):
        done = house.execute(house.shell("a/t", failing))
        assert "hint" not in done.to_dict()["metadata"]


def test_names_that_are_allowed_and_missing_are_listed(house):
    opened = house.open(allow_env=["BY_HOST"])
    opened.env.allow("GREETING")
    assert {one.name: one.state for one in opened.env.names()} == {
        "BY_HOST": "missing",
        "GREETING": "missing",
    }
    dotenv(house, "GREETING=1\n")
    assert {one.name: one.state for one in opened.env.names()} == {
        "BY_HOST": "missing",
        "GREETING": "allowed",
    }


def test_a_dotenv_cannot_define_a_function_for_a_shell(house):
    dotenv(house, "BASH_FUNC_ls%%='() { echo evil; }'\n")
    done = house.execute("tool:rye/bash", {"command": "ls -d ."}, trace=True)
    assert done.data["stdout"] == ".\n"
    assert events(done.trace, "resolve_env")[0]["never"] == ["BASH_FUNC_ls%%"]


def test_a_dotenv_is_read_with_quotes_and_comments_and_without_interpolation(house):
    house.environ["OTHER"] = "other"
    dotenv(
        house,
        "# note\nA='single ${OTHER}'\nB=\"double\\nline\"\nC=${OTHER}\nexport D=x # c\nE=\nF\n",
    )
    found, _ = environment(house, allow_env=["A", "B", "C", "D", "E", "F"])
    assert {name: found.get(name) for name in "ABCDEF"} == {
        "A": "single ${OTHER}",
        "B": "double\nline",
        "C": "${OTHER}",
        "D": "x",
        "E": "",
        "F": None,
    }


def test_a_dotenv_that_cannot_be_read_is_refused(house):
    import os

    os.mkfifo(house.project / ".env")
    with pytest.raises(ConfigError, match=r"\.env") as refused:
        environment(house, trace=True)
    assert refused.value.trace[-1]["contributed_by"] == ".env"
    assert refused.value.trace[-1]["failed"]


@pytest.mark.parametrize("target", ["../outside", "{root}/outside", "conf/../../outside", "hop"])
def test_a_dotenv_that_is_a_link_out_of_the_project_is_not_read(house, target):
    (house.root / "outside").write_text("OTHERS=secret\n")
    (house.project / "conf").mkdir()
    (house.project / "hop").symlink_to("../outside")
    (house.project / ".env").symlink_to(target.format(root=house.root))
    found, done = environment(house, tool={"OTHERS": "${OTHERS}"}, trace=True)
    assert found["OTHERS"] == ""
    (told,) = [one for one in events(done.trace, "resolve_env") if one["contributed_by"] == ".env"]
    assert "leaves the project" in told["not_read"]
    assert "Put the file itself" in told["next_step"]
    (house.project / ".env").unlink()
    (house.project / ".env").symlink_to("conf/own")
    (house.project / "conf/own").write_text("OTHERS=own\n")
    found, _ = environment(house, tool={"OTHERS": "${OTHERS}"})
    assert found["OTHERS"] == "own"


def test_who_executed_a_tool_that_failed_is_told_that_the_dotenv_was_not_read(house):
    (house.root / "outside").write_text("OTHERS=secret\n")
    (house.project / ".env").symlink_to("../outside")
    done = house.execute("tool:rye/bash", {"command": "exit 3"})
    assert "leaves the project" in str(done.to_dict())


@pytest.mark.parametrize("line", ["A=b{}x", "A=b{}#x", "A={}", "export{}A=b", "#{}x"])
def test_a_dotenv_that_would_hold_up_its_reader_is_refused_at_once(house, line):
    for blank in (" ", "\t", "\v", "\u3000"):
        dotenv(house, line.format(blank * 100_000))
        with pytest.raises(ConfigError, match="blanks in a row"):
            environment(house)


def test_a_folder_called_dotenv_is_not_a_dotenv(house):
    (house.project / ".env").mkdir()
    found, _ = environment(house)
    assert found["HOME"]


def test_a_huge_dotenv_is_refused(house):
    dotenv(house, "A=" + "x" * (2 * 1024 * 1024))
    with pytest.raises(ConfigError, match=r"\.env"):
        environment(house)


CREDENTIALS = ["OPENAI_API_KEY", "DB_PASSWORD", "STRIPE_SK", "SLACK_WEBHOOK", "KUBECONFIG"]


def test_credentials_stay_out_of_a_tools_process_and_the_trace_counts_them(house):
    house.environ |= dict.fromkeys(CREDENTIALS, "hunter2")
    house.environ["PLAIN"] = "postgres://me:hunter2@db/app"
    found, done = environment(house, trace=True)
    assert "hunter2" not in json.dumps(found)
    assert events(done.trace, "resolve_env")[0]["withheld"] == len(CREDENTIALS) + 1


def test_a_signed_element_that_names_a_credential_gets_it_and_nothing_shows_it(house):
    house.environ |= {"OPENAI_API_KEY": "hunter2", "GITHUB_TOKEN": "hunter3"}
    ref = house.shell(
        "a/tool",
        '[[ "$OPENAI_API_KEY" == h*2 && -z "$GITHUB_TOKEN" ]]',
        env_config={"env": {"OPENAI_API_KEY": "${OPENAI_API_KEY}"}},
    )
    done = house.execute(ref, trace=True)
    assert done.success
    assert "hunter" not in done.to_json() + str(done) + repr(done) + done._repr_html_()
    contributed = [
        event for event in events(done.trace, "resolve_env") if event["contributed_by"] == "a/tool"
    ]
    assert contributed[0]["keys"] == ["OPENAI_API_KEY"]


def test_a_dotenv_credential_can_be_named_by_a_signed_element_too(house):
    dotenv(house, "STRIPE_API_KEY=hunter2\n")
    found, _ = environment(house, tool={"STRIPE_API_KEY": "${STRIPE_API_KEY}"})
    assert found["STRIPE_API_KEY"] == "hunter2"


def test_a_dry_run_shows_no_value_of_the_environment(house):
    house.environ["GITHUB_TOKEN"] = "hunter2"
    ref = house.shell("a/t", "true", env_config={"env": {"GITHUB_TOKEN": "${GITHUB_TOKEN}"}})
    done = house.execute(ref, dry_run=True, trace=True)
    assert "GITHUB_TOKEN" in done.to_dict()["plan"]["env"]
    assert "hunter2" not in repr(done) + str(done) + done.to_json() + done._repr_html_()


def test_a_credential_that_no_signed_element_names_is_not_expanded_into_arguments(house):
    house.environ["GITHUB_TOKEN"] = "hunter2"
    house.yaml("a/runtime", config={"command": "/bin/echo", "args": ["<${GITHUB_TOKEN}>"]})
    done = house.execute(house.shell("a/tool", "", executor_id="a/runtime"), trace=True)
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
def test_the_host_may_change_what_is_inherited(house, rule, expected):
    house.environ |= {"PLAIN": "1", "GITHUB_TOKEN": "2", "A_SECRET": "3"}
    found, _ = environment(house, inherit_env=rule)
    assert {"PLAIN", "GITHUB_TOKEN", "A_SECRET"} & set(found) == expected
    assert found["PATH"]


def test_the_environment_is_the_one_that_the_rye_was_opened_with(house, monkeypatch):
    monkeypatch.setenv("FROM_THIS_PROCESS", "1")
    found, _ = environment(house)
    assert "FROM_THIS_PROCESS" not in found


@pytest.mark.parametrize("entry", ["", ".", "src", "{project}", "{project}/src"])
@pytest.mark.parametrize(
    "name", ["PYTHONPATH", "LD_LIBRARY_PATH", "NODE_PATH", "BASH_ENV", "CDPATH"]
)
def test_an_inherited_path_to_code_does_not_lead_into_an_untrusted_project(house, name, entry):
    entry = entry.format(project=house.project)
    house.environ[name] = f"{entry}:/usr/share"
    found, done = environment(house, runtime={"AGAIN": f"${{{name}}}"}, trace=True)
    assert found[name] == found["AGAIN"] == "/usr/share"
    assert events(done.trace, "resolve_env")[0]["narrowed"] == [name]
    assert f"keeps the project out of {name}" in str(done)


def test_a_library_that_the_system_finds_by_its_name_may_be_preloaded(house):
    house.environ["LD_PRELOAD"] = f"libm.so.6 ./evil.so:{house.project}/evil.so"
    found, _ = environment(house)
    assert found["LD_PRELOAD"] == "libm.so.6"


def test_a_setting_called_env_is_no_search_path(house):
    house.environ["ENV"] = "production"
    assert environment(house)[0]["ENV"] == "production"
    house.environ["ENV"] = "./.shrc"
    assert "ENV" not in environment(house)[0]


def test_a_trusted_projects_own_folders_stay_in_an_inherited_path(house):
    house.environ["PYTHONPATH"] = f"{house.project}/src:src"
    found, _ = environment(house, trust_project_interpreters=True)
    assert found["PYTHONPATH"] == f"{house.project}/src"


@pytest.mark.parametrize("folder", ["{project}/.venv/bin", ".venv/bin"])
def test_what_a_tool_calls_by_name_is_no_program_of_an_untrusted_project(house, folder):
    planted = house.project / ".venv/bin/date"
    planted.parent.mkdir(parents=True)
    planted.write_text("#!/bin/sh\necho planted\n")
    planted.chmod(0o755)
    house.environ["PATH"] = f"{folder.format(project=house.project)}:{house.environ['PATH']}"
    ref = house.shell("a/t", "date")
    done = house.execute(ref, trace=True)
    assert "planted" not in done.data["stdout"]
    assert "keeps the project out of PATH" in str(done)
    if folder.startswith("{"):
        done = house.execute(ref, opened={"trust_project_interpreters": True})
        assert done.data["stdout"] == "planted\n"


def test_a_planted_module_is_not_what_a_system_tool_imports(house):
    (house.project / "bisect.py").write_text("raise SystemExit('planted')\n")
    (house.project / "f").write_text("a\n")
    house.environ["PYTHONPATH"] = "."
    ref, parameters = "tool:rye/file-system/edit", {"path": "f", "old_text": "a", "new_text": "b"}
    assert house.execute(ref, parameters).success


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
