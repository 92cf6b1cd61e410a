"""Where the file tools go: the project, what signed config adds, and nowhere else."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.system.tools import FILE_TOOLS, Result, Serving, call, environment

NEEDED: dict[str, dict[str, object]] = {
    "write": {"content": "new"},
    "edit": {"old_text": "secret", "new_text": "new"},
    "grep": {"pattern": "secret"},
    "glob": {"pattern": "**"},
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a twin beside it whose name only begins alike."""
    for name in ("project", "project-evil"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "sub/file").write_text("secret\n")
    return tmp_path / "project"


def use(name: str, project: Path, path: str, config: dict[str, object] | None = None) -> Result:
    return call(name, project, config=config, path=path, **NEEDED.get(name, {}))


def outside(project: Path) -> Path:
    return project.parent / "project-evil"


@pytest.mark.parametrize("name", FILE_TOOLS)
@pytest.mark.parametrize("kind", ["dots", "absolute", "link", "link-in-path", "dangling"])
def test_outside_is_refused_and_the_way_is_named(project: Path, name: str, kind: str) -> None:
    folder = name in ("list", "glob")
    target = outside(project) / ("sub" if folder else "sub/file")
    (project / "link").symlink_to(target)
    (project / "up").symlink_to("../project-evil")
    (project / "dangling").symlink_to(outside(project) / "new")
    path = {
        "dots": f"sub/../../{target.relative_to(project.parent)}",
        "absolute": str(target),
        "link": "link",
        "link-in-path": f"up/{target.relative_to(outside(project))}",
        "dangling": "dangling",
    }[kind]
    result = use(name, project, path)
    assert not result["success"]
    assert f"outside the project {project}" in result["error"]
    assert ".ai/config/file-system/access.yaml" in result["error"]
    assert "rye sign config:file-system/access" in result["error"]
    assert (outside(project) / "sub/file").read_text() == "secret\n"
    assert not (outside(project) / "new").exists()


@pytest.mark.parametrize("name", FILE_TOOLS)
def test_inside_works_relative_absolute_and_by_link(project: Path, name: str) -> None:
    inner = "sub" if name in ("list", "glob") else "sub/file"
    (project / "link").symlink_to("sub")
    for path in (inner, str(project / inner), inner.replace("sub", "link"), f"sub/../{inner}"):
        (project / "sub/file").write_text("secret\n")
        result = use(name, project, path)
        assert result["success"], result
    assert (project / "link").is_symlink()


def test_the_project_may_be_given_by_a_link(project: Path) -> None:
    alias = project.parent / "alias"
    alias.symlink_to("project")
    assert use("read", alias, str(project / "sub/file"))["path"] == "sub/file"
    assert use("read", alias, str(alias / "sub/file"))["path"] == "sub/file"


@pytest.mark.parametrize("name", FILE_TOOLS)
@pytest.mark.parametrize("path", ["", "a\0b", "\ud800", "x" * 300, "x/" * 3000])
def test_impossible_paths_are_a_plain_error(project: Path, name: str, path: str) -> None:
    result = call(
        name, project, settings={}, path=path, **{**NEEDED.get(name, {})}, **no_dirs(name)
    )
    assert not result["success"]


def no_dirs(name: str) -> dict[str, object]:
    return {"create_dirs": False} if name == "write" else {}


@pytest.mark.parametrize("name", FILE_TOOLS)
def test_wrong_types_are_a_plain_error(project: Path, name: str) -> None:
    assert not call(name, project, **{**NEEDED.get(name, {}), "path": 7})["success"]


@pytest.mark.parametrize("name", ["read", "edit", "write"])
def test_only_regular_files_are_opened(project: Path, name: str) -> None:
    os.mkfifo(project / "fifo")
    with socket.socket(socket.AF_UNIX) as listening:
        old = os.open(".", os.O_RDONLY)
        os.chdir(project)  # a socket's path is short
        listening.bind("socket")
        os.fchdir(old)
        os.close(old)
        for path in ("fifo", "socket", "sub", "."):
            result = use(name, project, path)
            assert not result["success"]
            assert "regular files" in result["error"] or "is a folder" in result["error"]
    assert use(name, project, "/dev/null", {"roots": ["/dev"], "writable_roots": ["/dev"]})[
        "error"
    ].endswith("only regular files are opened.")


