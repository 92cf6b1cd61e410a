"""The interface `rye.remotes` to the nodes that a project knows."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ryecore.errors import InputError, RemoteUntrusted
from ryecore.frozen import frozen
from ryecore.items.keys import AuthorKeys
from ryecore.items.signing import write_signed
from ryecore.items.spaces import Space, Spaces
from ryecore.runs.tasks import Running

if TYPE_CHECKING:
    from ryecore.actions.targets.remote_parts import RemoteParts
    from ryecore.lillux.keys import PublicKey
    from ryecore.remote.config import Remote
    from ryecore.remote.plan import PushPlan
    from ryecore.remote.protocol.models import Identity, NodeStatus
    from ryecore.remote.push import Progress, PushProgress
    from ryecore.runs.ports import TargetKind

__all__ = ["ClusterCheck", "RemoteCheck", "Remotes"]


@frozen
class RemoteCheck:
    """What a node answered to a check: its identity, its load, and how long it took."""

    remote: "Remote"
    identity: "Identity"
    status: "NodeStatus"
    round_trip_ms: float


@frozen
class ClusterCheck:
    """What a Ray cluster answered to a check: the resources of each node, and how long it took."""

    remote: "Remote"
    nodes: "tuple[Mapping[str, float], ...]"
    round_trip_ms: float


class Remotes:
    """The nodes that a project knows, and what travels to them."""

    def __init__(
        self,
        spaces: Spaces,
        keys: AuthorKeys,
        parts: "RemoteParts",
        running: Running,
    ) -> None:
        self._spaces = spaces
        self._keys = keys
        self._parts = parts
        self._running = running

    def list(self) -> "tuple[Remote, ...]":
        """Return the remotes of remotes.yaml, by name.

        Raises:
            RyeError: A remotes.yaml isn't signed by a trusted key, or has problems.
        """
        return tuple(self._parts.read())

    def kind_of(self, target: str) -> "TargetKind":
        """Return what a target is: `local`, or a remote that is a `node`, a `queue` or `ray`.

        Args:
            target: `local`, `remote` or `remote:NAME`.

        Raises:
            RyeError: There is no such remote, or a remotes.yaml has problems.
        """
        return self._parts.kind_of(target)

    async def identify(self, url: str) -> "tuple[Identity, PublicKey]":
        """Ask the node at a URL for its identity and its key, before it is a remote.

        That it signed its answer with this key doesn't prove whose it is: a person has to compare
        the fingerprint with the operator's.

        Raises:
            RemoteError: It can't be reached, or isn't a node.
        """
        _ = self._parts.nodes  # raises without the extra
        from ryecore.remote.client import fetch_identity  # noqa: PLC0415

        return await self._running.run("remotes", partial(fetch_identity, url))

    def add(
        self,
        name: str,
        url: str,
        key: "PublicKey",
        *,
        include: Sequence[str] = (),
        plain_http: bool = False,
        is_default: bool = False,
        in_project: bool = False,
    ) -> Path:
        """Add a remote whose key a person has confirmed, and sign remotes.yaml.

        Args:
            name: Its name.
            url: Where the node answers.
            key: The node's public key.
            include: Patterns of more files that travel.
            plain_http: Whether http:// may be used beyond this machine.
            is_default: Whether it becomes the remote of the target `remote`.
            in_project: Whether it is added to the project, and not to user space.

        Returns:
            The file.

        Raises:
            InputError: There is a remote of this name, or an argument can't be one's.
            RyeError: The file as it is isn't signed by a trusted key, or there is no key to sign
                with.
        """
        from ryecore.remote.authoring import NewRemote, check_new, with_remote  # noqa: PLC0415

        url = check_new(name, url, include=include, plain_http=plain_http)
        new = NewRemote(name, url, key, include, plain_http, is_default)
        space = self._space(in_project)
        return self._write(space, with_remote(self._parts.read.content_in(space), new))

    def add_queue(
        self,
        name: str,
        address: str,
        *,
        priority: int | None = None,
        travels: bool = False,
        include: Sequence[str] = (),
        is_default: bool = False,
        in_project: bool = False,
    ) -> Path:
        """Add a queue as a remote, and sign remotes.yaml.

        Args:
            name: Its name.
            address: Such as `postgresql://user@host/database?schema=shop&queue=batch`.
            priority: The place of its runs in the queue, from 1: a lower number runs earlier.
            travels: Whether the project travels to its workers with each run.
            include: Patterns of more files that travel.
            is_default: Whether it becomes the remote of the target `remote`.
            in_project: Whether it is added to the project, and not to user space.

        Returns:
            The file.

        Raises:
            InputError: There is a remote of this name, or an argument can't be one's.
            RyeError: The file as it is isn't signed by a trusted key, or there is no key to sign
                with.
        """
        from ryecore.remote.authoring import NewQueue, check_queue, with_queue  # noqa: PLC0415

        new = NewQueue(name, address, priority, travels, include, is_default)
        check_queue(new)
        space = self._space(in_project)
        return self._write(space, with_queue(self._parts.read.content_in(space), new))

    def add_cluster(
        self,
        name: str,
        address: str = "auto",
        *,
        resources: "Mapping[str, float] | None" = None,
        travels: bool = False,
        include: Sequence[str] = (),
        is_default: bool = False,
        in_project: bool = False,
    ) -> Path:
        """Add a Ray cluster as a remote, and sign remotes.yaml.

        Args:
            name: Its name.
            address: `auto`, the cluster of this machine, or such as `ray://head:10001`.
            resources: What each run takes, such as `{"GPU": 1}`; one CPU by default.
            travels: Whether the project travels to its workers with each run.
            include: Patterns of more files that travel.
            is_default: Whether it becomes the remote of the target `remote`.
            in_project: Whether it is added to the project, and not to user space.

        Returns:
            The file.

        Raises:
            InputError: There is a remote of this name, or an argument can't be one's.
            RyeError: The file as it is isn't signed by a trusted key, or there is no key to sign
                with.
        """
        from ryecore.remote.authoring import (  # noqa: PLC0415
            NewCluster,
            check_cluster,
            with_cluster,
        )

        new = NewCluster(name, address, resources or {}, travels, include, is_default)
        check_cluster(new)
        space = self._space(in_project)
        return self._write(space, with_cluster(self._parts.read.content_in(space), new))

    def remove(self, name: str, *, in_project: bool = False) -> Path:
        """Remove a remote, and sign remotes.yaml.

        Args:
            name: Its name.
            in_project: Whether it is removed from the project, and not from user space.

        Returns:
            The file.

        Raises:
            InputError: There is no remote of this name in that file.
            RyeError: The file as it is isn't signed by a trusted key, or there is no key to sign
                with.
        """
        from ryecore.remote.authoring import without_remote  # noqa: PLC0415

        space = self._space(in_project)
        before = self._parts.read.content_in(space)
        after = None if before is None else without_remote(before, name)
        if after is None:
            other = self._parts.read.content_in(self._space(not in_project))
            is_there = other is not None and without_remote(other, name) is not None
            option = "leave out --in-project" if in_project else "pass --in-project"
            raise InputError(
                f"There is no remote {name[:80]!r} in {space.label} space.",
                next_step=f"It is in the other file: {option}."
                if is_there
                else "See what there is: rye remote list",
            )
        return self._write(space, after)

    def _space(self, in_project: bool) -> Space:
        return self._spaces.project if in_project else self._spaces.user

    def _write(self, space: Space, content: bytes) -> Path:
        from ryecore.remote.config import REMOTES_PATH  # noqa: PLC0415

        return write_signed(space, REMOTES_PATH, content, self._keys.load())

    async def plan(self, target: str | None = None) -> "PushPlan":
        """Return what a push would send: every file, and what is left out. Nothing is sent.

        Args:
            target: `remote` or `remote:NAME`, whose `push.include` counts; by default the
                remote that is the default, or none.

        Raises:
            LinkLeavesSpace: A link among the files leaves the project.
            RyeError: The remote is unknown, or the files can't be read.
        """
        return await self._running.run("remotes", partial(self._plan, target))

    async def _plan(self, target: str | None) -> "PushPlan":
        remotes = self._parts.read()
        include: tuple[str, ...] = ()
        if target is not None or remotes.default is not None or len(remotes.remotes) == 1:
            include = remotes.find(target or "remote").settings.push.include
        from ryecore.remote.plan import make_plan  # noqa: PLC0415 - only for remotes

        return await make_plan(self._parts.pushes, include)

    async def push(
        self, target: str = "remote", *, progress: "Progress | None" = None
    ) -> "PushProgress":
        """Send what a node lacks of the project as it is now. Executing does so by itself.

        Args:
            target: `remote` or `remote:NAME`.
            progress: Called with how far the push is, after each request that sent files.

        Returns:
            What was sent: nothing where the node has it all.

        Raises:
            RemoteError: The node can't be reached, or refuses it.
            RyeError: The remote is unknown, or the files can't be read.
        """

        async def push() -> "PushProgress":
            node = await self._parts.nodes.connect(target)
            return await node.push(progress)

        return await self._running.run("remotes", push)

    async def check(self, target: str = "remote") -> RemoteCheck:
        """Check that a node can be reached, has its key, and accepts this user's.

        Args:
            target: `remote` or `remote:NAME`.

        Raises:
            RemoteError: It can't, hasn't, or doesn't.
            RyeError: The remote is unknown.
        """
        return await self._running.run("remotes", partial(self._check, target))

    async def check_cluster(self, target: str = "remote") -> ClusterCheck:
        """Check that a Ray cluster can be reached, and has what a run takes.

        Args:
            target: `remote` or `remote:NAME`.

        Raises:
            RemoteError: It can't, or hasn't.
            RyeError: The remote is unknown, or isn't a cluster.
        """

        async def check() -> ClusterCheck:
            remote = self._parts.read().find(target)
            if remote.kind != "ray":
                raise InputError(
                    f"The remote {remote.name} isn't a Ray cluster.",
                    next_step=f"Check it as a node: rye remote check {remote.name}",
                )
            from ryecore.actions.targets.ray_calls import look_at_cluster  # noqa: PLC0415

            began_s = time.monotonic()
            nodes = await look_at_cluster(remote)
            return ClusterCheck(remote, nodes, (time.monotonic() - began_s) * 1000)

        return await self._running.run("remotes", check)

    async def metrics(self, target: str = "remote") -> str:
        """Return a node's metrics, in the text format of Prometheus.

        The node's operator has to give this user's key the scope `rye.node.metrics`.

        Args:
            target: `remote` or `remote:NAME`.

        Raises:
            RemoteError: The node can't be reached, or refuses it.
            RyeError: The remote is unknown.
        """

        async def read() -> str:
            node = await self._parts.nodes.connect(target)
            return await node.client.metrics()

        return await self._running.run("remotes", read)

    async def _check(self, target: str) -> RemoteCheck:
        node = await self._parts.nodes.connect(target)
        identity, key = await node.client.identity()
        remote = node.client.remote
        if key != node.key:
            raise RemoteUntrusted(
                f"The node at {remote.url} has the key {key.fingerprint}, and not "
                f"{node.key.fingerprint} as in remotes.yaml.",
                next_step="Ask its operator. If the key was changed, remove the remote and add "
                f"it again: rye remote remove {remote.name}",
                remote=remote.name,
            )
        began_s = time.monotonic()
        status = await node.client.status()
        return RemoteCheck(remote, identity, status, (time.monotonic() - began_s) * 1000)
