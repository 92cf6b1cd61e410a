import os
import shlex
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from attrs import evolve

from ryecore.errors import ConfigError, LinkLeavesSpace, RevokedKey, SigningError, UntrustedKey
from ryecore.items.keys import AuthorKeys
from ryecore.items.spaces import Space, Spaces
from ryecore.lillux.keys import SigningKey
from tests.unit.items.helpers import LONG_AGO, PYTHON_TOOL, follow, key_file, run_rye, verify
from tests.workspace import Workspace


@pytest.fixture
def user(tmp_path: Path) -> Space:
    return Space("user", tmp_path / "somebody/.ai")


@pytest.fixture
def keys(user: Space) -> AuthorKeys:
    return AuthorKeys(user, {})


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o022, 0o000, 0o077])
def test_only_the_owner_can_read_a_private_key(keys: AuthorKeys, umask: int) -> None:
    before = os.umask(umask)
    try:
        keys.generate()
    finally:
        os.umask(before)
    assert mode(keys.folder) == 0o700
    assert mode(keys.folder / "private_key.pem") == 0o600
    assert mode(keys.folder / "public_key.pem") == 0o644


def test_a_fresh_key_loads_again_and_is_trusted_in_user_space(
    workspace: Workspace, spaces: Spaces
) -> None:
    assert workspace.keys.load() == workspace.key
    folder = workspace.path("config/keys/signing", "user")
    assert (folder / "private_key.pem").read_bytes() == workspace.key.pem
    assert (folder / "public_key.pem").read_bytes() == workspace.key.public.pem
    assert verify(spaces, workspace.write("tools/x.py", PYTHON_TOOL)).is_verified


def test_nothing_is_made_unless_asked(keys: AuthorKeys, user: Space) -> None:
    with pytest.raises(SigningError, match="There is no signing key") as refused:
        keys.load()
    assert refused.value.next_step == "Make one: rye keys generate"
    assert not user.root.exists()


def test_the_next_step_makes_a_key(workspace: Workspace) -> None:
    (workspace.keys.folder / "private_key.pem").unlink()
    with pytest.raises(SigningError) as refused:
        workspace.keys.load()
    follow(workspace, refused.value.next_step)
    assert workspace.keys.load() != workspace.key


@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_an_own_key_that_ended_signs_nothing_until_it_counts_again(
    workspace: Workspace, spaces: Spaces, how: str
) -> None:
    own, friend = workspace.key.public, SigningKey.generate()
    path = workspace.write("tools/x.py", PYTHON_TOOL)
    with workspace.sync() as rye:
        if how == "revoked":
            file = workspace.keys.trust(own, "me", revoked=True)
        else:
            file = key_file(workspace, own, workspace.key, not_after=LONG_AGO)
        before = path.read_bytes()
        for write in (
            lambda: rye.sign("tool:x"),
            lambda: rye.sign("tool:*"),
            lambda: workspace.keys.trust(friend.public, "a friend"),
            lambda: workspace.keys.trust(own, "me", space=spaces.project),
            rye.trust_project,
            lambda: rye.env.allow("GREETING"),
            workspace.keys.generate,
        ):
            with pytest.raises(
                SigningError, match=f"{own.fingerprint} (was revoked|expired)"
            ) as no:
                write()
            assert "rye keys generate" in no.value.next_step
        assert path.read_bytes() == before
        workspace.keys.trust(
            friend.public, "a friend", revoked=True
        )  # who signs that doesn't matter

        if how == "revoked":
            with pytest.raises(SigningError, match="was revoked"):
                workspace.keys.trust(own, "me")
        assert str(file) in no.value.next_step
        workspace.keys.trust(own, "me", reinstate=how == "revoked")  # the second of the next steps
        assert rye.sign("tool:x").signed
        assert verify(spaces, path).is_verified


