"""What a tool's process finds in its environment."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.chain.environment import apply_env_paths, may_inherit, may_set_from_dotenv
from ryecore.errors import ConfigError
from tests.house import House, events

# Prints its environment as one JSON document, with nothing that a shell would add.
SHOW = {"command": "/usr/bin/env", "args": ["-0"]}


def environment(house: House, *, tool=None, runtime=None, trace=False, **opened):
    """The environment that a tool's process gets, and the result."""
    house.yaml("a/runtime", config=SHOW, env_config={"env": runtime or {}})
    ref = house.yaml("a/tool", executor_id="a/runtime", env_config={"env": tool or {}})
    done = house.execute(ref, opened=opened, trace=trace)
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
        tool={"C": "tool", "F": "tool"},
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


@pytest.mark.parametrize(
    "name",
    ["LD_PRELOAD", "LD_LIBRARY_PATH", "ld_preload", "PYTHONPATH", "PYTHONSTARTUP", "NODE_OPTIONS",
     "RUBYOPT", "PERL5LIB", "BASH_ENV", "ENV", "IFS", "SHELLOPTS", "PROMPT_COMMAND",
     "GIT_SSH_COMMAND", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "SSL_CERT_FILE", "HOME",
     "REQUESTS_CA_BUNDLE",
     "XDG_CONFIG_HOME", "OPENAI_BASE_URL", "PATH", "RYE_DEV_MODE", "RYE_PYTHON", "USER_SPACE",
     "RYE_SIGNING_KEY_DIR", "LESSOPEN", "PAGER", "EDITOR", "GCONV_PATH", "BUNDLE_GEMFILE",
     "SSLKEYLOGFILE", "BASH_FUNC_ls%%", "a-b", "1A", ""],
)  # fmt: skip
def test_a_dotenv_never_sets(name):
    assert not may_set_from_dotenv(name)


@pytest.mark.parametrize("name", ["DATABASE", "MY_PATH_TO", "APP_ENV", "HOMEPAGE", "LDAP_HOST"])
def test_a_dotenv_may_set(name):
    assert may_set_from_dotenv(name)


def test_what_a_dotenv_must_not_set_is_dropped_and_the_trace_names_it(house):
    dotenv(house, "LD_PRELOAD=/evil.so\nexport BASH_ENV=/evil\nPATH=/evil\nFINE=yes\n")
    found, done = environment(house, trace=True)
    assert "LD_PRELOAD" not in found
    assert "BASH_ENV" not in found
    assert "/evil" not in found["PATH"]
    assert found["FINE"] == "yes"
    assert events(done.trace, "resolve_env")[0] == {
        "step": "resolve_env",
        "contributed_by": ".env",
        "keys": ["FINE"],
        "dropped": ["BASH_ENV", "LD_PRELOAD", "PATH"],
    }
    assert "dropped BASH_ENV, LD_PRELOAD, PATH" in str(done)


def test_a_dotenv_cannot_define_a_function_for_a_shell(house):
    dotenv(house, "BASH_FUNC_ls%%='() { echo evil; }'\n")
    done = house.execute("tool:rye/bash", {"command": "ls -d ."}, trace=True)
    assert done.data["stdout"] == ".\n"
    assert events(done.trace, "resolve_env")[0]["dropped"] == ["BASH_FUNC_ls%%"]


def test_a_dotenv_is_read_with_quotes_and_comments_and_without_interpolation(house):
    house.environ["OTHER"] = "other"
    dotenv(
        house,
        "# note\nA='single ${OTHER}'\nB=\"double\\nline\"\nC=${OTHER}\nexport D=x # c\nE=\nF\n",
    )
    found, _ = environment(house)
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


def test_a_folder_called_dotenv_is_not_a_dotenv(house):
    (house.project / ".env").mkdir()
    found, _ = environment(house)
    assert found["HOME"]


def test_a_huge_dotenv_is_refused(house):
    dotenv(house, "A=" + "x" * (2 * 1024 * 1024))
    with pytest.raises(ConfigError, match=r"\.env"):
        environment(house)


CREDENTIALS = [
    "OPENAI_API_KEY", "ANTHROPIC_APIKEY", "GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD",
    "PGPASSWORD", "KEY_PASSPHRASE", "GOOGLE_APPLICATION_CREDENTIALS", "my_secret", "OPENAI_KEY",
    "SENTRY_DSN", "NPM_AUTH", "GITHUB_PAT", "DATABASE_URL", "AZURE_CONNECTION_STRING",
]  # fmt: skip


@pytest.mark.parametrize("name", CREDENTIALS)
def test_what_looks_like_a_credential_is_not_inherited(name):
    assert not may_inherit(name, "safe")


@pytest.mark.parametrize("name", ["PATH", "HOME", "KEYBOARD", "EDITOR", "RYE_SIGNING_KEY_DIR"])
def test_other_variables_are_inherited(name):
    assert may_inherit(name, "safe")


def test_credentials_stay_out_of_a_tools_process_and_the_trace_counts_them(house):
    house.environ |= dict.fromkeys(CREDENTIALS, "hunter2")
    dotenv(house, "STRIPE_API_KEY=hunter2\n")
    found, done = environment(house, trace=True)
    assert "hunter2" not in json.dumps(found)
    assert events(done.trace, "resolve_env")[1]["withheld"] == len(CREDENTIALS) + 1


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
