"""A Python script runs in a `__main__` of its own, as with `python tool.py`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workspace import SCRIPT, Workspace

HEADER = f"""__executor_id__ = {SCRIPT!r}
__version__ = "1.0.0"
"""

AS_A_PROGRAM = """
import json, pickle, sys

class Tide:
    height = 3

if __name__ == "__main__":
    from __main__ import Tide as again
    found = {
        "names": sorted(set(globals()) - {"__annotations__", "__builtins__"}),
        "pickled": pickle.loads(pickle.dumps(Tide)) is Tide is again,
        "main": sys.modules["__main__"].__dict__ is globals(),
        "file": __file__ == sys.argv[0],
        "loader": type(__loader__).__name__,
        "source": __loader__.get_source("__main__")[:8],
        "builtins": type(__builtins__).__name__,
        "spec": [__spec__, __package__, __cached__],
        "doc": __doc__,
    }
    print(json.dumps(found))
"""


def test_what_a_script_sees_of_itself_is_what_python_shows_a_program(
    workspace: Workspace, tmp_path: Path
) -> None:
    text = HEADER + AS_A_PROGRAM
    workspace.write("tools/a/t.py", text)
    alone = tmp_path / "t.py"
    alone.write_text(workspace.path("tools/a/t.py").read_text())
    by_hand = subprocess.run([sys.executable, str(alone)], capture_output=True, check=True)
    assert workspace.execute("tool:a/t").data == json.loads(by_hand.stdout)


def test_names_of_the_loader_are_not_the_scripts(workspace: Workspace) -> None:
    workspace.write("tools/a/t.py", HEADER + "print(sys.argv)")
    done = workspace.execute("tool:a/t")
    assert not done.success
    assert "NameError: name 'sys' is not defined" in done.error


def test_a_class_of_a_script_shows_its_source_and_a_dataclass_its_fields(
    workspace: Workspace,
) -> None:
    body = (
        "from __future__ import annotations\n"
        "import dataclasses, inspect, json, typing\n"
        "@dataclasses.dataclass\n"
        "class Tide:\n"
        "    height: int = 3\n"
        "print(json.dumps([inspect.getsource(Tide), dataclasses.asdict(Tide()),\n"
        "    [h.__name__ for h in typing.get_type_hints(Tide).values()]]))"
    )
    workspace.write(
        "tools/a/t.py", body.replace("import dataclasses", f"{HEADER}import dataclasses")
    )
    source, fields, hints = workspace.execute("tool:a/t").data
    assert source.endswith("class Tide:\n    height: int = 3\n")
    assert (fields, hints) == ({"height": 3}, ["int"])


def test_a_script_can_start_processes_that_import_it_again(workspace: Workspace) -> None:
    body = (
        "import json, multiprocessing\n"
        "def double(n):\n"
        "    return 2 * n\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(json.dumps(pool.map(double, [1, 2])))"
    )
    workspace.write("tools/a/t.py", HEADER + body)
    assert workspace.execute("tool:a/t").data == [2, 4]


@pytest.mark.parametrize(
    ("leaving", "code", "said"),
    [
        ("sys.exit()", 0, ""),
        ("sys.exit(0)", 0, ""),
        ("sys.exit(7)", 7, ""),
        ("sys.exit(True)", 1, ""),
        ("sys.exit(300)", 44, ""),
        ("sys.exit(2**70)", 255, ""),
        ("sys.exit('no tide')", 1, "no tide\n"),
        ("raise KeyboardInterrupt", 130, "KeyboardInterrupt"),
        ("import os; os._exit(9)", 9, ""),
    ],
)
def test_a_script_ends_with_the_code_that_it_asks_for(
    workspace: Workspace, leaving: str, code: int, said: str
) -> None:
    workspace.write("tools/a/t.py", f"{HEADER}import sys\n{leaving}")
    done = workspace.execute("tool:a/t").data
    # An interpreter that is interrupted ends itself by the signal.
    assert done["return_code"] in (code, -2 if code == 130 else code)
    assert said in done["stderr"]
    assert "SystemExit" not in done["stderr"]
