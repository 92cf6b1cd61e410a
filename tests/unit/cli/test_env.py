"""`rye env`, as a real process."""

import pytest


def test_names_of_a_dotenv_are_listed_allowed_and_forgotten_by_name_alone(workspace, run):
    (workspace.project / ".env").write_text(
        "GREETING=hunter2\nSTRIPE_SK=hunter2\nLD_PRELOAD=hunter2\n"
    )
    listed = run("env", "list")
    assert "✗ LD_PRELOAD  never set" in listed.out
    assert "· GREETING  set for tools whose signed elements ask for it" in listed.out
    allowed = run("env", "allow", "GREETING", "STRIPE_SK")
    assert "GREETING, STRIPE_SK" in allowed.out
    assert "STRIPE_SK: looks like a credential" in allowed.err
    assert "not in this project's .env" not in allowed.err
    assert "MISTYPED: not in this project's .env yet" in run("env", "allow", "MISTYPED").err
    listed = run("env", "list")
    assert "✓ GREETING  set for every tool" in listed.out
    assert "hunter2" not in listed.out
    assert run("env", "forget", "GREETING").code == 0
    states = {one["name"]: one["state"] for one in run("env", "list", "--json").json["names"]}
    assert states == {
        "GREETING": "asked",
        "LD_PRELOAD": "never",
        "MISTYPED": "missing",
        "STRIPE_SK": "allowed",
    }
    refused = run("env", "allow", "LD_PRELOAD")
    assert refused.code == 2
    assert "it steers programs" in refused.err
    assert "! MISTYPED  allowed, but not in this project's .env" in run("env", "list").out


@pytest.mark.parametrize("command", ["allow", "forget"])
@pytest.mark.parametrize("name", ["A B", "", "1X", "a-b", "X=hunter2", "=hunter2", "A B=hunter2"])
def test_what_is_no_variables_name_is_said_with_what_one_looks_like(workspace, run, command, name):
    refused = run("env", command, "--", name)
    assert refused.code == 2
    assert "steers" not in refused.err
    assert "hunter2" not in refused.err
    assert ("the name alone: X" if name == "X=hunter2" else "like GREETING") in refused.err


def test_lines_of_a_dotenv_that_can_not_be_read_are_named_once_without_their_text(workspace, run):
    (workspace.project / ".env").write_text(
        "GREETING=hi\n\n\nthe password is hunter2\n'x\nA=\"hunter2\nB=1\n"
    )
    workspace.shell("a/t", 'echo "$GREETING"', env_config={"env": {"GREETING": "${GREETING}"}})
    for command in (["env", "list"], ["execute", "tool:a/t"]):
        done = run(*command)
        assert done.code == 0
        assert done.err == (
            f"! {workspace.project}/.env, lines 4, 5, 6: passed over. "
            "Write NAME=value, with quotes that are closed.\n"
        )


def test_a_line_without_a_value_and_a_misspelt_name_are_said(workspace, run):
    (workspace.project / ".env").write_text("FOO\nCURRENCY=EUR\n")
    assert "! FOO  has no value, so it is not set: write NAME=value" in run("env", "list").out
    done = run("env", "allow", "CURENCY")
    assert "not in this project's .env yet; did you mean CURRENCY?" in done.err
