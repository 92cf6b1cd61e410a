"""A Ray cluster of the tests' own: its nodes are processes of this machine."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import pytest

from tests.workspace import Workspace

needs_ray = pytest.mark.skipif(
    find_spec("ray") is None, reason="needs the extra ray (pip install 'ryecore[ray]')"
)

# What a cluster, and who connects to it, would do besides: report its use, and ask for a token.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_AUTH_MODE", "disabled")

STORE_BYTES = 80 * 2**20


@contextmanager
def serving_ray() -> Iterator[Any]:
    """Run a cluster until the block ends: one node with two CPUs and a resource `disk`.

    `ray: auto` means it, here and in processes that inherit the environment.
    """
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 2,
            "resources": {"disk": 1},
            "object_store_memory": STORE_BYTES,
            "include_dashboard": False,
        },
    )
    os.environ["RAY_ADDRESS"] = cluster.address
    try:
        yield cluster
    finally:
        del os.environ["RAY_ADDRESS"]
        ray.shutdown()
        cluster.shutdown()


def name_cluster(workspace: Workspace, name: str = "gpu", **more: object) -> None:
    """Write a remotes.yaml with the cluster of this machine, and sign it."""
    entry = {"ray": "auto", **more}
    workspace.write("config/remotes/remotes.yaml", {"remotes": {name: entry}})
