"""A Ray cluster of the tests' own: its nodes are processes of this machine.

`python -m tests.rays` runs one, and does what the lines on its standard input say; with their end
it ends. The process of the tests itself only connects to it.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ryecore.testing.ports import free_port
from tests.forking import COMMAND, ROOT, forking_python
from tests.matrix import IS_SOAK
from tests.workspace import Workspace

needs_ray = pytest.mark.skipif(
    find_spec("ray") is None, reason="needs the extra ray (pip install 'ryecore[ray]')"
)

# What a cluster, and who connects to it, would do besides: report its use, and ask for a token.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_AUTH_MODE", "disabled")

ROOT_FILE = "RYE_TESTS_RAY_ROOT"
"""The variable that names the file with the folder of the workspace whose threads run."""

FACTORY = "tests.rays:deps"
STORE_BYTES = 80 * 2**20
WORKER = (
    *COMMAND,
    "filelock",
    "google.protobuf.descriptor_pb2",
    "jsonschema",
    "multiprocessing.context",
    "psycopg",
    "requests",
    "ryecore.ray_worker",
    "ryecore.state.postgres.store",
    "tests.thread_host",
    "wcwidth",
    "yaml",
)
"""What a worker imports, without Ray, whose library reads its job where it is loaded."""
SYSTEM = {
    "memory_monitor_refresh_ms": 0,  # it would end workers for what other programs take
}
if IS_SOAK:
    # A node that dies is noticed within seconds, which takes half a minute by default. Else no
    # node dies, and one that a busy machine holds up for two seconds would be taken for dead.
    SYSTEM |= {
        "health_check_initial_delay_ms": 0,
        "health_check_period_ms": 500,
        "health_check_timeout_ms": 1000,
        "health_check_failure_threshold": 2,
    }


class ServedRay:
    """A cluster in a process of its own: one node with two CPUs and a resource `disk`.

    Attributes:
        address: Where its head is.
        client: The address of its client server, which there is in the soak.
        root_file: The file that holds the folder of the workspace whose threads run.
        user: The user space of the workers.
    """

    def __init__(self, folder: Path) -> None:
        self.root_file, self.user = folder / "root", folder / "user"
        self.user.mkdir()
        environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),  # the workers inherit it
            ROOT_FILE: str(self.root_file),
            "USER_SPACE": str(self.user),  # that of the workers, for projects that travel
        }
        port = free_port()
        self.client = f"ray://127.0.0.1:{port}"
        command = [sys.executable, "-m", "tests.rays", str(port if IS_SOAK else folder)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env=environ, cwd=ROOT,
        )  # fmt: skip
        self.address = self._answer()

    def add_node(self, **resources: float) -> None:
        """Add a node with one CPU and these resources."""
        self._say({"add": resources})

    def kill_node(self) -> None:
        """Kill the first node that was added and lives, with its workers."""
        self._say({"kill": True})

    def close(self) -> None:
        """End all nodes."""
        self._process.communicate()

    def _say(self, command: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("answer "):
                return line.removeprefix("answer ").strip()
        raise AssertionError(self._process.communicate()[1])


@contextmanager
def serving_ray() -> Iterator[ServedRay]:
    """Run a cluster until the block ends. `ray: auto` means it."""
    import ray

    folder = Path(tempfile.mkdtemp(prefix="rye-ray-"))
    cluster = ServedRay(folder)
    os.environ["RAY_ADDRESS"] = cluster.address
    try:
        yield cluster
    finally:
        del os.environ["RAY_ADDRESS"]
        ray.shutdown()
        cluster.close()
        shutil.rmtree(folder)


def name_cluster(workspace: Workspace, name: str = "gpu", **more: object) -> None:
    """Write a remotes.yaml with the cluster of this machine, and sign it."""
    entry = {"ray": "auto"} | more
    workspace.write("config/remotes/remotes.yaml", {"remotes": {name: entry}})


def deps() -> Mapping[str, Any]:
    """What a worker gives to `Rye.open`: the models of the workspace whose threads run."""
    from tests.thread_host import _deps

    return _deps(Path(Path(os.environ[ROOT_FILE]).read_text()))


def broken_deps() -> Mapping[str, Any]:
    """What a worker gives to `Rye.open` that fails with it, and not with an error of ryecore's."""
    return {"trusted_keys": 5}


def main() -> None:
    """Run a cluster, and do what standard input says."""
    from ray.cluster_utils import Cluster

    common = {
        "include_dashboard": False,
        "include_log_monitor": False,
        "no_monitor": True,
        "object_store_memory": STORE_BYTES,
    }
    head: dict[str, Any] = {
        "num_cpus": 2,
        "resources": {"disk": 1},
        "_system_config": SYSTEM,
        **common,
    }
    if IS_SOAK:
        head["ray_client_server_port"] = int(sys.argv[1])
    else:
        sys.executable = forking_python(Path(sys.argv[1]), "*/default_worker.py", WORKER)
    cluster = Cluster(initialize_head=True, head_node_args=head)
    added: list[Any] = []
    print("answer", cluster.address, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        if "add" in command:
            added.append(cluster.add_node(num_cpus=1, resources=command["add"], **common))
        else:
            cluster.remove_node(added.pop(0), allow_graceful=False)
        print("answer done", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
