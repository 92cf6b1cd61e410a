from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from ryecore.errors import UntrustedKey
from ryecore.items.signing import sign_content
from ryecore.items.spaces import Space, Spaces, built_in_space
from ryecore.items.trust import TrustStore, render_trusted_key
from ryecore.lillux.keys import PublicKey, SigningKey
from tests.unit.items.helpers import (
    follow,
    key_file,
    run_rye,
    tool,
    verify,
)
from tests.workspace import Workspace


def test_a_strangers_key_is_refused_and_the_next_steps_work(
    workspace: Workspace, spaces: Spaces, stranger: SigningKey
) -> None:
    path = tool(workspace, stranger)
    with pytest.raises(UntrustedKey, match="not trusted in project space") as refused:
        verify(spaces, path)
    assert refused.value.fingerprint == stranger.public.fingerprint
    assert refused.value.path == path
    pem = workspace.project / "PUBLIC_KEY.pem"
    pem.write_bytes(stranger.public.pem)
    assert "rye keys trust PUBLIC_KEY.pem" in refused.value.next_step
    assert run_rye(workspace, "keys", "trust", "PUBLIC_KEY.pem").exit_code == 0
    assert verify(spaces, path).fingerprint == stranger.public.fingerprint


def test_or_else_one_signs_it_oneself(
    workspace: Workspace, spaces: Spaces, stranger: SigningKey
) -> None:
    path = tool(workspace, stranger)
    with pytest.raises(UntrustedKey, match="rye sign /"):
        verify(spaces, path)
    assert run_rye(workspace, "sign", str(path)).exit_code == 0
    assert verify(spaces, path).fingerprint == workspace.key.public.fingerprint


@pytest.mark.parametrize("space", ["project", "user", "system"])
def test_a_self_signed_key_in_user_space_counts_everywhere(
    workspace: Workspace, spaces: Spaces, stranger: SigningKey, space: str
) -> None:
    key_file(workspace, stranger.public, stranger)
    assert verify(spaces, tool(workspace, stranger, space)).is_verified


def test_a_key_that_a_user_space_key_signed_counts(
    workspace: Workspace, spaces: Spaces, stranger: SigningKey
) -> None:
    key_file(workspace, stranger.public, workspace.key)
    assert verify(spaces, tool(workspace, stranger)).is_verified


def test_vouching_goes_on_over_several_keys(workspace: Workspace, spaces: Spaces) -> None:
    keys = [workspace.key, *(SigningKey.generate() for _ in range(4))]
    for signer, key in pairwise(keys):
        key_file(workspace, key.public, signer)
    assert verify(spaces, tool(workspace, keys[-1])).is_verified
    key_file(workspace, keys[2].public, keys[1], revoked=True)
    with pytest.raises(UntrustedKey):
        verify(spaces, tool(workspace, keys[-1]))


@pytest.mark.parametrize("space", ["project", "user", "system"])
def test_a_key_of_the_host_counts_everywhere(
    workspace: Workspace, spaces: Spaces, stranger: SigningKey, space: str
) -> None:
    path = tool(workspace, stranger, space)
    with pytest.raises(UntrustedKey):
        verify(spaces, path)
    assert verify(spaces, path, stranger.public).is_verified


@pytest.mark.parametrize(
    "form", [lambda key: key, lambda key: key.pem, lambda key: key.pem.decode()]
)
def test_the_host_passes_keys_as_objects_or_pem(
    workspace: Workspace, stranger: SigningKey, form: Callable[[PublicKey], PublicKey | bytes | str]
) -> None:
    tool(workspace, stranger)
    rye = workspace.open(trusted_keys=[form(stranger.public)])
    assert rye.verify("tool:acme/x").is_verified
    with pytest.raises(UntrustedKey):
        workspace.open().verify("tool:acme/x")  # another Rye sees nothing of it


@pytest.mark.parametrize("space", ["project", "system"])
@pytest.mark.parametrize("signed", ["by itself", "by nobody", "by another of its own"])
def test_a_project_or_bundle_cannot_vouch_for_itself(
    workspace: Workspace, spaces: Spaces, stranger: SigningKey, space: str, signed: str
) -> None:
    friend = SigningKey.generate()
    signer = {"by itself": stranger, "by nobody": None, "by another of its own": friend}[signed]
    key_file(workspace, friend.public, friend, space)
    file = key_file(workspace, stranger.public, signer, space)
    with pytest.raises(UntrustedKey, match="is not signed by a key that you trust") as refused:
        verify(spaces, tool(workspace, stranger, space))
    assert str(file) in str(refused.value)


def test_the_next_step_for_a_projects_own_key_works(
    workspace: Workspace, spaces: Spaces, stranger: SigningKey
) -> None:
    key_file(workspace, stranger.public, stranger, "project")
    path = tool(workspace, stranger)
    with pytest.raises(UntrustedKey) as refused:
        verify(spaces, path)
    follow(workspace, refused.value.next_step)
    assert verify(spaces, path).is_verified


def test_a_next_step_with_a_path_is_quoted_for_the_shell(
    tmp_path: Path, stranger: SigningKey
) -> None:
    (tmp_path / "my house").mkdir()
    workspace = Workspace(tmp_path / "my house")
    key_file(workspace, stranger.public, stranger, "project")
    tool(workspace, stranger)
    with pytest.raises(UntrustedKey) as refused:
        workspace.open().verify("tool:acme/x")
    follow(workspace, refused.value.next_step)
    assert workspace.open().verify("tool:acme/x").is_verified


