"""What travels to a node, and what never does."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ryecore.errors import LinkLeavesSpace
from ryecore.remote.inspected import has_rested
from ryecore.remote.plan import PushPlan, PushPlanner
from ryecore.remote.rules import why_content_stays, why_it_stays, why_no_pattern
from ryecore.remote.selection import FileIdentity
from tests.workspace import Workspace

PRIVATE_KEY = b"-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAAAAAAAAAAAAAAAAAAAAAAA\n"

NEVER_BY_NAME = [
    ".env", ".env.local", ".env.production", ".envrc", "prod.env", ".flaskenv", ".ENV",
    "src/.env", "src/.env/values", ".ai/tools/acme/.env.local",
    "id_rsa", "id_ed25519", "id_ed25519.bak", "id_ecdsa_sk", "deploy_rsa", "keys/id_rsa",
    ".ai/tools/acme/id_rsa", ".ai/knowledge/id_dsa",
    "server.pem", "tls.key", "store.p12", "store.pfx", "store.jks", "login.kdbx", "putty.ppk",
    "db.secret", "db.secrets", "secrets.yaml", "secrets.json", "secret.toml", "secrets.prod.yaml",
    "secrets", "secrets/db.txt", ".secrets/x", "private/x.txt", "credentials", "credentials.json",
    ".netrc", "_netrc", ".pgpass", ".npmrc", ".pypirc", ".git-credentials", ".htpasswd",
    ".vault-token", "client_secret_1.json", "my-service-account.json", "kubeconfig",
    "terraform.tfstate", "terraform.tfstate.backup", "passwords.txt",
    ".ssh/config", ".aws/config", ".gnupg/pubring.kbx", ".kube/config", ".docker/config.json",
    ".git/config", ".git", "sub/.git/HEAD", ".hg/store", "node_modules/x/index.js",
    ".venv/bin/python", "src/__pycache__/a.pyc",
    ".ai/state/threads.db", ".ai/cache/sealed/x", ".AI/State/x",
    ".ai/config/keys/signing/private_key.pem", ".ai/config/keys/signing/public_key.pem",
    "sub/.ai/state/threads.db", "home/.ai/cache/x", "home/.ai/config/keys/signing/key",
    ".ai/node/node.db", "home/.ai/node/data/x",
    ".ai/config/projects/x.yaml", ".ai/config/remotes/remotes.yaml",
    ".notes.txt.0123456789ab",
    "a\\b", "a\nb", "a\x1bb", "x" * 1025, "\udcff",
]  # fmt: skip

MAY_TRAVEL = [
    "src/main.py", "src/environment.py", "src/secrets.py", "src/credentials.py", "README.md",
    "data/keys.csv", "id_rsa.pub", "src/monkey.py", "docs/passwords.md", "src/identity.py",
    ".ai/tools/secrets/scan.py", ".ai/tools/acme/private.py", ".ai/tools/private/x.py",
    ".ai/directives/credentials/rotate.md", ".ai/config/agent/agent.yaml",
    ".ai/config/keys/trusted/0123456789abcdef.toml", ".ai/tools/state/x.py",
    ".ai/tools/cache/x.py", ".gitignore", "src/ü.py",
]  # fmt: skip


@pytest.mark.parametrize("path", NEVER_BY_NAME)
def test_a_name_never_travels(path: str) -> None:
    assert why_it_stays(path) is not None


@pytest.mark.parametrize("path", MAY_TRAVEL)
def test_a_name_may_travel(path: str) -> None:
    assert why_it_stays(path) is None


@pytest.mark.parametrize("text", ["", "/etc", "../x", "a/../b", "./a", "a//b", "a\\b", "x" * 501])
def test_a_text_is_no_pattern(text: str) -> None:
    assert why_no_pattern(text) is not None


@pytest.mark.parametrize(
    "content",
    [
        PRIVATE_KEY,
        b"key: |\n  -----BEGIN RSA PRIVATE KEY-----\n  MIIEvQIBADANBgkq",
        b"-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjE",
        b"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nlQOYBGVx",
        b"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n",
        b"-----BEGIN ENCRYPTED PRIVATE KEY-----\r\nMIIFHzBJBgkqh",
        b"PuTTY-User-Key-File-3: ssh-ed25519",
        b"# created\nAGE-SECRET-KEY-1QQQQQQQQQQQQQQQQQQQQQQQQQ",
        b"token = 'ghp_" + b"a1" * 18 + b"'",
        b"HF=hf_" + b"a" * 34,
        b"[default]\naws_secret_access_key = " + b"Aa/+" * 10,
        b"machine example.org\n  login me\n  password secret",
    ],
    ids=lambda content: content[:20].decode(),
)
def test_a_content_never_travels(content: bytes) -> None:
    assert why_content_stays(content) is not None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\xff" * 100,
        b"A key begins with -----BEGIN PRIVATE KEY----- and ends with -----END PRIVATE KEY-----.",
        b"-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqow",
        b"-----BEGIN CERTIFICATE-----\nMIIB",
        b"the prefix ghp_ is GitHub's; aws_secret_access_key = os.environ['X']",
        b"machine learning",
    ],
    ids=lambda content: content[:20].decode("latin-1"),
)
def test_a_content_may_travel(content: bytes) -> None:
    assert why_content_stays(content) is None


def write(path: Path, content: bytes = b"content") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def plan(workspace: Workspace, *include: str) -> PushPlan:
    return PushPlanner(workspace.project, workspace.user)(include)


def paths(found: PushPlan, space: str = "project") -> list[str]:
    return [one.path for one in found.snapshot.files if one.space == space]


def left(found: PushPlan) -> dict[str, str]:
    return {one.path: one.reason for one in found.left_out}


def test_items_configuration_and_trusted_keys_travel(workspace: Workspace) -> None:
    workspace.shell("acme/a", "true")
    workspace.shell("acme/mine", "true", space="user")
    workspace.write("config/agent/agent.yaml", "{}")
    write(workspace.project / "README.md")
    write(workspace.project / ".ai/state/threads.db")
    write(workspace.user / ".ai/cache/x")
    write(workspace.user / "holiday.txt")
    found = plan(workspace)
    assert paths(found) == [".ai/config/agent/agent.yaml", ".ai/tools/acme/a.sh"]
    fingerprint = workspace.key.public.fingerprint
    assert paths(found, "user") == [
        f".ai/config/keys/trusted/{fingerprint}.toml",
        ".ai/tools/acme/mine.sh",
    ]
    assert left(found) == {".ai/config/keys/signing": "holds private keys"}


def test_decoys_stay_though_everything_is_included(workspace: Workspace) -> None:
    decoys = [
        ".env", "sub/.env.local", "id_rsa", "sub/server.pem", "db.secret", ".netrc", ".git/config",
        ".ai/state/threads.db", "secrets/x.txt", ".ai/tools/acme/.env", ".ai/tools/acme/tls.key",
    ]  # fmt: skip
    for one in decoys:
        write(workspace.project / one)
    odd = ["notes.txt", "sub/picture.png", ".ai/knowledge/odd.md", ".ai/tools/acme/data.bin"]
    for one in odd:
        write(workspace.project / one, b"some text first\n" + PRIVATE_KEY)
    escaped = b'{"private_key": "-----BEGIN RSA PRIVATE KEY-----\\nMIIEvQIBADANBgkq"}'
    write(workspace.project / "account.json", escaped)
    os.mkfifo(workspace.project / "pipe")
    write(workspace.project / "src/main.py")
    found = plan(workspace, "**")
    assert paths(found) == ["src/main.py"]
    reasons = left(found)
    for one in (*odd, "account.json"):
        assert "private key" in reasons[one]
    assert reasons["pipe"] == "isn't a regular file"
    contents = b"".join(Path(one.source).read_bytes() for one in found.sources.values())
    assert b"PRIVATE KEY" not in contents


def test_no_private_key_travels_wherever_it_is_kept(workspace: Workspace) -> None:
    private = workspace.keys.folder / "private_key.pem"
    key = private.read_bytes()
    for name in ("tools/acme/key.txt", "knowledge/acme/k.md", "config/acme.yaml"):
        workspace.write(name, key, sign=False)
        workspace.write(name, key, sign=False, space="user")
    found = plan(workspace, "**")
    for one in found.sources.values():
        assert b"PRIVATE KEY" not in Path(one.source).read_bytes()
    assert len([one for one in left(found).values() if "private key in it" in one]) == 3


@pytest.mark.parametrize("is_folder", [False, True])
@pytest.mark.parametrize("place", [".ai/tools/acme/x", "src/x"])
def test_a_link_that_leaves_the_project_is_refused(
    workspace: Workspace, tmp_path: Path, place: str, *, is_folder: bool
) -> None:
    outside = write(tmp_path / "outside/file.txt")
    link = workspace.project / place
    link.parent.mkdir(parents=True)
    link.symlink_to(outside.parent if is_folder else outside)
    with pytest.raises(LinkLeavesSpace) as caught:
        plan(workspace, "src/**")
    assert caught.value.path == link
    assert str(outside.parent) in str(caught.value)


def test_a_link_out_of_users_ai_is_refused_and_one_with_a_secret_name_stays(
    workspace: Workspace,
) -> None:
    home = write(workspace.user / ".ssh/config")
    link = workspace.path("tools/acme/config.txt", "user")
    link.parent.mkdir(parents=True)
    link.symlink_to(home)
    with pytest.raises(LinkLeavesSpace):
        plan(workspace)
    link.rename(link.with_name(".env"))
    assert ".ai/tools/acme/.env" in left(plan(workspace))


def test_a_link_to_what_never_travels_stays(workspace: Workspace) -> None:
    project = workspace.project
    write(project / ".env")
    write(project / ".ai/state/a.json")
    write(project / "src/real.py")
    tools = project / ".ai/tools/acme"
    tools.mkdir(parents=True)
    (tools / "values.txt").symlink_to(project / ".env")
    (tools / "state").symlink_to(project / ".ai/state")
    (tools / "all").symlink_to(project)
    (tools / "nowhere").symlink_to("missing")
    (tools / "circle").symlink_to("circle")
    (tools / "real.py").symlink_to("../../../src/real.py")
    found = plan(workspace)
    assert paths(found) == [".ai/tools/acme/all/src/real.py", ".ai/tools/acme/real.py"]
    reasons = left(found)
    assert reasons[".ai/tools/acme/values.txt"] == "may hold variables that are secret"
    assert reasons[".ai/tools/acme/state"] == "is the state of runs here"
    assert reasons[".ai/tools/acme/nowhere"] == "is a link that leads nowhere"
    assert reasons[".ai/tools/acme/circle"] == "is a link that leads nowhere"
    assert reasons[".ai/tools/acme/all/.ai/state"] == "is the state of runs here"
    assert ".ai/tools/acme/all/.env" in reasons
    assert reasons[".ai/tools/acme/all/.ai/tools"] == "is a link to a folder above it"


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("src/**", ["src/a.py", "src/sub/b.py", "src/sub/c.csv"]),
        ("src", ["src/a.py", "src/sub/b.py", "src/sub/c.csv"]),
        ("src/", ["src/a.py", "src/sub/b.py", "src/sub/c.csv"]),
        ("src/*", ["src/a.py"]),
        ("**/*.py", ["src/a.py", "src/sub/b.py", "top.py"]),
        ("src/**/*.csv", ["src/sub/c.csv"]),
        ("*.py", ["top.py"]),
        ("src/sub/b.py", ["src/sub/b.py"]),
        ("s?c/[ab].py", ["src/a.py"]),
        ("missing/**", []),
    ],
)
def test_patterns(workspace: Workspace, pattern: str, expected: list[str]) -> None:
    for one in ("src/a.py", "src/sub/b.py", "src/sub/c.csv", "top.py", "data/d.txt"):
        write(workspace.project / one)
    found = plan(workspace, pattern)
    assert paths(found) == expected
    assert found.unmatched == (() if expected else (pattern,))


def test_a_link_that_no_pattern_reaches_does_not_matter(
    workspace: Workspace, tmp_path: Path
) -> None:
    write(tmp_path / "outside/x")
    (workspace.project / "data").symlink_to(tmp_path / "outside")
    write(workspace.project / "src/a.py")
    assert paths(plan(workspace, "src/**")) == ["src/a.py"]


_opened: list[str] | None = None


def _note_opened(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and _opened is not None:
        _opened.append(str(arguments[0]))


sys.addaudithook(_note_opened)


@contextmanager
def opened_files() -> Iterator[list[str]]:
    """The paths that this process opens meanwhile."""
    global _opened  # noqa: PLW0603 - an audit hook stays for good
    _opened = found = []
    try:
        yield found
    finally:
        _opened = None


def test_another_process_does_not_read_many_files_again(workspace: Workspace) -> None:
    names = [f"data/{number}.txt" for number in range(100)]
    for name in names:
        write(workspace.project / name, name.encode())
    cache = workspace.user / ".ai/cache/remote"
    last = workspace.project / names[-1]
    while not has_rested(FileIdentity.of(last.stat())):
        pass
    first = plan(workspace, "data/**")
    (workspace.project / "data/5.txt").write_bytes(b"changed")
    with opened_files() as opened:
        second = plan(workspace, "data/**")
    read = [one for one in opened if "/data/" in one and one.endswith(".txt")]
    assert read == [str(workspace.project / "data/5.txt")]
    assert len({*second.sources} - {*first.sources}) == 1
    (kept,) = cache.iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    for broken in (b"", b"[]", b'{"rule": "other", "files": {}}', b'{"files": {"a": [1]}}'):
        kept.write_bytes(broken)
        assert plan(workspace, "data/**").snapshot == second.snapshot


def test_a_second_plan_reads_no_file_again_and_sees_each_change(workspace: Workspace) -> None:
    workspace.shell("acme/a", "true")
    changed = write(workspace.project / "src/a.txt", b"one")
    planner = PushPlanner(workspace.project, workspace.user)
    first = planner(["src/**"])
    while planner(["src/**"]) is not planner(["src/**"]):  # until the files have rested
        pass
    second = planner(["src/**"])
    assert second.snapshot == first.snapshot
    changed.write_bytes(b"two")
    third = planner(["src/**"])
    assert third.snapshot.id != first.snapshot.id
    changed.write_bytes(b"one")
    assert planner(["src/**"]).snapshot.id == first.snapshot.id
    changed.unlink()
    assert paths(planner(["src/**"])) == [".ai/tools/acme/a.sh"]
