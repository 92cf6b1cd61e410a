"""A node's folder: its keys, and the settings of its operator.

Source: docs/design/remote.md#on-the-node; decision 64.
"""

import os
import shlex
import stat
from base64 import b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

from attrs import field

from ryecore import __version__
from ryecore.convert.config import ConfigFile, Configuration, between
from ryecore.errors import ConfigError, MetadataError, SigningError
from ryecore.frozen import frozen
from ryecore.items.documents import parse_document
from ryecore.items.files import write_atomically
from ryecore.items.paths import folder_to_be, user_space_in
from ryecore.lillux.keys import BoxKey, SigningKey
from ryecore.remote.protocol.models import PROTOCOL, Identity

__all__ = [
    "FOLDER_VARIABLE",
    "NodeIdentity",
    "NodeSettings",
    "TlsFiles",
    "find_node_folder",
    "load_node",
    "make_node",
]

T = TypeVar("T")

FOLDER_VARIABLE: Final = "RYE_NODE_DIR"
_KEY, _BOX_KEY, _SETTINGS = "key.pem", "box_key.pem", "node.yaml"
_FOLDERS: Final = ("callers", "data")
_PUT_BACK: Final = "Put it back from a copy; callers know the node by its key."
_CORRECT: Final = "Correct the file."
_GIB: Final = 1024**3

_TEMPLATE: Final = """\
# The settings of this node; rye node serve reads them when it starts.
host: 127.0.0.1
port: 8765

# Behind a proxy that ends TLS, or only on loopback, there are no such files.
# tls: {certificate: /etc/ssl/node.pem, key: /etc/ssl/node.key}

# caller: a caller's own key counts in its own spaces, because you allowed it to run code here.
# operator: only items that keys of your user space signed are run.
trust: caller

# Limits of the node as a whole; those of each caller are set by: rye node allow
max_runs: 64
max_object_bytes: 4294967296
min_free_bytes: 268435456
max_connections: 1000

# A signal lets running tools end for so long; a second one ends them at once.
shutdown_s: 10

# Objects, spaces and ended runs that were not used for so long are removed.
unused_days: 30
"""


@frozen
class TlsFiles:
    """The files that TLS needs: the certificate with its chain, and its key, both in PEM."""

    certificate: Path
    key: Path


@frozen
class NodeSettings:
    """What `node.yaml` sets.

    Attributes:
        host: The address that the node listens at.
        port: The port; 0 for any free one.
        tls: The files of TLS; None for plain HTTP.
        trust: Whose keys count in a caller's space, unless the caller's own file says so.
        max_runs: The most runs at once, of all callers.
        max_object_bytes: The largest object.
        min_free_bytes: How much of the disk stays free.
        unused_days: After how many days unused objects, spaces and runs are removed.
        max_connections: The most connections at once.
        shutdown_s: How long running tools may take to end when the node is asked to, in seconds.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, between(0, 65535)] = 8765
    tls: TlsFiles | None = None
    trust: Literal["caller", "operator"] = "caller"
    max_runs: Annotated[int, between(1, 100_000)] = 64
    max_object_bytes: Annotated[int, between(1, 2**50)] = 4 * _GIB
    min_free_bytes: Annotated[int, between(0, 2**50)] = _GIB // 4
    unused_days: Annotated[float, between(0.001, 36_500)] = 30.0
    max_connections: Annotated[int, between(1, 100_000)] = 1000
    shutdown_s: Annotated[float, between(0, 3600)] = 10.0


@frozen
class NodeIdentity:
    """A node: its folder, keys and settings. Its `repr` shows no private key."""

    folder: Path
    key: SigningKey
    box_key: BoxKey
    settings: NodeSettings = field(factory=NodeSettings)

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the node's key."""
        return self.key.public.fingerprint

    def to_document(self) -> Identity:
        """Return what callers may know of it."""
        return Identity(
            node_key=self.key.public.pem.decode(),
            box_key=b64encode(self.box_key.public).decode(),
            protocol=PROTOCOL,
            ryecore=__version__,
        )


