"""Configuration files, layered: system bundles, then user, then project, then the host.

Source: docs/design/chain.md#configuration; decision 11.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from attrs import evolve, field

from ryecore.chain.spec import ConfigSpec, ElementSpec
from ryecore.chain.trace import Remembered, Trace
from ryecore.errors import ConfigError, UnsignedItem
from ryecore.frozen import frozen
from ryecore.items.documents import parse_document
from ryecore.items.files import leads_out
from ryecore.items.refs import ItemRef
from ryecore.items.spaces import ItemSource, Space, Spaces
from ryecore.items.verification import Verifier
from ryecore.lillux.digests import read_digest
from ryecore.lillux.witness import Evidence

if TYPE_CHECKING:
    from ryecore.convert.config import ConfigFile, Configuration

__all__ = [
    "ConfigLayer",
    "ConfigReader",
    "ConfigResolver",
    "HostConfig",
    "deep_merge",
    "must_be_signed",
]

T = TypeVar("T")

HostConfig = Mapping[str, Mapping[str, Any]]
"""What the embedding application sets, by the config file's path: the last layer."""

_MAX_CONFIG_BYTES: Final = 1024 * 1024
_POWERFUL: Final = frozenset({
    "agent", "capability_risk", "error_classification", "execution", "hooks", "mcp", "providers",
    "remotes", "resilience",
})  # fmt: skip


def must_be_signed(path: str) -> bool:
    """Return whether a file below `.ai/config/` must be signed: it can execute, grant or spend.

    Source: decision 11.
    """
    return path.partition("/")[0].partition(".")[0] in _POWERFUL


def deep_merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return two layers merged: mappings recurse; lists, null and everything else replace."""
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        if isinstance(value, Mapping) and isinstance(under, Mapping):
            merged[key] = deep_merge(under, value)
        else:
            merged[key] = value
    return merged


@frozen
class ConfigLayer:
    """One layer of a configuration, and whether its signature holds; the host's has no file."""

    name: str
    path: Path | None
    signed: bool
    values: Mapping[str, Any]
    content: bytes | None = field(default=None, repr=False)

    def configuration(self) -> "Configuration":
        """Return the configuration of only this layer."""
        from ryecore.convert.config import Configuration  # noqa: PLC0415 - no tool needs it

        return Configuration(self.values, (self.file(),))

    def file(self) -> "ConfigFile":
        """Return the layer as a file whose problems can be located."""
        from ryecore.convert.config import ConfigFile  # noqa: PLC0415 - no tool needs it

        if self.path is None:
            return ConfigFile("The host's configuration", self.values)
        is_yaml = self.path.suffix in (".yaml", ".yml")
        return ConfigFile(str(self.path), self.values, self.content if is_yaml else None)