def test_the_next_steps_of_an_own_key_that_was_revoked_work(
    workspace: Workspace, spaces: Spaces
) -> None:
    path = workspace.write("tools/x.py", PYTHON_TOOL)
    workspace.keys.trust(workspace.key.public, "me", revoked=True)
    refused = run_rye(workspace, "sign", "tool:x")
    assert refused.exit_code == 2
    move, generate = (
        refused.output.partition("Make a new key: ")[2].partition(". Or")[0].split(" && ")
    )
    subprocess.run(shlex.split(move), check=True)
    follow(workspace, generate)
    follow(workspace, "rye sign tool:x")
    assert workspace.keys.load() != workspace.key
    assert verify(spaces, path).is_verified


def test_a_key_that_was_revoked_and_reinstated_counts_everywhere_again(
    workspace: Workspace, spaces: Spaces
) -> None:
    friend, pupil = SigningKey.generate(), SigningKey.generate()
    places = [
        workspace.write("tools/x.py", PYTHON_TOOL, key=friend),
        workspace.write("tools/y.py", PYTHON_TOOL, key=friend, space="user"),
    ]
    workspace.keys.trust(friend.public, "a friend")
    workspace.keys.trust(pupil.public, "whom the friend vouches for", signer=friend)
    places.append(workspace.write("tools/z.py", PYTHON_TOOL, key=pupil))
    for path in places:
        assert verify(spaces, path).is_verified
    workspace.keys.trust(friend.public, "a friend", revoked=True)
    for path in places:
        with pytest.raises(UntrustedKey):  # RevokedKey is one
            verify(spaces, path)
    workspace.keys.trust(friend.public, "a friend", reinstate=True)
    for path in places:
        assert verify(spaces, path).is_verified


def test_a_key_is_never_overwritten(keys: AuthorKeys) -> None:
    first = keys.generate()
    files = {path: path.read_bytes() for path in keys.folder.iterdir()}
    with pytest.raises(SigningError, match="signing key already") as refused:
        keys.generate()
    assert str(keys.folder / "private_key.pem") in str(refused.value)
    assert {path: path.read_bytes() for path in keys.folder.iterdir()} == files
    (keys.folder / "private_key.pem").rename(keys.folder / "old.pem")  # the next step
    assert keys.generate() != first


def test_a_link_in_the_keys_place_is_not_written_through(keys: AuthorKeys, tmp_path: Path) -> None:
    keys.folder.mkdir(parents=True)
    (keys.folder / "private_key.pem").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SigningError):
        keys.generate()
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("loose", [0o640, 0o604, 0o660, 0o606, 0o610, 0o601, 0o777])
def test_a_key_that_others_can_reach_is_refused_and_the_next_step_closes_it(
    workspace: Workspace, loose: int
) -> None:
    private = workspace.keys.folder / "private_key.pem"
    private.chmod(loose)
    with pytest.raises(SigningError, match="Others can read the signing key") as refused:
        workspace.keys.load()
    follow(workspace, refused.value.next_step)
    assert workspace.keys.load() == workspace.key


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_key_that_only_its_owner_can_read_is_fine(workspace: Workspace, mode: int) -> None:
    (workspace.keys.folder / "private_key.pem").chmod(mode)
    assert workspace.keys.load() == workspace.key


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\xff" * 100, "the public half"])
def test_a_private_key_that_is_none_is_refused_and_the_next_step_works(
    workspace: Workspace, content: bytes | str
) -> None:
    private = workspace.keys.folder / "private_key.pem"
    pem = content if isinstance(content, bytes) else workspace.key.public.pem
    private.write_bytes(pem)
    with pytest.raises(SigningError, match="is not a signing key") as refused:
        workspace.keys.load()
    assert str(private) in str(refused.value)
    private.rename(private.with_name("broken.pem"))
    follow(workspace, refused.value.next_step)
    workspace.keys.load()


def test_a_private_key_that_cannot_be_read_is_refused(workspace: Workspace) -> None:
    private = workspace.keys.folder / "private_key.pem"
    private.unlink()
    private.mkdir()
    with pytest.raises(SigningError, match="can't be read"):
        workspace.keys.load()


def test_the_environment_moves_the_key_but_not_the_trust(user: Space, tmp_path: Path) -> None:
    elsewhere = tmp_path / "vault"
    keys = AuthorKeys(user, {"RYE_SIGNING_KEY_DIR": str(elsewhere)})
    key = keys.generate("ann")
    assert mode(elsewhere) == 0o700
    assert (elsewhere / "private_key.pem").exists()
    assert not (user.folder("config") / "keys/signing").exists()
    assert [path.stem for path in (user.folder("config") / "keys/trusted").iterdir()] == [
        key.public.fingerprint
    ]