def find_node_folder(named: str | None, environ: Mapping[str, str]) -> Path:
    """Return the node's folder: named, that of `RYE_NODE_DIR`, or `node` in the user space."""
    chosen = named or environ.get(FOLDER_VARIABLE)
    if chosen:
        return folder_to_be(chosen, "node's folder")
    return user_space_in(environ) / ".ai" / "node"


def make_node(folder: Path) -> NodeIdentity:
    """Make the folder of a node, with fresh keys. An existing node isn't overwritten.

    Raises:
        ConfigError: There is one already, or the folder can't be written.
    """
    key, box_key = SigningKey.generate(), BoxKey.generate()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
        for name in _FOLDERS:
            (folder / name).mkdir(exist_ok=True, mode=0o700)
        if not (folder / _KEY).exists():  # a half-made node has no key yet
            write_atomically(folder / _BOX_KEY, box_key.pem, mode=0o600)
            if not (folder / _SETTINGS).exists():
                write_atomically(folder / _SETTINGS, _TEMPLATE.encode(), mode=0o600)
        write_atomically(folder / _KEY, key.pem, mode=0o600, replace=False)
    except FileExistsError:
        raise ConfigError(
            f"There is a node already in {folder}.",
            next_step="Show it with: rye node show. Or name another folder with --folder.",
        ) from None
    except OSError as problem:
        raise ConfigError(
            f"The node's folder {folder} can't be made: {problem.strerror}.",
            next_step=f"Name another folder with --folder, or set {FOLDER_VARIABLE}.",
        ) from None
    return load_node(folder)


def load_node(folder: Path) -> NodeIdentity:
    """Load a node's keys and settings.

    Raises:
        ConfigError: There is no node, it is another user's, a file of it can't be read, or a
            setting is wrong.
        MetadataError: `node.yaml` isn't YAML.
        SigningError: Others can read its keys, or they aren't keys.
    """
    try:
        (folder / _KEY).lstat()
    except PermissionError:
        raise _not_yours(folder) from None
    except OSError:
        raise ConfigError(
            f"There is no node in {folder}.",
            next_step="Make one: rye node init. Or name its folder with --folder.",
        ) from None
    key = _read_key(folder / _KEY, SigningKey.from_pem)
    box_key = _read_key(folder / _BOX_KEY, BoxKey.from_pem)
    for below in (folder / name for name in _FOLDERS):
        if below.exists() and not (
            below.is_dir() and os.access(below, os.R_OK | os.W_OK | os.X_OK)
        ):
            raise _not_yours(below)
    return NodeIdentity(folder, key, box_key, _read_settings(folder / _SETTINGS))


def _not_yours(folder: Path) -> ConfigError:
    return ConfigError(
        f"{folder} isn't a folder that you may use.",
        next_step="Run this as the user who owns the node's folder.",
    )


def _read_key(path: Path, read: Callable[[bytes], T]) -> T:
    try:
        return read(_read_private(path))
    except SigningError as problem:
        if problem.next_step.startswith("Close it"):
            raise
        raise SigningError(f"{path} is damaged: {problem.message}", next_step=_PUT_BACK) from None


def _read_private(path: Path) -> bytes:
    try:
        with open(path, "rb", opener=_open_plain) as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise OSError(0, "it isn't a plain file")
            content = file.read(64 * 1024)
    except OSError as problem:
        raise ConfigError(
            f"The node's key {path} can't be read: {problem.strerror}.",
            next_step=_PUT_BACK,
        ) from None
    if mode & 0o077:
        raise SigningError(
            f"Others can read the node's key {path}.",
            next_step=f"Close it: chmod 600 {shlex.quote(str(path))}",
        )
    return content


def _open_plain(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _read_settings(path: Path) -> NodeSettings:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return NodeSettings()
    except OSError as problem:
        raise ConfigError(
            f"The node's settings {path} can't be read: {problem.strerror}.",
            next_step="See that it is a file that you may read.",
        ) from None
    try:
        values = parse_document(content, path)
    except MetadataError as broken:
        broken.next_step = _CORRECT  # nobody signs it
        raise
    file = ConfigFile(str(path), values, content)
    return Configuration(values, (file,), next_step=_CORRECT).read(NodeSettings)