def test_a_link_that_leads_in_a_circle_is_refused(project: Path) -> None:
    (project / "circle").symlink_to("circle")
    assert "link" in use("read", project, "circle")["error"]


SWAPPED = """
import json, os, sys
from answers import Refused
from confined import locate
project, path, swapped, aim, writing = json.loads(sys.argv[1])
place = locate(path, project, {}, writing=writing)
os.rename(os.path.join(project, swapped), os.path.join(project, "before"))
os.symlink(aim, os.path.join(project, swapped))
try:
    os.close(place.open_parent()[0] if writing else place.open_file()[0])
except Refused as refused:
    print(refused)
else:
    print("opened")
"""


@pytest.mark.parametrize(
    ("swapped", "writing"), [("sub", False), ("sub/file", False), ("sub", True)]
)
def test_a_link_that_is_swapped_in_after_the_judgement_is_refused(
    project: Path, swapped: str, writing: bool
) -> None:
    aim = str(outside(project) / swapped)
    job = json.dumps([str(project), "sub/file", swapped, aim, writing])
    done = subprocess.run(
        [sys.executable, "-c", SWAPPED, job],
        capture_output=True,
        text=True,
        env=environment(),
        check=True,
    )
    assert "became a link" in done.stdout


def test_config_allows_reading_beside_the_project(project: Path) -> None:
    config: dict[str, object] = {"roots": [str(outside(project))]}
    path = str(outside(project) / "sub/file")
    read = use("read", project, path, config)
    assert (read["content"], read["path"]) == ("secret\n", path)
    assert use("grep", project, path, config)["matches"][0]["path"] == path
    refused = use("write", project, path, config)
    assert "`writable_roots`" in refused["error"]
    assert Path(path).read_text() == "secret\n"


def test_config_allows_writing_below_a_root(project: Path) -> None:
    config: dict[str, object] = {
        "roots": [str(outside(project))],
        "writable_roots": [str(outside(project) / "sub")],
    }
    assert use("write", project, str(outside(project) / "sub/new"), config)["success"]
    assert not use("write", project, str(outside(project) / "new"), config)["success"]
    assert not use("write", project, str(outside(project) / "sub/.git/x"), config)["success"]


def test_a_writable_root_that_is_no_root_allows_nothing(project: Path) -> None:
    config: dict[str, object] = {"writable_roots": [str(outside(project))]}
    assert "outside" in use("write", project, str(outside(project) / "new"), config)["error"]


def test_a_root_allows_no_twin(project: Path) -> None:
    root = project.parent / "data"
    (root.parent / "data-2").mkdir()
    (root.parent / "data-2/file").write_text("secret")
    config: dict[str, object] = {"roots": [str(root)]}
    assert not use("read", project, str(root.parent / "data-2/file"), config)["success"]


@pytest.mark.parametrize(
    "config",
    [{"roots": "x"}, {"roots": [1]}, {"roots": ["relative"]}, {"allow_protected_writes": {}}],
)
def test_a_malformed_config_is_named(project: Path, config: dict[str, object]) -> None:
    path = "/etc/hostname" if "roots" in config else "new"
    assert "config file-system/access" in use("write", project, path, config)["error"]


def test_a_parameter_widens_nothing(project: Path) -> None:
    path = str(outside(project) / "sub/file")
    result = call("read", project, path=path, roots=["/"], allow_protected_writes=[".ai"])
    assert not result["success"]


PROTECTED = [
    ".ai/tools/x.py",
    "deep/.ai/x",
    ".AI/x",
    ".git/hooks/pre-commit",
    ".Git/config",
    ".env",
    ".env.local",
    ".ENVRC",
    "deep/er/.env",
    ".venv/bin/python",
    "venv/x",
    "node_modules/x/index.js",
    "a/__pycache__/x.pyc",
    ".ai",
]


@pytest.mark.parametrize("path", PROTECTED)
def test_protected_names_are_not_written(project: Path, path: str) -> None:
    result = use("write", project, path)
    assert not result["success"]
    assert "protected" in result["error"]
    assert "allow_protected_writes" in result["error"]
    assert sorted(os.listdir(project)) == ["sub"]


def test_protected_names_are_not_edited_or_reached_by_a_link(project: Path) -> None:
    (project / ".ai").mkdir()
    (project / ".ai/item").write_text("secret")
    (project / "link").symlink_to(".ai")
    for path in (".ai/item", "link/item", "sub/../.ai/item"):
        for name in ("edit", "write"):
            assert "protected" in use(name, project, path)["error"]
    assert use("read", project, ".ai/item")["content"] == "secret"


