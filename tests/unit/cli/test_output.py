"""What is printed."""

import json
import os
import pty
import subprocess

from tests.unit.cli.conftest import COMMAND, environ, read_all


def test_json_steers_no_terminal_and_says_the_same(house):
    """The second is a control sequence of one character, the third turns the text around."""
    house.shell("a/t", r"printf '\033[2J|\302\2332J|\342\200\256txt.exe'")
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "execute", "tool:a/t", "--json"],
        stdin=subprocess.DEVNULL,
        stdout=follower,
        stderr=follower,
        cwd=house.project,
        env=environ(house),
    ):
        os.close(follower)
        shown = read_all(leader)
    os.close(leader)
    assert shown.replace("\r\n", "").isprintable()
    assert json.loads(shown)["data"]["stdout"] == "\x1b[2J|\x9b2J|\u202etxt.exe"


def test_json_about_a_path_that_is_no_text_is_json_all_the_same(house, run):
    project = house.root / "caf\udce9"  # Latin-1 on disk
    project.mkdir()
    done = run("execute", "tool:nope", "--json", "--project", str(project), LC_ALL="C.UTF-8")
    assert "caf\udce9" in done.json["error"]
