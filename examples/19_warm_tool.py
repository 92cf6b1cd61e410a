"""Call a Python tool again: cold, then warm. Edit it, and the very next call runs the new one."""

import tempfile
import time
from pathlib import Path

from ryecore import SyncRye

TOOL = """\
__executor_id__ = "rye/core/runtimes/python/function"

import os
import statistics


def execute(params, project_path):
    return {"mean": statistics.mean(params["numbers"]), "process": os.getpid()}
"""


def call(rye: SyncRye) -> bool:
    """Call the tool once, print its time, and return whether it started warm."""
    begun = time.perf_counter()
    done = rye.execute("tool:acme/mean", {"numbers": [3, 4, 8]}, trace=True).raise_for_status()
    took_ms = (time.perf_counter() - begun) * 1e3
    start = next(event["start"] for event in done.trace or () if "start" in event)
    print(f"  {start:5} {took_ms:7.1f} ms  {done.data}")
    return start == "warm"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        project, user = Path(folder, "shop"), Path(folder, "home")
        tool = project / ".ai/tools/acme/mean.py"
        tool.parent.mkdir(parents=True)
        tool.write_text(TOOL)
        with SyncRye.open(project, user_space=user) as rye:
            rye.keys.generate("the example")
            rye.sign("tool:acme/mean")
            print("Each call is a process of its own; from some call on it was forked ahead.")
            while not call(rye):
                pass
            call(rye)
            print("The tool is edited and signed: the very next call runs what it says now.")
            tool.write_text(tool.read_text().replace("statistics.mean", "statistics.median"))
            rye.sign("tool:acme/mean")
            call(rye)


if __name__ == "__main__":
    main()
