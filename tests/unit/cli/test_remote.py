"""`rye remote`, and `rye execute --push-plan`."""

from tests.unit.cli.conftest import Run
from tests.unit.remote.test_config import GPU, KEY
from tests.workspace import Workspace


def test_a_plan_shows_what_would_travel_and_what_not(workspace: Workspace, run: Run) -> None:
    workspace.shell("acme/a", "true")
    (workspace.project / "src").mkdir()
    (workspace.project / "src/a.py").write_text("1")
    (workspace.project / "src/.env.local").write_text("TOKEN=1")
    workspace.write(
        "config/remotes/remotes.yaml", GPU + '    push: {include: ["src/**", "no/*"]}\n'
    )
    for command in (
        ("remote", "plan", "gpu"),
        ("remote", "plan"),
        ("execute", "tool:acme/a", "--push-plan"),
        ("execute", "tool:acme/a", "--target", "remote:gpu", "--push-plan"),
    ):
        plan = run(*command, "--json").json
        assert [one["path"] for one in plan["files"] if one["space"] == "project"] == [
            ".ai/tools/acme/a.sh",
            "src/a.py",
        ]
        assert plan["size_bytes"] == sum(one["size_bytes"] for one in plan["files"])
        left = {one["path"]: one["reason"] for one in plan["left_out"]}
        assert left["src/.env.local"] == "may hold variables that are secret"
        assert plan["unmatched_patterns"] == ["no/*"]
    shown = run("remote", "plan").out
    assert "src/a.py" in shown
    assert "src/.env.local  may hold variables that are secret" in shown


def test_remotes_are_listed_with_their_fingerprints(workspace: Workspace, run: Run) -> None:
    assert "rye remote add" in run("remote", "list").out
    assert run("remote", "list", "--json").json["remotes"] == []
    workspace.write("config/remotes/remotes.yaml", GPU)
    (listed,) = run("remote", "list", "--json").json["remotes"]
    assert (listed["name"], listed["fingerprint"]) == ("gpu", KEY.fingerprint)
    assert KEY.fingerprint in run("remote", "list").out


def test_an_unknown_remote_is_refused(workspace: Workspace, run: Run) -> None:
    del workspace
    done = run("execute", "tool:acme/a", "--target", "remote:gpu", "--push-plan")
    assert done.code == 2
    assert "rye remote add gpu URL" in done.err
