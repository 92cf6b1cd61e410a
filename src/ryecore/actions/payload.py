"""The payload of a detached process, which reads it on its standard input: a run and its caller.

A payload holds only data. Callables and keys are rebuilt by the host's `deps_factory`; cancellation
and event sinks have no meaning in another process. No payload is written to a disk.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from attrs import asdict, evolve, field

from ryecore.actions.settings import Settings
from ryecore.errors import InputError
from ryecore.frozen import frozen
from ryecore.items.refs import ItemRef
from ryecore.items.spaces import Space
from ryecore.policy import CallContext
from ryecore.policy.limits import read_limits
from ryecore.runs.request import GraphOptions, RunRequest, ThreadOptions

__all__ = ["Payload"]

_VERSION: Final = 8
_CONTEXT: Final = ("budget_account", "depth", "deadline", "call_id", "parent", "caller")


def _portable(ctx: CallContext) -> CallContext:
    return evolve(ctx, cancellation=None, event_sink=None, budget=None, execution=None)


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
    ctx: CallContext = field(converter=_portable)
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
        request, ctx = self.request, self.ctx
        document = {
            "version": _VERSION,
            "settings": asdict(self.settings, value_serializer=_plain),
            "run_id": self.run_id,
            "token": self.token,
            "request": {
                "ref": str(request.ref),
                "inputs": dict(request.inputs),
                "limits": request.limits.to_dict(),
                "model": request.model,
                "timeout_s": request.timeout_s,
                "muted_hooks": sorted(request.thread.muted_hooks),
                "digest": request.graph.digest,
                "target": request.target,
                "collect": request.collect,
            },
            "ctx": {
                "capabilities": None if ctx.capabilities is None else sorted(ctx.capabilities),
                **{name: getattr(ctx, name) for name in _CONTEXT},
                "labels": dict(ctx.labels),
            },
        }
        try:
            return json.dumps(document, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as problem:
            raise InputError(
                f"What runs in another process is sent as JSON, and this can't be: {problem}.",
                next_step="Pass text, numbers, booleans, null, lists and mappings with text keys.",
            ) from None

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
        ctx = values["ctx"]
        capabilities = ctx.pop("capabilities")
        return cls(
            _read_settings(values["settings"]),
            values["run_id"],
            _read_request(values["request"]),
            CallContext(
                capabilities=None if capabilities is None else frozenset(capabilities), **ctx
            ),
            values["token"],
        )


def _read_settings(values: dict[str, Any]) -> Settings:
    spaces = tuple(
        Space(one["name"], Path(one["root"]), one["bundle"]) for one in values.pop("system_spaces")
    )
    keys, allowed = tuple(values.pop("trusted_keys")), tuple(values.pop("allow_env"))
    return Settings(system_spaces=spaces, trusted_keys=keys, allow_env=allowed, **values)


def _read_request(values: Mapping[str, Any]) -> RunRequest:
    return RunRequest(
        ItemRef.parse(values["ref"]),
        values["inputs"],
        read_limits(values["limits"]),
        values["model"],
        values["timeout_s"],
        target=values["target"],
        collect=values["collect"],
        thread=ThreadOptions(frozenset(values["muted_hooks"])),
        graph=GraphOptions(values["digest"]),
    )


def _plain(_instance: object, _attribute: object, value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    return sorted(value) if isinstance(value, set | frozenset) else value
