"""Each version of Python that a tool may run on begins without the working folder."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.hostile import marks, plant
from tests.matrix import in_turn
from tests.warm_host import PYTHONS, Template, python_call

TOOL = """
import json, re, sys
def execute(params, project):
    import csv, glob, queue, random
    try:
        import usercustomize
    except ImportError:
        pass
    try:
        import of_the_user as own
    except ImportError:
        own = None
    paths = [path for path in sys.path if path in ("", ".", project)]
    return [own and own.__file__, paths, [path for path in sys.path if "-packages" in path][:1]]
if __name__ == "__main__":
    print(json.dumps(execute(None, sys.argv[-1])))
"""
ASK = "import site; print(site.getusersitepackages())"


@pytest.mark.parametrize(
    ("version", "runtime"),
    in_turn([one for one in PYTHONS if one not in ("3.6", "3.7")], ["function", "script"]),
)
def test_nothing_of_the_working_folder_runs_and_a_users_own_packages_stay(
    version: str, runtime: str, tmp_path: Path
) -> None:
    python = str(Path(PYTHONS[version]).resolve())  # a virtual environment has none of a user's
    project, where = tmp_path / "project", tmp_path / "marks"
    project.mkdir()
    plant(project, where)
    env = {"HOME": str(tmp_path)}
    asked = subprocess.run([python, "-I", "-c", ASK], env=env, capture_output=True, check=True)
    user = asked.stdout.decode().strip()
    own = Path(user, "of_the_user.py")
    own.parent.mkdir(parents=True)
    own.write_text("")
    tool = tmp_path / "sealed/tool.py"
    tool.parent.mkdir()
    tool.write_text(TOOL)
    call = python_call(runtime, tool, python=python, project=str(project), env=env)
    cold = call.cold()
    assert (cold.code, cold.err) == (0, "")
    assert json.loads(cold.out) == [str(own), [], [user]]
    with Template(call) as template:
        assert template.call() == cold
    assert marks(where) == []


def test_a_virtual_environment_that_stands_alone_has_no_packages_of_the_user(
    tmp_path: Path,
) -> None:
    venv = tmp_path / "venv"
    python = next(iter(PYTHONS.values()))
    subprocess.run([python, "-m", "venv", "--without-pip", str(venv)], check=True)
    env = {"HOME": str(tmp_path)}
    asked = subprocess.run([python, "-I", "-c", ASK], env=env, capture_output=True, check=True)
    own = Path(asked.stdout.decode().strip(), "of_the_user.py")
    own.parent.mkdir(parents=True)
    own.write_text("")
    tool = tmp_path / "tool.py"
    tool.write_text(TOOL)
    call = python_call("function", tool, python=str(venv / "bin/python"), env=env)
    assert json.loads(call.cold().out)[:2] == [None, []]
