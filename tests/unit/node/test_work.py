"""How often workers of a queue ask for runs, and what their first run waits for."""

import json
import subprocess
import sys

import pytest

from tests.thread_host import PlannedWorkspace
from tests.workspace import Workspace

pytest.importorskip("dbos", reason="needs the extra dbos")
from ryecore.node.work import poll_interval_s

_LARGE = ("pydantic", "httpx", "cattrs", "defusedxml")
_FIRST_RUN = """
import json, sys
from pathlib import Path
import anyio
from ryecore.node.work import import_ahead
from tests.thread_host import serve
root = Path(sys.argv[1])
if "ahead" in sys.argv:
    import_ahead()
anyio.run(serve, root, [])
before = set(sys.modules)
[done] = anyio.run(serve, root, [["directive:acme/short"]])
assert done["status"] == "success", done
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_many_workers_together_ask_as_often_as_four_and_each_once_a_second() -> None:
    assert [poll_interval_s(one) for one in (0, 1, 4)] == [0.05] * 3
    assert [poll_interval_s(one) for one in (8, 80, 1_000)] == [0.1, 1.0, 1.0]


def test_the_first_run_of_a_worker_waits_for_no_large_import(workspace: Workspace) -> None:
    planned = PlannedWorkspace(workspace)
    planned.write("short", ["mark", {"text": "short"}])
    # A new process each, of a second: what is imported once in one can't be imported again.
    command = [sys.executable, "-W", "ignore", "-c", _FIRST_RUN, str(planned.root)]
    imported = [
        json.loads(subprocess.check_output([*command, *more], env=planned.environ))
        for more in ((), ("ahead",))
    ]
    of_prices = [{one for one in names if one.startswith("genai_prices")} for names in imported]
    assert of_prices[0], "the prices of models aren't what a first run imports any more"
    assert not of_prices[1]
    assert not [one for one in imported[1] if one.startswith(_LARGE)]
