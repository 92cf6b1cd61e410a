"""remotes.yaml: what a project knows of other machines: nodes, queues and Ray clusters.

Source: docs/design/remote.md#at-home; docs/design/queues.md; docs/design/ray.md; decision 64.
"""

import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Annotated, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from ryecore.chain.config import ConfigReader, ConfigResolver
from ryecore.chain.spec import ConfigSpec
from ryecore.chain.trace import Trace
from ryecore.convert.config import Check, Configuration, Reader, between, did_you_mean, known_names
from ryecore.convert.lines import Place
from ryecore.errors import InputError, RyeError
from ryecore.frozen import frozen
from ryecore.items.spaces import Space
from ryecore.lillux.keys import PublicKey
from ryecore.lillux.witness import Evidence
from ryecore.remote.queue_address import QueueAddress
from ryecore.remote.ray_rules import AUTO, Resources, read_ray_address, read_resources
from ryecore.remote.rules import why_no_pattern

__all__ = [
    "MAX_PRIORITY",
    "REMOTES_PATH",
    "PushRules",
    "Remote",
    "RemoteEntry",
    "RemoteKind",
    "RemotesConfig",
    "RemotesReader",
    "is_loopback",
    "is_remote_name",
    "read_url",
]

REMOTES_PATH: Final = "remotes/remotes.yaml"
_SPEC: Final = ConfigSpec(REMOTES_PATH, signed=True)
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}", re.ASCII)
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_MAX_URL_CHARS: Final = 2048
MAX_PRIORITY: Final = 2**31 - 1

RemoteKind: TypeAlias = Literal["node", "queue", "ray"]
_A_KIND: Final[Mapping[RemoteKind, str]] = {
    "node": "a node", "queue": "a queue", "ray": "a Ray cluster",
}  # fmt: skip
_MANY: Final[Mapping[RemoteKind, str]] = {
    "node": "nodes", "queue": "queues", "ray": "Ray clusters",
}  # fmt: skip


def is_remote_name(text: str) -> bool:
    """Return whether a text can be the name of a remote."""
    return _NAME.fullmatch(text) is not None


def read_url(value: object) -> str:
    """Read the URL of a node.

    Returns:
        The URL, without a slash at its end.

    Raises:
        ValueError: It isn't one, as the end of a sentence about it.
    """
    if not isinstance(value, str) or len(value) > _MAX_URL_CHARS or not value.isprintable():
        raise ValueError("must be a URL, such as https://gpu.example:8443")
    try:
        parts = urlsplit(value)
        parts.port  # noqa: B018 - an invalid one raises
    except ValueError:
        raise ValueError("must be a URL, such as https://gpu.example:8443") from None
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise ValueError("must begin with https:// and have a host")
    if parts.username is not None or parts.query or parts.fragment or " " in value:
        raise ValueError("must have no user name, query or fragment")
    return value.rstrip("/")


def is_loopback(url: str) -> bool:
    """Return whether a URL leads to this machine."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _read_key(value: object) -> PublicKey:
    try:
        if isinstance(value, str):
            return PublicKey.from_pem(value)
    except RyeError:
        pass
    raise ValueError("must be the node's public key in PEM; rye remote add writes it")


def _read_pattern(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a pattern, such as src/**")
    why = why_no_pattern(value)
    if why is not None:
        raise ValueError(why)
    return value


def _read_queue(value: object) -> QueueAddress:
    return QueueAddress.parse(value)


_VariableName = Annotated[str, Check("the name of a variable", _VARIABLE.fullmatch)]


@frozen
class PushRules:
    """What is pushed besides items and configuration: patterns below the project's folder."""

    include: tuple[Annotated[str, Reader(_read_pattern)], ...] = ()


@frozen
class RemoteEntry:
    """A remote as remotes.yaml has it.

    Attributes:
        url: Where the node answers; "" for a queue or a cluster.
        node_key: The node's public key; None for a queue or a cluster.
        queue: The queue whose workers run what is sent there.
        priority: The place of its runs in the queue: a lower number runs earlier.
        travels: Whether the project travels to the workers of the queue or cluster with its runs.
        ray: The address of the Ray cluster whose workers run what is sent there.
        resources: What each run takes of the cluster, by the names that `ray status` shows.
        patience_s: How long a run that waits may lack them, once a node is gone, in seconds.
        timeout_s: How long one request may take, in seconds.
        plain_http: Whether http:// may be used beyond this machine, as in a private network.
        push: What is pushed besides items and configuration.
        secrets: The secrets that may travel, where a signed element asks for them.
    """

    url: Annotated[str, Reader(read_url)] = ""
    node_key: Annotated[PublicKey, Reader(_read_key)] | None = None
    queue: Annotated[QueueAddress, Reader(_read_queue)] | None = None
    priority: Annotated[int, between(1, MAX_PRIORITY)] = 1
    travels: bool = False
    ray: Annotated[str, Reader(read_ray_address)] | None = None
    resources: Annotated[Resources, Reader(read_resources)] = ()
    patience_s: Annotated[float, between(0, 86_400)] = 60.0
    timeout_s: Annotated[float, between(1, 3600)] = 30.0
    plain_http: bool = False
    push: PushRules = PushRules()
    secrets: tuple[_VariableName, ...] = ()

    @property
    def kind(self) -> RemoteKind:
        """What it is: whoever sends anything there asks this."""
        if self.ray is not None:
            return "ray"
        return "node" if self.queue is None else "queue"