class ConfigResolver:
    """Reads layered configuration."""

    def __init__(self, spaces: Spaces, verifier: Verifier, host: HostConfig) -> None:
        self._spaces = spaces
        self._verifier = verifier
        self._host = host

    def for_chain(self, specs: Sequence[ElementSpec], trace: Trace, evidence: Evidence) -> object:
        """Return what the `config_resolve` of a chain's elements, the tool first, asks for.

        Where two ask for one file, the one nearer to the tool says how it is read, and either may
        demand signatures. Several files are a mapping by path; none are None. Dates are text.
        """
        asked: dict[str, ConfigSpec] = {}
        for one in (one for spec in specs for one in spec.config_resolve):
            nearer = asked.get(one.path, one)
            asked[one.path] = evolve(nearer, signed=nearer.signed or one.signed)
        found = {
            path: _as_json(self.resolve(one, trace, evidence), path) for path, one in asked.items()
        }
        if len(found) == 1 and not any(spec.resolves_many for spec in specs):
            return next(iter(found.values()))
        return found or None

    def resolve(self, spec: ConfigSpec, trace: Trace, evidence: Evidence) -> dict[str, Any]:
        """Read one configuration file from all layers; it is empty where there is none."""
        return _merged(self.layers(spec, trace, evidence))

    def configuration(self, spec: ConfigSpec, trace: Trace, evidence: Evidence) -> "Configuration":
        """Read one configuration file from all layers, for a reader that locates its problems."""
        from ryecore.convert.config import (  # noqa: PLC0415 - no tool needs it
            ConfigFile,
            Configuration,
        )

        layers = self.layers(spec, trace, evidence)
        files = tuple(layer.file() for layer in layers)
        return Configuration(_merged(layers), files or (ConfigFile(spec.path, {}),))

    def layers(self, spec: ConfigSpec, trace: Trace, evidence: Evidence) -> tuple[ConfigLayer, ...]:
        """Read a file's layers, farthest first; with `first_match`, only the nearest."""
        with trace.failing("resolve_config", path=spec.path):
            layers = tuple(self._layers(spec, evidence))
        if layers:
            trace.add(
                "resolve_config",
                path=spec.path,
                mode=spec.mode,
                layers=[
                    {
                        "space": layer.name,
                        "path": str(layer.path) if layer.path else None,
                        "signed": layer.signed,
                    }
                    for layer in layers
                ],
            )
        return layers

    def _layers(self, spec: ConfigSpec, evidence: Evidence) -> Iterator[ConfigLayer]:
        if spec.mode == "first_match":
            yield from self._first_layer(spec, evidence)
            return
        for space in (*reversed(self._spaces.system), self._spaces.user, self._spaces.project):
            layer = self._layer(space, spec, evidence)
            if layer is not None:
                yield layer
        if spec.path in self._host:
            yield ConfigLayer("host", None, True, self._host[spec.path])

    def _first_layer(self, spec: ConfigSpec, evidence: Evidence) -> Iterator[ConfigLayer]:
        """Read only the nearest layer, so that a broken file farther away can't fail the call."""
        if spec.path in self._host:
            yield ConfigLayer("host", None, True, self._host[spec.path])
            return
        for space in (self._spaces.project, self._spaces.user, *self._spaces.system):
            layer = self._layer(space, spec, evidence)
            if layer is not None:
                yield layer
                return

    def _layer(self, space: Space, spec: ConfigSpec, evidence: Evidence) -> ConfigLayer | None:
        folder = space.folder("config")
        path = folder / spec.path
        if not path.exists():
            if not space.is_built_in:
                evidence.absent(str(path))
            return None
        if leads_out(path, folder):
            raise ConfigError(
                f"{path} is a link that leaves its folder.",
                next_step=f"Put the file itself below {folder}.",
            )
        relative = spec.path
        ref = ItemRef("config", relative.rpartition(".")[0])
        try:
            item = self._verifier.verify(ItemSource(ref, path, space, relative), evidence)
        except UnsignedItem:
            if spec.signed or must_be_signed(spec.path) or space.name == "system":
                raise
            content, digest = read_digest(str(path), max_bytes=_MAX_CONFIG_BYTES)
            evidence.file(str(path), digest)
            return ConfigLayer(space.label, path, False, parse_document(content, path), content)
        values = parse_document(item.content, path)
        return ConfigLayer(space.label, path, item.is_verified, values, item.content)


class ConfigReader(Generic[T]):
    """Reads one configuration of all layers, verified, and again only when a file has changed.

    Args:
        configs: Finds the files.
        spec: Which they are.
        read: Reads their content as what it stands for; a `ConfigError` names what is wrong.
    """

    def __init__(
        self, configs: ConfigResolver, spec: ConfigSpec, read: "Callable[[Configuration], T]"
    ) -> None:
        self._configs = configs
        self._spec = spec
        self._read = read
        self._remembered = Remembered()

    def __call__(self) -> T:
        """Return what the configuration stands for.

        Raises:
            ConfigError: A file has problems; each is named with its line.
            RyeError: A file isn't signed by a trusted key.
        """

        def read(trace: Trace, evidence: Evidence) -> T:
            return self._read(self._configs.configuration(self._spec, trace, evidence))

        return self._remembered.recall(self._spec, Trace(None), read)


def _merged(layers: Sequence[ConfigLayer]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for layer in layers:
        merged = deep_merge(merged, layer.values)
    return merged


def _as_json(values: Mapping[str, Any], path: str) -> object:
    """Return configuration as a tool receives it, whichever format it was written in."""
    try:
        plain: object = json.loads(json.dumps(values, default=_date_as_text, allow_nan=False))
    except (TypeError, ValueError) as problem:
        raise ConfigError(
            f"The configuration {path} can't be passed to a tool as JSON: {problem}.",
            next_step="Write that value as text.",
        ) from None
    return plain


def _date_as_text(value: object) -> str:
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is not JSON")
