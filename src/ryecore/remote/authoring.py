"""The text of remotes.yaml with a remote added or removed; comments and order stay.

Source: decision 64.
"""

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

from ryecore.errors import InputError
from ryecore.frozen import frozen
from ryecore.lillux.keys import PublicKey
from ryecore.remote.config import is_loopback, is_remote_name, read_url
from ryecore.remote.queue_address import QueueAddress
from ryecore.remote.ray_rules import read_ray_address, read_resources
from ryecore.remote.rules import why_no_pattern

__all__ = [
    "NewCluster", "NewQueue", "NewRemote", "check_cluster", "check_new", "check_queue",
    "with_cluster", "with_queue", "with_remote", "without_remote",
]  # fmt: skip


@frozen
class NewRemote:
    """A remote to add.

    Attributes:
        name: Its name.
        url: Where the node answers.
        key: The node's public key.
        include: Patterns of more files that travel.
        plain_http: Whether http:// may be used beyond this machine.
        is_default: Whether it becomes the remote of the target `remote`.
    """

    name: str
    url: str
    key: PublicKey
    include: Sequence[str] = ()
    plain_http: bool = False
    is_default: bool = False


@frozen
class NewQueue:
    """A queue to add as a remote.

    Attributes:
        name: Its name.
        address: The address of its state and queue.
        priority: The place of its runs in the queue, from 1: a lower number runs earlier.
        travels: Whether the project travels to its workers.
        include: Patterns of more files that travel.
        is_default: Whether it becomes the remote of the target `remote`.
    """

    name: str
    address: str
    priority: int | None = None
    travels: bool = False
    include: Sequence[str] = ()
    is_default: bool = False


@frozen
class NewCluster:
    """A Ray cluster to add as a remote.

    Attributes:
        name: Its name.
        address: `auto`, or that of its client server.
        resources: What each run takes, by the names that `ray status` shows.
        travels: Whether the project travels to its workers.
        include: Patterns of more files that travel.
        is_default: Whether it becomes the remote of the target `remote`.
    """

    name: str
    address: str
    resources: Mapping[str, float] = {}
    travels: bool = False
    include: Sequence[str] = ()
    is_default: bool = False


def check_cluster(new: NewCluster) -> None:
    """Check what a person writes of a new remote that is a Ray cluster.

    Raises:
        InputError: It can't be one.
    """
    _check_name(new.name)
    _check_travelling(new)
    for what, read, value in (
        ("address", read_ray_address, new.address),
        ("resources", read_resources, new.resources),
    ):
        try:
            read(value)
        except ValueError as problem:
            raise InputError(
                f"The {what} of the cluster: {problem}.",
                next_step="Write such as: rye remote add-cluster gpu auto --resource GPU=1",
            ) from None


def check_queue(new: NewQueue) -> None:
    """Check what a person writes of a new remote that is a queue.

    Raises:
        InputError: It can't be one. The message doesn't repeat the address.
    """
    _check_name(new.name)
    _check_travelling(new)
    try:
        QueueAddress.parse(new.address)
    except ValueError as problem:
        raise InputError(
            f"The address of the queue {problem}.",
            next_step="Write postgresql://USER@HOST/DATABASE?schema=SCHEMA&queue=QUEUE",
        ) from None


def _check_name(name: str) -> None:
    if not is_remote_name(name):
        raise InputError(
            f"{name[:80]!r} can't be the name of a remote.",
            next_step="Write letters, digits, _ and -, such as gpu.",
        )


def _check_travelling(new: NewQueue | NewCluster) -> None:
    if new.include and not new.travels:
        raise InputError(
            f"--include names files that travel, and the project doesn't travel to {new.name}.",
            next_step="Pass --travels too, or leave --include out.",
        )
    _check_include(new.include)


def _check_include(include: Sequence[str]) -> None:
    for pattern in include:
        why = why_no_pattern(pattern)
        if why is not None:
            raise InputError(f"--include {pattern[:80]!r} {why}.", next_step="Correct it.")