_DEFAULTS: Final = RemoteEntry()
_KINDS: Final[Mapping[str, tuple[RemoteKind, ...]]] = {
    "timeout_s": ("node",),
    "plain_http": ("node",),
    "secrets": ("node",),
    "priority": ("queue",),
    "resources": ("ray",),
    "patience_s": ("ray",),
    "travels": ("queue", "ray"),
}
"""The keys that count only for some kinds of remotes; elsewhere one would do nothing."""


@frozen
class Remote:
    """A node, a queue or a Ray cluster, as a project knows it, by its name."""

    name: str
    settings: RemoteEntry

    @property
    def kind(self) -> RemoteKind:
        """What it is: a node, a queue, or a Ray cluster."""
        return self.settings.kind

    @property
    def url(self) -> str:
        """Where the node answers."""
        return self.settings.url

    @property
    def place(self) -> str:
        """Where it is, for people: the URL of a node, the address of a queue or a cluster."""
        queue, cluster = self.settings.queue, self.settings.ray
        if cluster is not None:
            return "the Ray cluster of this machine" if cluster == AUTO else cluster
        return self.url if queue is None else str(queue)

    @property
    def key(self) -> PublicKey:
        """The node's public key.

        Raises:
            InputError: It is a queue or a cluster, which has none.
        """
        if self.settings.node_key is None:
            raise InputError(
                f"The remote {self.name} is a queue, which runs directives' threads alone."
                if self.kind == "queue"
                else f"The remote {self.name} is a Ray cluster, and this is for nodes alone.",
                next_step="Execute a directive with --thread fork, or name a node.",
            )
        return self.settings.node_key


@frozen
class RemotesConfig:
    """The remotes of a project, as remotes.yaml has them."""

    default: str | None = None
    remotes: Mapping[str, RemoteEntry] = {}

    def __iter__(self) -> Iterator[Remote]:
        return (Remote(name, entry) for name, entry in sorted(self.remotes.items()))

    def find(self, target: str) -> Remote:
        """Return the remote of a target, `remote` or `remote:NAME`.

        Raises:
            InputError: There is none of this name, or no default.
        """
        name = target.partition(":")[2] or self.default
        if name is None and len(self.remotes) == 1:
            (name,) = self.remotes
        if name is None:
            raise InputError(
                "There is no default remote." if self.remotes else "There are no remotes.",
                next_step=f"Name one: remote:NAME.{known_names(sorted(self.remotes))}"
                if self.remotes
                else "Add one: rye remote add NAME URL; or a queue or a Ray cluster: rye remote "
                "add-queue, rye remote add-cluster",
            )
        if name not in self.remotes:
            guess = did_you_mean(name, self.remotes) or known_names(sorted(self.remotes))
            raise InputError(
                f"There is no remote {name!r}.{guess}",
                next_step=f"Add it: rye remote add {name} URL",
            )
        return Remote(name, self.remotes[name])


class RemotesReader(ConfigReader[RemotesConfig]):
    """Reads remotes.yaml; see `ConfigReader`."""

    def __init__(self, configs: ConfigResolver) -> None:
        super().__init__(configs, _SPEC, read_remotes)

    def content_in(self, space: Space) -> bytes | None:
        """Return the remotes.yaml of a space, verified; None where there is none.

        Raises:
            RyeError: It isn't signed by a trusted key, or can't be read.
        """
        layers = self._configs.layers(_SPEC, Trace(None), Evidence())
        return next((one.content for one in layers if one.name == space.label), None)


def read_remotes(configuration: Configuration) -> RemotesConfig:
    """Read a configuration as remotes.

    Raises:
        ConfigError: It has problems; each is named with its file and line.
    """
    found = configuration.read(RemotesConfig)
    problems = [*_problems(found)]
    if problems:
        raise configuration.error(problems)
    return found


def _problems(found: RemotesConfig) -> Iterator[tuple[Place, str]]:
    if found.default is not None and found.default not in found.remotes:
        guess = did_you_mean(found.default, found.remotes)
        yield ("default",), f"is {found.default!r}, which is not one of the remotes.{guess}"
    for name, entry in found.remotes.items():
        place = ("remotes", name)
        if not is_remote_name(name):
            yield place, "must be named with letters, digits, _ and -"
        is_node = bool(entry.url) and entry.node_key is not None
        if entry.kind == "node" and not is_node:
            yield place, "must have a url and a node_key, as a node, or else a queue, or ray"
        elif entry.queue is not None and entry.ray is not None:
            yield place, "is a queue and a Ray cluster: it must be one of them"
        elif (entry.url or entry.node_key is not None) and entry.kind != "node":
            yield place, f"is {_A_KIND[entry.kind]}, which has no url and no node_key"
        for key, kinds in _KINDS.items():
            if entry.kind not in kinds and getattr(entry, key) != getattr(_DEFAULTS, key):
                yield (*place, key), f"is for {' and '.join(_MANY[one] for one in kinds)} alone"
        is_plain = entry.url.startswith("http:")
        if is_plain and not entry.plain_http and not is_loopback(entry.url):
            yield (
                (*place, "url"),
                "must begin with https://, or else the remote needs plain_http: true, "
                "because anyone on the way could read what travels",
            )