def test_a_virtual_environment_is_protected_by_whichever_name(project: Path) -> None:
    (project / "env/bin").mkdir(parents=True)
    (project / "env/pyvenv.cfg").write_text("")
    result = call("write", project, path="env/bin/python", content="x")
    assert not result["success"]
    assert "virtual environment" in result["error"]
    config: dict[str, object] = {"allow_protected_writes": ["pyvenv.cfg"]}
    assert call("write", project, config=config, path="env/bin/python", content="x")["success"]


def test_a_hard_link_does_not_carry_a_write_to_a_protected_file(project: Path) -> None:
    (project / ".env").write_text("secret")
    os.link(project / ".env", project / "alias")
    for name, more in (("edit", {}), ("write", {"mode": "append"})):
        assert call(name, project, path="alias", **NEEDED[name], **more)["success"]
    assert (project / ".env").read_text() == "secret"


@pytest.mark.parametrize(
    ("allowed", "path", "success"),
    [
        (".ai", ".ai/x", True),
        (".ai/", ".AI/x", True),
        (".ai", ".git/x", False),
        (".ai", ".ai/.git/x", False),
        (".env", ".env", True),
        (".env", ".env.local", False),
        (".env*", ".env.local", True),
    ],
)
def test_config_allows_a_protected_name(
    project: Path, allowed: str, path: str, success: bool
) -> None:
    config: dict[str, object] = {"allow_protected_writes": [allowed]}
    assert use("write", project, path, config)["success"] is success


def test_names_that_only_begin_alike_are_not_protected(project: Path) -> None:
    for path in (".gitignore", ".aid/x", "venv2/x", "env"):
        assert use("write", project, path)["success"], path


@pytest.fixture(scope="module")
def maze(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project full of links, beside what they must not reach."""
    base = tmp_path_factory.mktemp("maze")
    for name in ("p", "p2"):
        (base / name / "a/b").mkdir(parents=True)
        for path in ("f", "a/f", "a/b/f"):
            (base / name / path).write_text(name)
    (base / "p/a/up").symlink_to("..")
    (base / "p/out").symlink_to("../p2")
    (base / "p/a/root").symlink_to("/")
    (base / "p/a/b/in").symlink_to(base / "p/a")
    return base


@pytest.fixture(scope="module")
def reading(maze: Path) -> Iterator[Serving]:
    with Serving("read", maze / "p") as serving:
        yield serving


@pytest.fixture(scope="module")
def writing(maze: Path) -> Iterator[Serving]:
    with Serving("write", maze / "p") as serving:
        yield serving


NAMES = st.sampled_from(["..", ".", "", "a", "b", "f", "up", "out", "root", "in", "p", "p2", "tmp"])
WALKS = st.tuples(st.booleans(), st.lists(NAMES, min_size=1, max_size=8))


def named(maze: Path, walk: tuple[bool, list[str]]) -> str:
    absolute, names = walk
    return "/".join(names) if not absolute else f"{maze}/p/" + "/".join(names)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(walk=WALKS)
def test_whatever_is_read_lies_in_the_project(
    maze: Path, reading: Serving, walk: tuple[bool, list[str]]
) -> None:
    path = named(maze, walk)
    real = Path(os.path.realpath(maze / "p" / path))
    result = reading.call(path=path)
    if result["success"]:
        assert real.is_relative_to(maze / "p")
        assert result["content"] == "p"
        assert maze / "p" / result["path"] == real
    elif path and not real.is_relative_to(maze / "p"):
        assert "outside" in result["error"]
    else:
        assert not real.is_file() or not path


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(walk=WALKS)
def test_whatever_is_written_lies_in_the_project(
    maze: Path, writing: Serving, walk: tuple[bool, list[str]]
) -> None:
    path = named(maze, walk)
    real = Path(os.path.realpath(maze / "p" / path))
    result = writing.call(path=path, content="p")
    if result["success"]:
        assert real.is_relative_to(maze / "p")
        assert real.read_text() == "p"
    assert sorted(os.listdir(maze)) == ["p", "p2"]
    assert sorted(os.listdir(maze / "p2")) == ["a", "f"]
    assert (maze / "p2/f").read_text() == (maze / "p2/a/b/f").read_text() == "p2"