@pytest.mark.parametrize("relative", ["vault", ".", "./vault", "../vault"])
def test_a_relative_key_folder_is_refused(user: Space, relative: str) -> None:
    with pytest.raises(ConfigError, match="not an absolute path") as refused:
        AuthorKeys(user, {"RYE_SIGNING_KEY_DIR": relative})
    assert "RYE_SIGNING_KEY_DIR" in refused.value.next_step


def test_a_key_folder_may_lie_in_the_home_folder(
    user: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert AuthorKeys(user, {"RYE_SIGNING_KEY_DIR": "~/vault"}).folder == tmp_path / "vault"


def test_a_rye_takes_the_key_folder_from_its_own_environ(
    workspace: Workspace, tmp_path: Path
) -> None:
    workspace.environ["RYE_SIGNING_KEY_DIR"] = str(tmp_path / "vault")
    assert workspace.open().keys.folder == tmp_path / "vault"


def test_a_key_folder_that_cannot_be_made_is_said(user: Space, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    keys = AuthorKeys(user, {"RYE_SIGNING_KEY_DIR": str(tmp_path / "file/keys")})
    with pytest.raises(SigningError, match="can't be written") as refused:
        keys.generate()
    assert "RYE_SIGNING_KEY_DIR" in refused.value.next_step


def test_a_trust_folder_that_cannot_be_written_is_said(workspace: Workspace) -> None:
    trusted = workspace.path("config/keys/trusted", "user")
    trusted.rename(trusted.with_name("moved"))
    trusted.touch()
    with pytest.raises(SigningError, match="can't be written") as refused:
        workspace.keys.trust(SigningKey.generate().public, "x")
    assert "can be written" in refused.value.next_step


@pytest.mark.parametrize("in_the_way", ["signing/public_key.pem/x", "trusted"])
def test_a_key_that_cannot_be_made_whole_is_not_made(
    keys: AuthorKeys, user: Space, in_the_way: str
) -> None:
    obstacle = user.folder("config") / "keys" / in_the_way
    obstacle.parent.mkdir(parents=True)
    obstacle.write_text("in the way")
    with pytest.raises(SigningError, match="can't be written"):
        keys.generate("somebody")
    obstacle.unlink()
    if obstacle.parent.name == "public_key.pem":
        obstacle.parent.rmdir()
    keys.generate("somebody")  # nothing of the first attempt is in the way


def test_an_owner_that_is_no_text_is_refused_before_a_key_is_made(keys: AuthorKeys) -> None:
    with pytest.raises(SigningError, match="owner"):
        keys.generate("\udcff")
    assert not keys.folder.exists()


def test_trust_is_signed_by_the_author_and_needs_their_key(keys: AuthorKeys) -> None:
    with pytest.raises(SigningError, match="no signing key"):
        keys.trust(SigningKey.generate().public, "x")


def test_trust_in_the_project_is_for_its_items_alone(workspace: Workspace, spaces: Spaces) -> None:
    friend = SigningKey.generate()
    file = workspace.keys.trust(friend.public, "a friend", space=spaces.project)
    assert file.is_relative_to(workspace.project / ".ai/config/keys/trusted")
    path = workspace.write("tools/x.py", PYTHON_TOOL, key=friend)
    assert verify(spaces, path).is_verified
    with pytest.raises(UntrustedKey):
        verify(spaces, workspace.write("tools/x.py", PYTHON_TOOL, key=friend, space="user"))


def test_a_link_in_a_projects_trust_folder_is_not_written_through(
    workspace: Workspace, spaces: Spaces
) -> None:
    friend, precious = SigningKey.generate(), workspace.root / "precious"
    precious.write_text("mine")
    folder = workspace.path("config/keys/trusted")
    folder.mkdir(parents=True)
    (folder / f"{friend.public.fingerprint}.toml").symlink_to(precious)
    workspace.keys.trust(friend.public, "a friend", space=spaces.project)
    assert precious.read_text() == "mine"
    assert verify(spaces, workspace.write("tools/x.py", PYTHON_TOOL, key=friend)).is_verified


def test_trusting_again_replaces_what_was_said(workspace: Workspace, spaces: Spaces) -> None:
    friend = SigningKey.generate()
    path = workspace.write("tools/x.py", PYTHON_TOOL, key=friend)
    workspace.keys.trust(friend.public, "x", revoked=True)
    with pytest.raises(SigningError, match="was revoked") as refused:
        workspace.keys.trust(friend.public, "x")
    assert "--reinstate" in refused.value.next_step
    with pytest.raises(SigningError, match="revoked in user space") as refused:
        workspace.keys.trust(friend.public, "x", space=spaces.project, reinstate=True)
    assert "leave out --in-project" in refused.value.next_step
    with pytest.raises(RevokedKey):
        verify(spaces, path)
    workspace.keys.trust(friend.public, "x", reinstate=True)
    assert verify(spaces, path).is_verified


@pytest.mark.parametrize("linked", ["", "config", "config/keys", "config/keys/trusted"])
def test_a_vouch_for_a_project_never_lands_in_user_space(
    workspace: Workspace, spaces: Spaces, linked: str
) -> None:
    """A clone brings the link; the person runs `rye keys trust --in-project`."""
    friend = SigningKey.generate()
    workspace.path(linked).parent.mkdir(parents=True, exist_ok=True)
    Path(str(workspace.path(linked)).rstrip("/")).symlink_to(workspace.path(linked, "user"))
    with pytest.raises(LinkLeavesSpace) as refused:
        workspace.keys.trust(friend.public, "a friend", space=spaces.project)
    assert refused.value.leads_to.is_relative_to(workspace.user)
    assert not list(workspace.user.rglob(f"{friend.public.fingerprint}.toml"))


def test_a_vouch_counts_only_where_it_was_made(workspace: Workspace, spaces: Spaces) -> None:
    friend = SigningKey.generate()
    file = workspace.keys.trust(friend.public, "a friend", space=spaces.project)
    name = f"config/keys/trusted/{file.name}"

    workspace.write(name, file.read_bytes(), space="user", sign=False)
    mine = workspace.write("tools/x.py", PYTHON_TOOL, key=friend, space="user")
    with pytest.raises(UntrustedKey, match="signed for project space, and stands in user space"):
        verify(spaces, mine)

    workspace.path(name, "user").unlink()
    path = workspace.write("tools/x.py", PYTHON_TOOL, key=friend)
    assert verify(spaces, path).is_verified
    shutil.copytree(workspace.project, workspace.root / "copy")
    other = evolve(spaces, project=Space("project", workspace.root / "copy/.ai"))
    with pytest.raises(UntrustedKey, match="another project's folder"):
        verify(other, other.project.root / "tools/x.py")


def test_a_revocation_stands_where_no_clone_can_undo_it(
    workspace: Workspace, spaces: Spaces
) -> None:
    friend = SigningKey.generate()
    file = workspace.keys.trust(friend.public, "a friend", space=spaces.project)
    path, older = workspace.write("tools/x.py", PYTHON_TOOL, key=friend), file.read_bytes()
    with pytest.raises(SigningError, match="could be undone") as refused:
        workspace.keys.trust(friend.public, "a friend", space=spaces.project, revoked=True)
    assert "leave out --in-project" in refused.value.next_step
    workspace.keys.trust(friend.public, "a friend", revoked=True)
    file.write_bytes(older)
    with pytest.raises(RevokedKey):
        verify(spaces, path)
    with pytest.raises(SigningError, match="was revoked"):
        workspace.keys.trust(friend.public, "a friend", space=spaces.project)


def test_the_command_never_prints_the_private_key(workspace: Workspace) -> None:
    (workspace.keys.folder / "private_key.pem").unlink()
    done = run_rye(workspace, "keys", "generate", "--json")
    secret = (workspace.keys.folder / "private_key.pem").read_text().splitlines()[1]
    assert done.exit_code == 0
    assert secret not in done.output
    assert secret[-43:] not in done.output
