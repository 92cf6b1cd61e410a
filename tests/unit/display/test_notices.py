"""Warnings: one way, and nothing in them steers a terminal."""

import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from ryecore.display.sanitize import RyeWarning, warn
from tests.workspace import Workspace

STEERING = "\x1b]0;owned\x07\x1b[2J\u202e\r\nfake"


def test_what_is_warned_of_steers_nothing_and_names_no_file_of_the_caller() -> None:
    with pytest.warns(RyeWarning) as caught:
        warn(f"{STEERING} was moved")
    (one,) = caught
    assert str(one.message).isprintable()
    assert str(one.message).endswith(r"\u202e\r\nfake was moved")
    assert one.filename == "<ryecore>"


def test_a_warning_is_shown_once_and_can_be_filtered_by_its_module() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for text in ("one", "one", "two"):
            warn(text)
        warnings.filterwarnings("ignore", module="ryecore")
        warn("three")
    assert [str(one.message) for one in caught] == ["one", "two"]


def hostile_clone(workspace: Workspace) -> Path:
    """A clone whose name steers a terminal, with an unsigned tool."""
    clone = workspace.root / f"clone{STEERING}"
    tool = clone / ".ai/tools/acme/x.sh"
    tool.parent.mkdir(parents=True)
    tool.write_text("# __executor_id__ = 'rye/core/runtimes/bash/bash'\necho hi\n")
    return clone


def test_a_folders_name_steers_no_terminal_of_a_program_in_it(workspace: Workspace) -> None:
    clone = hostile_clone(workspace)
    script = clone / "run.py"
    script.write_text(
        "from ryecore import SyncRye\n"
        "with SyncRye.open('.') as rye:\n"
        "    rye.execute('tool:acme/x')\n"
    )
    environ = {**workspace.environ, "RYE_DEV_MODE": "1", "USER_SPACE": str(workspace.user)}
    done = subprocess.run(
        [sys.executable, script], cwd=clone, env=environ, capture_output=True, text=True, check=True
    )
    assert "RYE_DEV_MODE lets this pass" in done.stderr
    assert done.stderr.replace("\n", "").isprintable()
    assert "fake" not in [line[:4] for line in done.stderr.splitlines()]