@pytest.mark.parametrize("root", ["the user", "the host"])
@pytest.mark.parametrize("space", ["project", "system"])
def test_a_key_that_a_root_vouches_for_counts_in_that_space_alone(
    workspace: Workspace, spaces: Spaces, stranger: SigningKey, root: str, space: str
) -> None:
    host = SigningKey.generate()
    key_file(workspace, stranger.public, host if root == "the host" else workspace.key, space)
    here = tool(workspace, stranger, space)
    assert verify(spaces, here, host.public).is_verified
    for other in {"project", "user", "system"} - {space}:
        there = tool(workspace, stranger, other)
        with pytest.raises(UntrustedKey, match=f"not trusted in {other}"):
            verify(spaces, there, host.public)


def test_one_bundles_key_is_nothing_to_another(
    workspace: Workspace, spaces: Spaces, stranger: SigningKey
) -> None:
    key_file(workspace, stranger.public, workspace.key, "system")
    other = Space("system", workspace.root / "other/.ai", "other")
    path = other.folder("tool") / "x.py"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")
    workspace.sign(path, key=stranger)
    with pytest.raises(UntrustedKey, match="system:other"):
        verify(Spaces(spaces.project, spaces.user, (*spaces.system, other)), path)


def test_two_keys_that_vouch_for_each_other_are_refused(
    workspace: Workspace, spaces: Spaces
) -> None:
    one, other = SigningKey.generate(), SigningKey.generate()
    key_file(workspace, one.public, other)
    key_file(workspace, other.public, one)
    for key in (one, other):
        with pytest.raises(UntrustedKey):
            verify(spaces, tool(workspace, key))


def test_a_circle_of_three_is_refused(workspace: Workspace, spaces: Spaces) -> None:
    keys = [SigningKey.generate() for _ in range(3)]
    for index, key in enumerate(keys):
        key_file(workspace, key.public, keys[index - 1])
    with pytest.raises(UntrustedKey):
        verify(spaces, tool(workspace, keys[0]))


def test_a_key_of_the_project_cannot_vouch_for_one_in_user_space(
    workspace: Workspace, spaces: Spaces, stranger: SigningKey
) -> None:
    vouched = SigningKey.generate()
    key_file(workspace, vouched.public, workspace.key, "project")
    key_file(workspace, stranger.public, vouched)
    with pytest.raises(UntrustedKey):
        verify(spaces, tool(workspace, stranger))


# The built-in bundle


def sealed_copy(workspace: Workspace, key: SigningKey) -> Space:
    """A built-in bundle whose own key is one that we hold."""
    space = Space("system", workspace.root / "built-in/.ai", "ryecore")
    name = f"keys/trusted/{key.public.fingerprint}.toml"
    path = space.folder("config") / name
    path.parent.mkdir(parents=True)
    content = render_trusted_key(key.public, "ryecore")
    path.write_bytes(sign_content(content, ".toml", "config", name, key)[0])
    return space


def test_the_built_in_bundles_key_counts_there_and_nowhere_else(
    workspace: Workspace, spaces: Spaces, stranger: SigningKey
) -> None:
    built_in = sealed_copy(workspace, stranger)
    spaces = Spaces(spaces.project, spaces.user, (built_in, spaces.system[1]))
    path = built_in.folder("tool") / "x.py"
    path.parent.mkdir()
    path.write_bytes(b"")
    workspace.sign(path, key=stranger)
    assert verify(spaces, path).is_verified
    for other in ("project", "user", "system"):
        with pytest.raises(UntrustedKey):
            verify(spaces, tool(workspace, stranger, other))


def test_the_real_built_in_key_is_nothing_to_a_project(
    workspace: Workspace, spaces: Spaces
) -> None:
    [published] = (built_in_space().folder("config") / "keys/trusted").glob("*.toml")
    trust = TrustStore(spaces)
    path = workspace.project / "x"
    assert trust.lookup(published.stem, spaces.system[0], path).key.fingerprint == published.stem
    for space in (spaces.project, spaces.user, spaces.system[1]):
        with pytest.raises(UntrustedKey):
            trust.lookup(published.stem, space, path)


def test_an_unsigned_key_in_the_built_in_bundle_is_refused(
    workspace: Workspace, spaces: Spaces, stranger: SigningKey
) -> None:
    built_in = sealed_copy(workspace, stranger)
    spaces = Spaces(spaces.project, spaces.user, (built_in,))
    file = built_in.folder("config") / f"keys/trusted/{stranger.public.fingerprint}.toml"
    file.write_bytes(file.read_bytes().partition(b"\n")[2])
    with pytest.raises(UntrustedKey):
        TrustStore(spaces).lookup(stranger.public.fingerprint, built_in, file)


def test_nobody_adds_a_key_to_the_built_in_bundle(
    workspace: Workspace, spaces: Spaces, stranger: SigningKey
) -> None:
    built_in = sealed_copy(workspace, SigningKey.generate())
    spaces = Spaces(spaces.project, spaces.user, (built_in,))
    workspace.keys.trust(stranger.public, "added", space=built_in)
    with pytest.raises(UntrustedKey):
        TrustStore(spaces).lookup(stranger.public.fingerprint, built_in, workspace.project)
