"""`rye node`: the operator's commands. `tests/unit/node/test_serve.py` serves."""

import pytest

from tests.unit.cli.conftest import Run
from tests.workspace import Workspace


@pytest.fixture
def public_key(workspace: Workspace) -> str:
    return str(workspace.keys.folder / "public_key.pem")


def test_an_operator_makes_a_node_and_allows_a_caller(
    run: Run, workspace: Workspace, public_key: str
) -> None:
    made = run("node", "init", "--json").json
    allowed = run(
        "node", "allow", public_key, "--label", "ci", "--max-runs", "2", "--max-spend", "12.50",
        "--not-after", "2999-01-01T00:00:00Z", "--json",
    ).json  # fmt: skip
    listed = run("node", "callers", "--json").json["callers"]
    shown = run("node", "show")
    table = run("node", "callers").out

    assert made["folder"] == str(workspace.user / ".ai" / "node")
    assert allowed["fingerprint"] == workspace.key.public.fingerprint
    assert [(one["label"], one["max_runs"], one["max_spend_usd"]) for one in listed] == [
        ("ci", 2, 12.5)
    ]
    assert listed[0]["scopes"] == ["rye.execute.*", "rye.fetch.*"]
    assert made["fingerprint"] in shown.out
    for line in made["node_key"].splitlines():
        assert line in shown.out
    assert "ci" in table
    assert "2 runs, 10.7 GB, $12.50" in table
    assert "until 2999-01-01T00:00:00Z" in table


def test_a_revoked_key_may_not_call(run: Run, workspace: Workspace, public_key: str) -> None:
    run("node", "init")
    run("node", "allow", public_key)

    assert run("node", "revoke", public_key).code == 0
    again = run("node", "revoke", workspace.key.public.fingerprint)

    assert run("node", "callers", "--json").json["callers"] == []
    assert again.code == 2
    assert "rye node callers" in again.err


def test_a_file_that_the_node_did_not_sign_is_shown_as_such(
    run: Run, workspace: Workspace, public_key: str
) -> None:
    run("node", "init")
    path = workspace.user / ".ai/node/callers" / ("ab" * 8 + ".json")
    path.write_text("{}")

    assert f"not signed by this node's key: {path}" in run("node", "callers").out


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--scope", "rye.sign.tool.acme"], "nobody signs on a node"),
        (["--scope", "everything"], "is not a scope"),
        (["--max-spend", "lots"], "Write such as 25.50"),
        (["--max-spend", "NaN"], "Write such as 25.50"),
        (["--max-spend", "-1"], "Write such as 25.50"),
        (["--not-after", "2020-01-01T00:00:00Z"], "not a time in the future"),
    ],
)
def test_what_a_caller_can_not_have_is_refused(
    run: Run, public_key: str, arguments: list[str], names: str
) -> None:
    run("node", "init")

    done = run("node", "allow", public_key, *arguments)

    assert done.code == 2
    assert names in done.err
    assert run("node", "callers", "--json").json["callers"] == []


def test_without_a_node_each_command_says_how_to_make_one(run: Run, public_key: str) -> None:
    for command in (["show"], ["callers"], ["serve"], ["allow", public_key], ["revoke", "ab"]):
        done = run("node", *command)

        assert done.code == 2, command
        assert "rye node init" in done.err
