"""What is printed."""

import json
import subprocess
import sys

import pytest

from tests.matrix import in_turn
from tests.unit.cli.conftest import COMMAND, environ, run_on_terminal, start


def test_json_steers_no_terminal_and_says_the_same(workspace):
    """The second is a control sequence of one character, the third turns the text around."""
    workspace.shell("a/t", r"printf '\033[2J|\302\2332J|\342\200\256txt.exe'")
    shown = run_on_terminal(workspace, "execute", "tool:a/t", "--json")
    assert shown.replace("\r\n", "").isprintable()
    assert json.loads(shown)["data"]["stdout"] == "\x1b[2J|\x9b2J|\u202etxt.exe"


def test_json_about_a_path_that_is_no_text_is_json_all_the_same(workspace, run):
    project = workspace.root / "caf\udce9"  # Latin-1 on disk
    project.mkdir()
    done = run("execute", "tool:nope", "--json", "--project", str(project), LC_ALL="C.UTF-8")
    assert "caf\udce9" in done.json["error"]


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_output_that_cannot_be_written_is_said(workspace, form):
    workspace.shell("a/t", "echo hi")
    with open("/dev/full", "w") as full:
        process = start(workspace, "execute", "tool:a/t", *form, stdout=full)
        _, err = process.communicate()
    assert process.returncode == 1
    assert err == b"rye: the output can't be written: No space left on device\n"


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ("threads", "list", "-h")])
def test_help_that_cannot_be_written_is_said(workspace, arguments):
    with open("/dev/full", "w") as full:
        process = start(workspace, *arguments, stdout=full)
        _, err = process.communicate()
    assert process.returncode == 1
    assert err == b"rye: the output can't be written: No space left on device\n"


@pytest.mark.parametrize(
    ("end", "form"), in_turn([("tool:a/t", 0), ("tool:a/nope", 2)], [(), ("--json",)])
)
def test_a_command_without_streams_runs_all_the_same(workspace, end, form):
    ref, code = end
    workspace.shell("a/t", "echo hi >ran")
    command = 'exec "$@" <&- >&- 2>&-'
    done = subprocess.run(
        ["/bin/sh", "-c", command, "sh", *COMMAND, "execute", ref, *form],
        check=False,
        cwd=workspace.project,
        env=environ(workspace),
    )
    assert done.returncode == code
    assert (workspace.project / "ran").exists() == (code == 0)


def test_a_folder_that_has_gone_is_no_project(workspace):
    gone = workspace.root / "gone"
    gone.mkdir()
    done = subprocess.run(
        [
            "/bin/sh",
            "-c",
            'rmdir "$1"; shift; exec "$@"',
            "sh",
            str(gone),
            *COMMAND,
            "keys",
            "list",
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=gone,
        env=environ(workspace) | {"PYTHONSAFEPATH": "1"},
    )
    assert done.returncode == 2
    assert "is not a folder" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("module", ["commands", "execute"])
def test_ctrl_c_before_anything_runs_shows_no_traceback(module: str):
    """It takes a moment to import all that the command needs."""
    interrupted = (
        "import sys\n"
        "class Interrupt:\n"
        "  def find_spec(self, name, path=None, target=None):\n"
        "    if name == 'ryecore.cli.MODULE': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from ryecore.cli import main\n"
        "main()\n"
    ).replace("MODULE", module)
    done = subprocess.run(
        [sys.executable, "-c", interrupted, "execute", "tool:a"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "\nAborted!\n")
