"""The rules of Ray clusters as remotes: addresses, resources, and whether a cluster has them. Pure.

Source: docs/design/ray.md.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

__all__ = [
    "AUTO",
    "NEVER_BEGAN",
    "Lacked",
    "Resources",
    "lacking",
    "look_interval_s",
    "ray_options",
    "read_ray_address",
    "read_resources",
    "read_runner_name",
    "runner_name",
    "with_default",
]

Resources = tuple[tuple[str, float], ...]
"""Resources by name, in its order, with how much of each; one CPU where that isn't among them."""

AUTO: Final = "auto"

NEVER_BEGAN: Final = "worker_lost_early"
"""The problem of a worker that died before it was given anything to run."""

_ADDRESS: Final = re.compile(r"ray://[A-Za-z0-9.\-\[\]:]+:[0-9]{1,5}", re.ASCII)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}", re.ASCII)
_MAX_RESOURCES: Final = 32
_LOOK_EVERY_S: Final = 5.0
"""How often the cluster is looked at while a run waits, in seconds."""

_LEAST_LOOK_S: Final = 0.5
_OWN: Final = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
"""The resources that Ray takes as options of their own."""


def read_ray_address(value: object) -> str:
    """Read the address of a Ray cluster.

    Raises:
        ValueError: It isn't one, as the end of a sentence about it.
    """
    if isinstance(value, str) and (value == AUTO or _ADDRESS.fullmatch(value)):
        return value
    raise ValueError("must be auto, the cluster of this machine, or such as ray://head:10001")


def read_resources(value: object) -> Resources:
    """Read the resources that each run takes, by the names that `ray status` shows.

    Raises:
        ValueError: They can't be resources, as the end of a sentence about them.
    """
    if not isinstance(value, Mapping) or len(value) > _MAX_RESOURCES:
        raise ValueError("must be a mapping of resources, such as {CPU: 1, GPU: 1}")
    for name, amount in value.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"has {name!r}, which can't be the name of a resource")
        if isinstance(amount, bool) or not isinstance(amount, int | float):
            raise ValueError(f"has {name}, which must be a number")
        if not math.isfinite(amount) or amount < 0:
            raise ValueError(f"has {name}, which must be a number from 0")
        if amount > 1 and amount != int(amount):
            raise ValueError(f"has {name}, which must be a whole number, or a part of one")
    return tuple(sorted((str(name), float(amount)) for name, amount in value.items()))


def with_default(resources: Resources) -> dict[str, float]:
    """Return resources by name, with one CPU where that isn't among them."""
    return {"CPU": 1.0, **dict(resources)}


def ray_options(resources: Resources) -> dict[str, Any]:
    """Return resources as the options of an actor of Ray's."""
    wanted = with_default(resources)
    options: dict[str, Any] = {_OWN[name]: wanted.pop(name) for name in _OWN if name in wanted}
    return {**options, "resources": wanted}


def lacking(wanted: Resources, nodes: Iterable[Mapping[str, float]]) -> Mapping[str, float] | None:
    """Return what no node of a cluster has; None where one has all that is wanted.

    Args:
        wanted: The resources that a run takes.
        nodes: What each node that is alive has in all, whether free or not.

    Returns:
        The resources that are short on the node that comes closest, each with what that node has.
    """
    asked = with_default(wanted)
    short = [
        {name: node.get(name, 0.0) for name, amount in asked.items() if node.get(name, 0) < amount}
        for node in nodes
    ]
    if not short:
        return dict.fromkeys(asked, 0.0)
    closest = min(short, key=len)
    return closest or None


def runner_name(run_id: str, resources: Resources) -> str:
    """Return the name of the actor of a run, which tells all processes what the run takes.

    Args:
        run_id: An id that no other run has, without spaces.
        resources: What the run takes.
    """
    return " ".join([run_id, *(f"{name}={amount:g}" for name, amount in resources)])


def read_runner_name(name: str) -> tuple[str, Resources]:
    """Return the id and the resources that `runner_name` wrote."""
    run_id, *written = name.split(" ")
    pairs = (one.rpartition("=") for one in written)
    return run_id, tuple((resource, float(amount)) for resource, _, amount in pairs)


def look_interval_s(patience_s: float) -> float:
    """Return how often the cluster is looked at while a run waits, in seconds."""
    return min(_LOOK_EVERY_S, max(patience_s, _LEAST_LOOK_S))


class Lacked:
    """For how long runs that wait have lacked what they take, look by look."""

    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}

    def longer_than(
        self, patience_s: float, lacking: Collection[str], now_s: float
    ) -> tuple[str, ...]:
        """Note a look at the cluster, and return the runs that it can't run for long enough.

        Args:
            patience_s: How long a run may lack what it takes, in seconds.
            lacking: The runs that lack something now.
            now_s: When that was seen, on a monotonic clock.
        """
        self._since_s = {one: self._since_s.get(one, now_s) for one in lacking}
        return tuple(one for one, since in self._since_s.items() if now_s - since >= patience_s)