def check_new(name: str, url: str, *, include: Sequence[str] = (), plain_http: bool = False) -> str:
    """Check what a person writes of a new remote, before anything is sent.

    Returns:
        The URL, without a slash at its end.

    Raises:
        InputError: It can't be a remote.
    """
    _check_name(name)
    try:
        url = read_url(url)
    except ValueError as problem:
        raise InputError(
            f"The URL {problem}, not {url[:200]!r}.",
            next_step="Write it as the node's operator names it.",
        ) from None
    if url.startswith("http:") and not plain_http and not is_loopback(url):
        raise InputError(
            f"{url} is plain HTTP: anyone on the way could read what travels.",
            next_step="Use https://, or pass --plain-http for a private network.",
        )
    _check_include(include)
    return url


def with_remote(content: bytes | None, new: NewRemote) -> bytes:
    """Return a remotes.yaml with one more remote.

    Args:
        content: The file as it is, verified; None where there is none.
        new: The remote.

    Raises:
        InputError: There is a remote of this name.
    """
    from ruamel.yaml.scalarstring import LiteralScalarString  # noqa: PLC0415

    entry: dict[str, Any] = {
        "url": new.url,
        "node_key": LiteralScalarString(new.key.pem.decode()),
    }
    if new.plain_http:
        entry["plain_http"] = True
    return _with_entry(content, new, entry)


def with_queue(content: bytes | None, new: NewQueue) -> bytes:
    """Return a remotes.yaml with one more remote that is a queue; see `with_remote`."""
    entry: dict[str, Any] = {"queue": new.address}
    if new.priority is not None:
        entry["priority"] = new.priority
    if new.travels:
        entry["travels"] = True
    return _with_entry(content, new, entry)


def with_cluster(content: bytes | None, new: NewCluster) -> bytes:
    """Return a remotes.yaml with one more remote that is a Ray cluster; see `with_remote`."""
    entry: dict[str, Any] = {"ray": new.address}
    if new.resources:
        entry["resources"] = dict(new.resources)
    if new.travels:
        entry["travels"] = True
    return _with_entry(content, new, entry)


def _with_entry(
    content: bytes | None, new: NewRemote | NewQueue | NewCluster, entry: dict[str, Any]
) -> bytes:
    name = new.name
    if new.include:
        entry["push"] = {"include": list(new.include)}
    yaml = _round_trip()
    document: Any = (yaml.load(content) if content else None) or {}
    remotes = document.setdefault("remotes", {})
    if name in remotes:
        raise InputError(
            f"There is a remote {name!r} already.",
            next_step=f"Remove it first (rye remote remove {name}), or choose another name.",
        )
    remotes[name] = _quoted(entry) if _is_flow(document) or _is_flow(remotes) else entry
    if new.is_default:
        document["default"] = name
    return _dumped(yaml, document)


def _is_flow(mapping: Any) -> bool:
    """Return whether a mapping is written within braces, as JSON is."""
    style = getattr(mapping, "fa", None)
    return style is not None and bool(style.flow_style())


def _quoted(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry with its texts in quotes: within braces, a colon in a plain one ends it."""
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString  # noqa: PLC0415

    return {
        name: DoubleQuotedScalarString(value) if isinstance(value, str) else value
        for name, value in entry.items()
    }


def without_remote(content: bytes, name: str) -> bytes | None:
    """Return a remotes.yaml without a remote; None where it has no remote of this name."""
    yaml = _round_trip()
    document: Any = yaml.load(content) or {}
    remotes = document.get("remotes") or {}
    if name not in remotes:
        return None
    del remotes[name]
    if document.get("default") == name:
        del document["default"]
    return _dumped(yaml, document)


def _round_trip() -> Any:
    from ruamel.yaml import YAML  # noqa: PLC0415 - where a remote is added or removed

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    return yaml


def _dumped(yaml: Any, document: Any) -> bytes:
    out = BytesIO()
    yaml.dump(document, out)
    return out.getvalue()
