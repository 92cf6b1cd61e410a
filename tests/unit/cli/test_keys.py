"""`rye keys` and `rye trust-project`, as real processes."""

import stat
from pathlib import Path

import pytest

from ryecore import SigningKey
from tests.workspace import BASH, Workspace


def test_a_first_key_is_made_once_with_closed_permissions_and_trusted(workspace, run, tmp_path):
    home = tmp_path / "fresh"
    done = run("keys", "generate", "--owner", "Ann", "--json", USER_SPACE=str(home))
    assert done.code == 0
    private = Path(done.json["path"]) / "private_key.pem"
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert stat.S_IMODE(private.parent.stat().st_mode) == 0o700
    before = private.read_bytes()
    again = run("keys", "generate", USER_SPACE=str(home))
    assert again.code == 2
    assert "never overwritten" in again.err
    assert private.read_bytes() == before
    listed = run("keys", "list", "--json", USER_SPACE=str(home)).json["keys"]
    assert [(one["fingerprint"], one["owner"]) for one in listed] == [
        (done.json["fingerprint"], "Ann")
    ]
    assert before.decode().splitlines()[1] not in run("keys", "list", USER_SPACE=str(home)).out


def test_keys_list_says_how_to_begin(run, tmp_path):
    assert "rye keys generate" in run("keys", "list", USER_SPACE=str(tmp_path / "x")).out


def colleague(workspace: Workspace, tmp_path: Path) -> tuple[SigningKey, Path]:
    """A colleague's key, its public half as a file, and a tool that it has signed."""
    key = SigningKey.generate()
    pem = tmp_path / "colleague.pem"
    pem.write_bytes(key.public.pem)
    path = workspace.write("tools/a/t.sh", f"# __executor_id__ = '{BASH}'\n", sign=False)
    workspace.sign(path, key=key)
    return key, pem


def test_a_colleagues_key_is_trusted_and_revoked(workspace, run, tmp_path):
    key, pem = colleague(workspace, tmp_path)
    refused = run("execute", "tool:a/t")
    assert refused.code == 2
    assert "rye keys trust" in refused.err
    trusted = run("keys", "trust", str(pem), "--owner", "Bob", "--json")
    assert trusted.json["fingerprint"] == key.public.fingerprint
    assert run("execute", "tool:a/t").code == 0
    assert "Bob" in run("keys", "list").out
    assert run("keys", "trust", str(pem), "--revoke").code == 0
    revoked = run("execute", "tool:a/t")
    assert revoked.code == 2
    assert "revoked" in revoked.err
    assert run("keys", "trust", str(pem), "--reinstate").code == 0
    (known,) = [
        one
        for one in run("keys", "list", "--json").json["keys"]
        if one["fingerprint"] == key.public.fingerprint
    ]
    assert (known["owner"], known["status"]) == ("Bob", "trusted")


def test_a_key_that_a_project_brings_is_trusted_by_its_file(workspace, run, tmp_path):
    key, _ = colleague(workspace, tmp_path)
    workspace.write(
        f"config/keys/trusted/{key.public.fingerprint}.toml",
        f'owner = "Bob"\n[public_key]\npem = """{key.public.pem.decode()}"""\n',
        key=key,
    )
    refused = run("execute", "tool:a/t")
    assert refused.code == 2
    named = [part for part in refused.err.split() if part.endswith(".toml")]
    assert run("keys", "trust", named[-1]).code == 0
    assert run("execute", "tool:a/t").code == 0


def test_a_key_may_expire(workspace, run, tmp_path):
    _, pem = colleague(workspace, tmp_path)
    assert run("keys", "trust", str(pem), "--not-after", "2999-01-31T00:00:00Z").code == 0
    assert run("execute", "tool:a/t").code == 0
    assert "2999" in run("keys", "list").out
    done = run("keys", "trust", str(pem), "--not-after", "2001-01-31T00:00:00Z")
    assert done.code == 2
    assert "is over" in done.err
    assert run("execute", "tool:a/t").code == 0


@pytest.mark.parametrize("when", ["tomorrow", "2027-01-31"])
def test_an_expiry_that_is_no_time_is_refused(workspace, run, tmp_path, when):
    _, pem = colleague(workspace, tmp_path)
    done = run("keys", "trust", str(pem), "--not-after", when)
    assert done.code == 2
    assert run("execute", "tool:a/t").code == 2


def test_a_key_may_be_vouched_for_in_this_project_alone(workspace, run, tmp_path):
    key, pem = colleague(workspace, tmp_path)
    assert run("keys", "trust", str(pem), "--in-project").code == 0
    assert workspace.path(f"config/keys/trusted/{key.public.fingerprint}.toml").is_file()
    assert run("execute", "tool:a/t").code == 0


def test_trusting_needs_a_key_of_ones_own(workspace, run, tmp_path):
    _, pem = colleague(workspace, tmp_path)
    done = run("keys", "trust", str(pem), USER_SPACE=str(tmp_path / "x"))
    assert done.code == 2
    assert "rye keys generate" in done.err


def test_a_file_that_holds_no_public_key_is_named(workspace, run):
    for name in ("notes.txt", "notes.toml"):
        (workspace.project / name).write_text("a = 1\n")
        refused = run("keys", "trust", name)
        assert refused.code == 2
        assert f"{name} holds no public key" in refused.err
        assert "public_key.pem" in refused.err


def test_trust_project_makes_its_own_interpreter_run(workspace, run):
    del workspace.environ["RYE_PYTHON"]
    python = workspace.project / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho '\"mine\"'\n")
    python.chmod(0o755)
    workspace.python("a/t", "def execute(p, project):\n    return 'theirs'")
    assert run("execute", "tool:a/t", "--json").json["data"] == "theirs"
    trusted = run("trust-project")
    assert trusted.code == 0
    assert "to take that back, remove" in trusted.out
    assert run("execute", "tool:a/t", "--json").json["data"] == "mine"
    Path(run("trust-project", "--json").json["path"]).unlink()
    assert run("execute", "tool:a/t", "--json").json["data"] == "theirs"
