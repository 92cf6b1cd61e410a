"""What the command shows of Python's warnings."""

from tests.unit.cli.conftest import Run
from tests.unit.display.test_notices import hostile_clone
from tests.workspace import Workspace


def test_the_command_shows_warnings_as_its_own_lines(workspace: Workspace, run: Run) -> None:
    clone = hostile_clone(workspace)
    done = run("execute", "acme/x", "--project", str(clone), RYE_DEV_MODE="1")
    assert done.err.startswith("! RYE_DEV_MODE=1: integrity errors are warnings")
    assert "! RYE_DEV_MODE lets this pass: " in done.err
    assert "UserWarning" not in done.err
    assert done.err.replace("\n", "").isprintable()
    assert (done.code, "hi" in done.out) == (0, True)
    assert done.out.replace("\n", "").isprintable()


def test_the_command_shows_what_others_warn_of_so_too(workspace: Workspace, run: Run) -> None:
    module = workspace.root / "bad\x1b[2J"
    module.mkdir()
    (module / "loud.py").write_text("import warnings\nwarnings.warn('x\\x1b[2J')\n")
    done = run("execute", "a/x", "--deps", "loud:make", PYTHONPATH=str(module))
    assert done.code == 2
    assert "\x1b" not in done.err + done.out
