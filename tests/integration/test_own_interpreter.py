"""ryecore installed in a project's own virtual environment, as most people install things."""

import json
import subprocess
import sys
from pathlib import Path

from tests.workspace import Workspace

EXECUTE = """
import json, sys
from ryecore import SyncRye

with SyncRye.open(sys.argv[1], user_space=sys.argv[2]) as rye:
    print(json.dumps([rye.execute(ref, given).to_dict() for ref, given in json.loads(sys.argv[3])]))
"""


def test_system_and_project_tools_run_on_the_interpreter_that_ryecore_runs_on(
    workspace: Workspace,
) -> None:
    ref = workspace.python(
        "acme/which", "import sys\ndef execute(p, q):\n    return sys.executable"
    )
    venv = workspace.project / ".venv"
    make = [sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(venv)]
    subprocess.run(make, check=True)
    (packages,) = venv.glob("lib/*/site-packages")
    (packages / "shared.pth").write_text("\n".join(filter(None, sys.path)))
    calls = [("tool:rye/bash", {"command": "echo hi"}), (ref, {})]
    python = venv / "bin/python"
    done = subprocess.run(
        [
            str(python),
            "-c",
            EXECUTE,
            str(workspace.project),
            str(workspace.user),
            json.dumps(calls),
        ],
        capture_output=True,
        check=True,
        cwd=Path("/"),
    )
    bash, which = json.loads(done.stdout)
    assert bash["data"]["stdout"] == "hi\n"
    assert which["data"] == str(python)
