"""A Python script runs in a `__main__` of its own, as with `python tool.py`."""

import json
import subprocess
import sys
from pathlib import Path

import attrs
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


def test_a_tool_imports_what_is_installed_for_its_host(workspace: Workspace) -> None:
    del workspace.environ["RYE_PYTHON"]
    text = HEADER + "import json, sys, attrs\nprint(json.dumps([sys.prefix, attrs.__file__]))"
    workspace.write("tools/a/t.py", text)
    assert workspace.execute("tool:a/t").data == [sys.prefix, attrs.__file__]


def test_a_failed_import_names_the_interpreter_that_lacks_the_module(workspace: Workspace) -> None:
    found = workspace.environ["RYE_PYTHON"]
    workspace.write("tools/a/t.py", HEADER + "import tides_nowhere.low")
    done = workspace.execute("tool:a/t")
    assert done.metadata["interpreter"] == found
    assert done.metadata["missing_module"] == "tides_nowhere"
    assert f"{found} -m pip install tides_nowhere" in done.error


@pytest.mark.parametrize(
    ("body", "module", "hint"),
    [
        ("import json.tides", "json.tides", "Another version of json may have it."),
        ("from json import tides", None, "what it imports has to be installed there."),
        ("raise ImportError('needs tides')", None, "what it imports has to be installed there."),
        (
            "try:\n    import tides\nexcept ImportError as e:\n    raise ValueError('no') from e",
            "tides",
            "-m pip install tides",
        ),
    ],
)
def test_other_imports_that_fail_name_the_interpreter_too(
    workspace: Workspace, body: str, module: str | None, hint: str
) -> None:
    workspace.write("tools/a/t.py", HEADER + body)
    done = workspace.execute("tool:a/t")
    found = workspace.environ["RYE_PYTHON"]
    assert done.metadata["interpreter"] == found
    assert done.metadata.get("missing_module") == module
    assert f"{found} ran this tool" in done.error
    assert done.error.endswith(hint)


def test_an_import_that_the_tool_has_handled_is_not_why_it_failed(workspace: Workspace) -> None:
    body = "try:\n    import tides\nexcept ImportError:\n    raise ValueError('no')"
    workspace.write("tools/a/t.py", HEADER + body)
    assert "interpreter" not in workspace.execute("tool:a/t").metadata
