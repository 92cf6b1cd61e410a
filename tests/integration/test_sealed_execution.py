"""What runs is exactly what was verified, whatever happens to the files meanwhile."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ryecore import SyncRye
from ryecore.errors import ContentChanged, RyeError
from tests.workspace import Workspace


@pytest.fixture
def rye(workspace: Workspace) -> Iterator[SyncRye]:
    with workspace.sync() as opened:
        yield opened


def test_a_tool_that_is_changed_while_it_waits_to_be_read_runs_as_it_was_verified(workspace, rye):
    # The runtime opens a pipe before it reads the tool, so the change surely comes in between.
    gate = workspace.project / "gate"
    os.mkfifo(gate)
    workspace.yaml(
        "a/paused",
        config={
            "command": "/bin/sh",
            "args": ["-c", 'read -r _ < gate; exec /bin/sh "$0"', "{tool_path}"],
        },
    )
    ref = workspace.shell("a/t", "echo verified", executor_id="a/paused")
    tool = workspace.path("tools/a/t.sh")
    answers: list[object] = []
    running = threading.Thread(target=lambda: answers.append(rye.execute(ref).data["stdout"]))
    running.start()
    with gate.open("w") as opened:  # waits until the process is there
        tool.write_text("echo evil\n")
        opened.write("go\n")
    running.join(20)
    assert answers == ["verified\n"]
    with pytest.raises(RyeError):
        rye.execute(ref)


def test_a_dependency_that_is_changed_before_it_is_imported_is_imported_as_verified(workspace, rye):
    workspace.write("tools/a/__init__.py", "")
    helper = workspace.write("tools/a/helper.py", "VALUE = 'verified'\n")
    os.mkfifo(workspace.project / "gate")
    body = """\
def execute(p, project):
    open(project + "/gate").read()
    import helper
    return helper.VALUE
"""
    ref = workspace.python("a/t", body)
    answers: list[object] = []
    running = threading.Thread(target=lambda: answers.append(rye.execute(ref).data))
    running.start()
    with (workspace.project / "gate").open("w"):
        helper.write_text(helper.read_text().replace("verified", "evil"))
    running.join(20)
    assert answers == ["verified"]
    with pytest.raises(ContentChanged):
        rye.execute(ref)


def test_a_tool_that_is_swapped_all_the_time_never_runs_unverified(workspace, rye):
    ref = workspace.shell("a/t", "echo verified")
    tool = workspace.path("tools/a/t.sh")
    good, evil = tool.read_bytes(), tool.read_bytes().replace(b"verified", b"evil")
    stop = threading.Event()

    def swap() -> None:
        side = tool.with_name("side")
        while not stop.is_set():
            for content in (evil, good):
                side.write_bytes(content)
                side.replace(tool)

    swapping = threading.Thread(target=swap)
    swapping.start()
    outcomes = set()
    try:
        for _ in range(60):
            try:
                outcomes.add(rye.execute(ref).data["stdout"])
            except ContentChanged:
                outcomes.add("refused")
    finally:
        stop.set()
        swapping.join()
    assert outcomes <= {"verified\n", "refused"}
    assert outcomes


def test_a_tool_cannot_change_what_the_next_run_runs(workspace, rye):
    body = """\
def execute(p, project):
    import os
    os.chmod(__file__, 0o700)
    with open(__file__, "a") as file:
        file.write("\\ndef execute(p, project):\\n    return 'evil'\\n")
    return "verified"
"""
    ref = workspace.python("a/t", body)
    for _ in range(3):
        assert rye.execute(ref).data == "verified"


def test_bytecode_that_a_run_could_leave_is_neither_written_nor_read(workspace, rye):
    workspace.write("tools/a/__init__.py", "")
    workspace.write("tools/a/helper.py", "VALUE = 1\n")
    ref = workspace.python(
        "a/t", "def execute(p, project):\n    import helper\n    return helper.VALUE"
    )
    assert rye.execute(ref).data == 1
    assert not list(workspace.root.rglob("*.pyc"))


def test_bytecode_that_somebody_plants_in_the_snapshots_folder_is_not_read(workspace, rye):
    import py_compile
    from importlib.util import cache_from_source

    workspace.write("tools/a/__init__.py", "")
    workspace.write("tools/a/helper.py", "VALUE = 'verified'\n")
    ref = workspace.python(
        "a/t", "def execute(p, project):\n    import helper\n    return helper.VALUE"
    )
    plan = rye.execute(ref, dry_run=True).plan
    sealed = Path(next(arg for arg in plan.args if arg.endswith("/t.py"))).parent
    planted = workspace.root / "planted.py"
    planted.write_text("VALUE = 'evil'\n")
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    name = Path(cache_from_source("/helper.py")).name
    # Beside the module, and wherever this run looks for bytecode instead.
    places = [sealed / "__pycache__"]
    places += [
        Path(arg + str(sealed))
        for arg in plan.args
        if arg.startswith(str(sealed)) and not Path(arg).exists()
    ]
    assert len(places) == 2
    sealed.chmod(0o700)
    for place in places:
        place.mkdir(parents=True)
        py_compile.compile(str(planted), str(place / name), invalidation_mode=mode)
    assert rye.execute(ref).data == "verified"


def test_a_snapshot_is_shared_by_equal_content_and_checked_when_another_rye_finds_it(workspace):
    ref = workspace.shell("a/t", "echo verified")
    with workspace.sync() as one:
        plan = one.execute(ref, dry_run=True).plan
    sealed = Path(plan.args[0])
    sealed.chmod(0o600)
    sealed.write_text("echo evil\n")
    assert workspace.execute(ref).data["stdout"] == "verified\n"


def test_a_folder_of_snapshots_that_others_can_write_to_is_refused(workspace):
    ref = workspace.shell("a/t", "echo verified")
    workspace.execute(ref)
    (workspace.user / ".ai/cache/sealed").chmod(0o777)
    with pytest.raises(RyeError, match="Others can write"):
        workspace.execute(ref)


def test_two_processes_that_seal_at_once_do_not_disturb_each_other(workspace):
    import subprocess
    import sys

    ref = workspace.shell("a/t", "echo verified")
    program = (
        "import sys; from ryecore import SyncRye\n"
        "with SyncRye.open(sys.argv[1], user_space=sys.argv[2]) as rye:\n"
        "    print(rye.execute(sys.argv[3]).data['stdout'], end='')"
    )
    command = [sys.executable, "-c", program, str(workspace.project), str(workspace.user), ref]
    running = [
        subprocess.Popen(command, env=workspace.environ, stdout=subprocess.PIPE) for _ in range(4)
    ]
    assert [process.communicate()[0] for process in running] == [b"verified\n"] * 4
