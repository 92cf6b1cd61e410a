"""Where a path argument leads."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ryecore.tools.policy import resolve_path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with links out of it and within it."""
    folder = tmp_path / "root"
    (folder / "a").mkdir(parents=True)
    (folder / "a/b.txt").write_text("b")
    (tmp_path / "secret").write_text("s")
    (tmp_path / "rooted").mkdir()
    (folder / "out").symlink_to(tmp_path)
    (folder / "file").symlink_to("/etc/passwd")
    (folder / "in").symlink_to(folder / "a")
    (folder / "dangling").symlink_to(tmp_path / "nothing")
    (folder / "loop").symlink_to(folder / "loop")
    return folder


def read(root: Path, path: object) -> str:
    return resolve_path(path, root, confined=True, writing=False)


def written(root: Path, path: object) -> str:
    return resolve_path(path, root, confined=True, writing=True)


def test_what_lies_below_is_given_without_links(root: Path) -> None:
    real = os.path.realpath(root)

    assert read(root, "a/b.txt") == f"{real}/a/b.txt"
    assert read(root, "./a/../a//b.txt") == f"{real}/a/b.txt"
    assert read(root, "in/b.txt") == f"{real}/a/b.txt"
    assert read(root, f"{root}/a") == f"{real}/a"
    assert read(root, "new/file") == f"{real}/new/file"
    assert read(root, "~") == f"{real}/~"
    assert read(root, ".") == real


@pytest.mark.parametrize(
    "path",
    ["..", "../secret", "a/../../secret", "/etc/passwd", "/", "out/secret", "out", "file",
     "dangling", "in/../../secret", "../rooted", "../root/../secret", "//etc/passwd"],
)  # fmt: skip
def test_what_leads_out_is_refused_without_naming_where(root: Path, path: str) -> None:
    with pytest.raises(ValueError, match="leads outside") as caught:
        read(root, path)
    assert str(root.parent) not in str(caught.value)


@pytest.mark.parametrize("path", ["", None, 3, "a\0b", "\ud800", ["a"], b"a"])
def test_what_is_no_path_is_refused(root: Path, path: object) -> None:
    with pytest.raises(ValueError, match="it "):
        read(root, path)


@pytest.mark.parametrize(
    "path", ["loop/../out", "loop/../file", "loop/../out/secret", "loop/../../x"]
)
def test_a_link_that_leads_to_itself_hides_no_other(root: Path, path: str) -> None:
    with pytest.raises(ValueError, match="it leads"):
        read(root, path)


def test_a_root_that_is_a_link_is_the_folder_that_it_leads_to(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)

    assert read(tmp_path / "link", "a/b.txt") == os.path.realpath(root / "a/b.txt")


@pytest.mark.parametrize(
    "path",
    [".ai/tools/x.py", ".AI/x", "a/.git/hooks/x", ".env", ".env.local", ".Envrc", "a/.venv/bin/x",
     "node_modules/x", "venv/x", "__pycache__/x.pyc", "a/../.git"],
)  # fmt: skip
def test_what_decides_what_runs_is_not_written(root: Path, path: str) -> None:
    read(root, path)
    with pytest.raises(ValueError, match="is protected from writing"):
        written(root, path)


def test_a_link_to_what_is_protected_is_not_written(root: Path) -> None:
    (root / ".git").mkdir()
    (root / "x").symlink_to(root / ".git")

    with pytest.raises(ValueError, match="protected"):
        written(root, "x/config")


def test_an_environment_of_any_name_is_not_written(root: Path) -> None:
    (root / "env3/bin").mkdir(parents=True)
    (root / "env3/pyvenv.cfg").touch()

    with pytest.raises(ValueError, match="virtual environment"):
        written(root, "env3/bin/python")


def test_what_surrounds_the_root_protects_nothing_in_it(tmp_path: Path) -> None:
    root = tmp_path / ".ai" / "sandbox"
    root.mkdir(parents=True)

    assert written(root, "x") == os.path.realpath(root / "x")
    with pytest.raises(ValueError, match="protected"):
        resolve_path("x", root, confined=False, writing=True)


def test_unrestricted_leads_anywhere_and_writes_nothing_that_is_protected(root: Path) -> None:
    assert resolve_path("/etc/passwd", None, confined=False, writing=True) == "/etc/passwd"
    assert resolve_path("../secret", root, confined=False, writing=False).endswith("/secret")
    with pytest.raises(ValueError, match="protected"):
        resolve_path("/x/.git/config", None, confined=False, writing=True)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=500)
@given(
    st.lists(st.sampled_from(["a", "..", ".", "out", "in", "", "b.txt", "x", "loop"]), max_size=7)
)
def test_no_path_leads_out(root: Path, parts: list[str]) -> None:
    for path in ("/".join(parts), f"{root}/{'/'.join(parts)}"):
        try:
            found = read(root, path)
        except ValueError:
            continue
        assert Path(os.path.realpath(found)).is_relative_to(os.path.realpath(root))
