import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from ryecore.errors import SigningError
from ryecore.items.evidence import Evidence
from ryecore.items.project_trust import is_project_trusted, trust_project
from ryecore.items.spaces import Spaces
from ryecore.items.trust import TrustStore
from ryecore.items.verification import Verifier
from ryecore.lillux.keys import SigningKey
from tests.house import House
from tests.unit.items.helpers import run_rye


def is_trusted(
    house: House, spaces: Spaces, project: Path | None = None, *, dev_mode: bool = False
) -> bool:
    verifier = Verifier(TrustStore(spaces), dev_mode=dev_mode)
    return is_project_trusted(spaces.user, project or house.project, verifier, Evidence())


def test_a_project_is_not_trusted_until_the_user_says_so(house: House, spaces: Spaces) -> None:
    assert not is_trusted(house, spaces)
    path = house.open().trust_project()
    assert is_trusted(house, spaces)
    assert path.is_relative_to(house.user / ".ai/config/projects/trusted")
    path.unlink()  # removing it takes the trust back
    assert not is_trusted(house, spaces)


def test_the_command_does_it(house: House, spaces: Spaces) -> None:
    assert run_rye(house, "trust-project").exit_code == 0
    assert is_trusted(house, spaces)


def test_trust_is_for_one_project(house: House, spaces: Spaces) -> None:
    house.open().trust_project()
    for name in ("project2", "project/sub", "other/project"):
        (house.root / name).mkdir(parents=True)
        assert not is_trusted(house, spaces, house.root / name)
    assert not is_trusted(house, spaces, house.root)


def test_a_project_is_the_same_by_whatever_path(house: House, spaces: Spaces) -> None:
    house.open().trust_project()
    (house.root / "link").symlink_to(house.project)
    assert is_trusted(house, spaces, house.root / "link")
    assert is_trusted(house, spaces, house.project / ".." / "project")


def test_another_folder_at_a_links_place_is_another_project(house: House, spaces: Spaces) -> None:
    link, other = house.root / "link", house.root / "other"
    other.mkdir()
    link.symlink_to(house.project)
    trust_project(spaces.user, link, house.key)
    link.unlink()
    link.symlink_to(other)
    assert not is_trusted(house, spaces, link)


def test_a_project_whose_path_is_no_text_can_be_trusted(house: House, spaces: Spaces) -> None:
    project = house.root / "caf\udce9"  # Latin-1 on disk
    project.mkdir()
    trust_project(spaces.user, project, house.key)
    assert is_trusted(house, spaces, project)
    assert not is_trusted(house, spaces, house.root / "caf\\xe9")


def test_trust_that_cannot_be_written_down_is_one_clear_error(house: House) -> None:
    house.write("config/projects", "a file in the way", space="user", sign=False)
    with pytest.raises(SigningError, match="can't be written"):
        house.open().trust_project()


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
    house: House, spaces: Spaces, spoil: Callable[[Path], None], dev_mode: bool
) -> None:
    spoil(trust_project(spaces.user, house.project, house.key))
    assert not is_trusted(house, spaces, dev_mode=dev_mode)


def test_a_strangers_signature_counts_for_nothing(house: House, spaces: Spaces) -> None:
    trust_project(spaces.user, house.project, SigningKey.generate())
    assert not is_trusted(house, spaces)


def test_one_projects_file_does_not_serve_another(house: House, spaces: Spaces) -> None:
    other = house.root / "other"
    other.mkdir()
    theirs = trust_project(spaces.user, house.project, house.key)
    mine = trust_project(spaces.user, other, house.key)
    theirs.replace(mine)
    assert not is_trusted(house, spaces, other)


def test_the_path_in_the_file_counts_too(house: House, spaces: Spaces) -> None:
    path = trust_project(spaces.user, house.project, house.key)
    path.write_text(f"path = '{house.root}'\n")
    house.sign(path)
    assert not is_trusted(house, spaces)


def test_a_file_in_the_project_itself_counts_for_nothing(house: House, spaces: Spaces) -> None:
    path = trust_project(spaces.project, house.project, house.key)
    assert path.is_relative_to(house.project)
    assert not is_trusted(house, spaces)


def test_trust_needs_the_users_key(house: House) -> None:
    (house.keys.folder / "private_key.pem").unlink()
    with pytest.raises(SigningError, match="rye keys generate"):
        house.open().trust_project()


def test_a_revoked_key_takes_its_trust_along(house: House, spaces: Spaces) -> None:
    friend = SigningKey.generate()
    house.keys.trust(friend.public, "a friend")
    trust_project(spaces.user, house.project, friend)
    assert is_trusted(house, spaces)
    house.keys.trust(friend.public, "a friend", revoked=True)
    assert not is_trusted(house, spaces)


def test_trust_and_its_end_are_noticed(house: House, spaces: Spaces) -> None:
    verifier = Verifier(TrustStore(spaces))
    before = Evidence()
    is_project_trusted(spaces.user, house.project, verifier, before)
    untrusted = before.witness()
    assert untrusted.holds()
    path = trust_project(spaces.user, house.project, house.key)
    assert not untrusted.holds()
    after = Evidence()
    is_project_trusted(spaces.user, house.project, verifier, after)
    trusted = after.witness()
    assert trusted.holds()
    path.unlink()
    assert not trusted.holds()


def test_the_file_says_which_project(house: House) -> None:
    document = tomllib.loads(house.open().trust_project().read_text())
    assert document["path"] == str(house.project.resolve())
    assert document["category"] == "projects/trusted"


def test_a_project_with_a_strange_name_is_trusted_like_any_other(
    house: House, spaces: Spaces
) -> None:
    strange = house.root / 'a"\nb = "c\\'
    strange.mkdir()
    path = trust_project(spaces.user, strange, house.key)
    assert is_trusted(house, spaces, strange)
    assert set(tomllib.loads(path.read_text())) == {"version", "category", "path"}
