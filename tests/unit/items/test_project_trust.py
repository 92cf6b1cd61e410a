import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from ryecore.errors import SigningError
from ryecore.items.project_trust import is_project_trusted, trust_project
from ryecore.items.spaces import Spaces
from ryecore.items.trust import TrustStore
from ryecore.items.verification import Verifier
from ryecore.lillux.keys import SigningKey
from ryecore.lillux.witness import Evidence
from tests.unit.items.helpers import run_rye
from tests.workspace import Workspace


def is_trusted(
    workspace: Workspace, spaces: Spaces, project: Path | None = None, *, dev_mode: bool = False
) -> bool:
    verifier = Verifier(TrustStore(spaces), dev_mode=dev_mode)
    return is_project_trusted(spaces.user, project or workspace.project, verifier, Evidence())


def test_a_project_is_not_trusted_until_the_user_says_so(
    workspace: Workspace, spaces: Spaces
) -> None:
    assert not is_trusted(workspace, spaces)
    path = workspace.open().trust_project()
    assert is_trusted(workspace, spaces)
    assert path.is_relative_to(workspace.user / ".ai/config/projects/trusted")
    path.unlink()  # removing it takes the trust back
    assert not is_trusted(workspace, spaces)


def test_the_command_does_it(workspace: Workspace, spaces: Spaces) -> None:
    assert run_rye(workspace, "trust-project").exit_code == 0
    assert is_trusted(workspace, spaces)


def test_trust_is_for_one_project(workspace: Workspace, spaces: Spaces) -> None:
    workspace.open().trust_project()
    for name in ("project2", "project/sub", "other/project"):
        (workspace.root / name).mkdir(parents=True)
        assert not is_trusted(workspace, spaces, workspace.root / name)
    assert not is_trusted(workspace, spaces, workspace.root)


def test_a_project_is_the_same_by_whatever_path(workspace: Workspace, spaces: Spaces) -> None:
    workspace.open().trust_project()
    (workspace.root / "link").symlink_to(workspace.project)
    assert is_trusted(workspace, spaces, workspace.root / "link")
    assert is_trusted(workspace, spaces, workspace.project / ".." / "project")


def test_another_folder_at_a_links_place_is_another_project(
    workspace: Workspace, spaces: Spaces
) -> None:
    link, other = workspace.root / "link", workspace.root / "other"
    other.mkdir()
    link.symlink_to(workspace.project)
    trust_project(spaces.user, link, workspace.key)
    link.unlink()
    link.symlink_to(other)
    assert not is_trusted(workspace, spaces, link)


def test_a_project_whose_path_is_no_text_can_be_trusted(
    workspace: Workspace, spaces: Spaces
) -> None:
    project = workspace.root / "caf\udce9"  # Latin-1 on disk
    project.mkdir()
    trust_project(spaces.user, project, workspace.key)
    assert is_trusted(workspace, spaces, project)
    assert not is_trusted(workspace, spaces, workspace.root / "caf\\xe9")


def test_trust_that_cannot_be_written_down_is_one_clear_error(workspace: Workspace) -> None:
    workspace.write("config/projects", "a file in the way", space="user", sign=False)
    with pytest.raises(SigningError, match="can't be written"):
        workspace.open().trust_project()


def unsigned(path: Path) -> None:
    path.write_bytes(path.read_bytes().partition(b"\n")[2])


def changed(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"#\n")


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("spoil", [unsigned, changed, emptied, a_folder])
@pytest.mark.parametrize("dev_mode", [False, True])
def test_a_file_there_that_does_not_verify_counts_for_nothing(
    workspace: Workspace, spaces: Spaces, spoil: Callable[[Path], None], dev_mode: bool
) -> None:
    spoil(trust_project(spaces.user, workspace.project, workspace.key))
    assert not is_trusted(workspace, spaces, dev_mode=dev_mode)


def test_a_strangers_signature_counts_for_nothing(workspace: Workspace, spaces: Spaces) -> None:
    trust_project(spaces.user, workspace.project, SigningKey.generate())
    assert not is_trusted(workspace, spaces)


def test_one_projects_file_does_not_serve_another(workspace: Workspace, spaces: Spaces) -> None:
    other = workspace.root / "other"
    other.mkdir()
    theirs = trust_project(spaces.user, workspace.project, workspace.key)
    mine = trust_project(spaces.user, other, workspace.key)
    theirs.replace(mine)
    assert not is_trusted(workspace, spaces, other)


def test_the_path_in_the_file_counts_too(workspace: Workspace, spaces: Spaces) -> None:
    path = trust_project(spaces.user, workspace.project, workspace.key)
    path.write_text(f"path = '{workspace.root}'\n")
    workspace.sign(path)
    assert not is_trusted(workspace, spaces)


def test_a_file_in_the_project_itself_counts_for_nothing(
    workspace: Workspace, spaces: Spaces
) -> None:
    path = trust_project(spaces.project, workspace.project, workspace.key)
    assert path.is_relative_to(workspace.project)
    assert not is_trusted(workspace, spaces)


def test_trust_needs_the_users_key(workspace: Workspace) -> None:
    (workspace.keys.folder / "private_key.pem").unlink()
    with pytest.raises(SigningError, match="rye keys generate"):
        workspace.open().trust_project()


def test_a_revoked_key_takes_its_trust_along(workspace: Workspace, spaces: Spaces) -> None:
    friend = SigningKey.generate()
    workspace.keys.trust(friend.public, "a friend")
    trust_project(spaces.user, workspace.project, friend)
    assert is_trusted(workspace, spaces)
    workspace.keys.trust(friend.public, "a friend", revoked=True)
    assert not is_trusted(workspace, spaces)


def test_trust_and_its_end_are_noticed(workspace: Workspace, spaces: Spaces) -> None:
    verifier = Verifier(TrustStore(spaces))
    before = Evidence()
    is_project_trusted(spaces.user, workspace.project, verifier, before)
    untrusted = before.witness()
    assert untrusted.holds()
    path = trust_project(spaces.user, workspace.project, workspace.key)
    assert not untrusted.holds()
    after = Evidence()
    is_project_trusted(spaces.user, workspace.project, verifier, after)
    trusted = after.witness()
    assert trusted.holds()
    path.unlink()
    assert not trusted.holds()


def test_the_file_says_which_project(workspace: Workspace) -> None:
    document = tomllib.loads(workspace.open().trust_project().read_text())
    assert document["path"] == str(workspace.project.resolve())
    assert document["category"] == "projects/trusted"


def test_a_project_with_a_strange_name_is_trusted_like_any_other(
    workspace: Workspace, spaces: Spaces
) -> None:
    strange = workspace.root / 'a"\nb = "c\\'
    strange.mkdir()
    path = trust_project(spaces.user, strange, workspace.key)
    assert is_trusted(workspace, spaces, strange)
    assert set(tomllib.loads(path.read_text())) == {"version", "category", "path"}
