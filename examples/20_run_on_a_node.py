"""Run a signed tool on a node: another machine, here another process of this one, over HTTP."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ryecore import SyncRye
from ryecore.errors import RemoteError
from ryecore.node import Caller, Callers, NodeIdentity, make_node

TOOL = """\
# __version__ = "1.0.0"
# __executor_id__ = "rye/core/runtimes/bash/bash"
echo "$(wc -l < data/rows.csv) rows, counted by the user $(id -un)"
"""


@contextmanager
def served(node: NodeIdentity) -> Iterator[str]:
    """Run the node as its operator does: rye node serve."""
    serve = ["node", "serve", "--port", "0", "--folder", str(node.folder)]
    command = [sys.executable, "-m", "ryecore.cli", *serve]
    environ = {**os.environ, "USER_SPACE": str(node.folder.parent)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stderr is not None
        try:
            yield process.stderr.readline().split()[-1]
        finally:
            process.terminate()


def main(folder: Path) -> None:
    project, node = folder / "home/shop", make_node(folder / "gpu/node")
    for name, text in {".ai/tools/acme/count.sh": TOOL, "data/rows.csv": "1\n2\n3\n"}.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    with served(node) as url, SyncRye.open(project, user_space=folder / "home") as rye:
        key = rye.keys.generate("the example").public
        rye.sign("tool:acme/count")
        rye.remotes.add("gpu", url, node.key.public, include=["data/**"])
        try:
            rye.execute("tool:acme/count", target="remote:gpu")
        except RemoteError as refused:
            print("1. The node doesn't know this key:", refused.problem)

        Callers(node.folder, node.key).allow(Caller(key, label="the example", max_runs=2))
        print(f"2. Allowed, it takes {len(rye.remotes.plan('remote:gpu').snapshot.files)} files.")
        done = rye.execute("tool:acme/count", target="remote:gpu")
        print(f"3. It ran on {done.metadata['remote']}: {done.data['stdout'].strip()}")
        print("4. Unchanged, it sends", rye.remotes.push("remote:gpu").files, "files more.")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
