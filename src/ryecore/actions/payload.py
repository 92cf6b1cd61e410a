"""The payload of a detached process, which reads it on its standard input: a run and its caller.

A payload holds only data. Callables and keys are rebuilt by the host's `deps_factory`; cancellation
and event sinks have no meaning in another process. No payload is written to a disk.
"""

import json
from pathlib import Path
from typing import Any, Final, Self

from attrs import asdict, field

from ryecore.actions.settings import Settings
from ryecore.errors import InputError
from ryecore.frozen import frozen
from ryecore.items.spaces import Space
from ryecore.policy import CallContext
from ryecore.runs.portable import (
    portable,
    read_context,
    read_request,
    write_context,
    write_json,
    write_request,
)
from ryecore.runs.request import RunRequest

__all__ = ["Payload", "read_settings", "write_settings"]

_VERSION: Final = 9


@frozen
class Payload:
    """A run for another process.

    Attributes:
        settings: The settings with which to open the Rye.
        run_id: The run, which is registered already.
        request: The request.
        ctx: The caller's context. Its deadline is monotonic, on a clock that all processes of a
            machine share; its cancellation and its event sink are left out.
        token: Proves to the registry that the process was started for the run; None for a tool.
    """

    settings: Settings
    run_id: str
    request: RunRequest
    ctx: CallContext = field(converter=portable)
    token: str | None = field(default=None, repr=False)

    @property
    def item_id(self) -> str:
        """The item, as a canonical ref."""
        return str(self.request.ref)

    @property
    def is_graph(self) -> bool:
        """Whether the run is that of a graph."""
        return self.request.graph.digest is not None

    def to_bytes(self) -> bytes:
        """Return the payload as one JSON document."""
        document = {
            "version": _VERSION,
            "settings": write_settings(self.settings),
            "run_id": self.run_id,
            "token": self.token,
            "request": write_request(self.request),
            "ctx": write_context(self.ctx),
        }
        return write_json(document).encode()

    @classmethod
    def from_bytes(cls, document: bytes) -> Self:
        """Read a payload that the same version of ryecore wrote."""
        values = json.loads(document)
        version = values.get("version")
        if version != _VERSION:
            raise InputError(
                f"This is a payload of version {version}, not {_VERSION}.",
                next_step="Start it again: another ryecore was installed meanwhile.",
            )
        return cls(
            read_settings(values["settings"]),
            values["run_id"],
            read_request(values["request"]),
            read_context(values["ctx"]),
            values["token"],
        )


def write_settings(settings: Settings) -> dict[str, Any]:
    """Return settings as JSON types."""
    return asdict(settings, value_serializer=_plain)


def read_settings(values: dict[str, Any]) -> Settings:
    """Return the settings that `write_settings` wrote."""
    spaces = tuple(
        Space(one["name"], Path(one["root"]), one["bundle"]) for one in values.pop("system_spaces")
    )
    keys, allowed = tuple(values.pop("trusted_keys")), tuple(values.pop("allow_env"))
    return Settings(system_spaces=spaces, trusted_keys=keys, allow_env=allowed, **values)


def _plain(_instance: object, _attribute: object, value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    return sorted(value) if isinstance(value, set | frozenset) else value
