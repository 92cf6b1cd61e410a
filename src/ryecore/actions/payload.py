"""What a detached process is told on its standard input, to go on where its parent left off.

Everything in it is data. What can't travel (callables, keys, cancellation, event sinks) is rebuilt
by the host's `deps_factory`, or has no meaning in another process. Nothing of it touches a disk.
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, Self

from attrs import asdict, field, frozen

from ryecore.errors import InputError
from ryecore.items.spaces import Space
from ryecore.policy import CallContext
from ryecore.state.model import Durability

__all__ = ["Payload", "Settings"]

_VERSION: Final = 1


@frozen
class Settings:
    """How a Rye was opened, as data: enough to open the same one in another process.

    Attributes:
        project_path: The project's folder.
        user_space: The folder that holds the user's `.ai`.
        system_spaces: The system bundles.
        inherit_env: What tools inherit of the environment.
        trusted_keys: The PEM of the public keys that the host vouches for.
        trust_project_interpreters: Whether an interpreter inside the project may run.
        config: What the host sets.
        cache_dir: Where verified files are sealed.
        durability: What a change of state survives.
        deps_factory: `package.module:function`, which rebuilds what the host injects.
    """

    project_path: str
    user_space: str
    system_spaces: tuple[Space, ...]
    inherit_env: str | Collection[str]
    trusted_keys: tuple[str, ...]
    trust_project_interpreters: bool
    config: Mapping[str, Mapping[str, Any]] = field(repr=False)
    cache_dir: str
    durability: Durability
    deps_factory: str | None

    def to_options(self) -> dict[str, Any]:
        """The settings as the arguments of `Rye.open`."""
        return {
            "project_path": self.project_path,
            "user_space": self.user_space,
            "system_spaces": self.system_spaces,
            "inherit_env": self.inherit_env,
            "trusted_keys": self.trusted_keys,
            "trust_project_interpreters": self.trust_project_interpreters,
            "config": self.config,
            "cache_dir": self.cache_dir,
            "durability": self.durability,
            "deps_factory": self.deps_factory,
        }


@frozen
class Payload:
    """One execution that another process carries out.

    Attributes:
        settings: How to open the Rye.
        thread_id: The thread that it runs in, which is registered already.
        item_id: What to execute, as a canonical ref.
        parameters: What it is given.
        timeout_s: The caller's timeout, in seconds.
        capabilities: What the caller may do; None for the host itself.
        budget_account: The ledger account that pays.
        depth: How many actions lie between this one and the host.
        deadline: The monotonic time in seconds when it must have ended; one clock for all
            processes of a machine.
        call_id: What events call this action.
        parent: The call that this one is part of.
    """

    settings: Settings
    thread_id: str
    item_id: str
    parameters: Mapping[str, Any] = field(repr=False)
    timeout_s: float | None
    capabilities: frozenset[str] | None
    budget_account: str | None
    depth: int
    deadline: float | None
    call_id: str
    parent: str | None

    @property
    def context(self) -> CallContext:
        """On whose behalf the execution goes on."""
        return CallContext(
            capabilities=self.capabilities,
            budget_account=self.budget_account,
            depth=self.depth,
            deadline=self.deadline,
            call_id=self.call_id,
            parent=self.parent,
        )

    def to_bytes(self) -> bytes:
        """The payload as one JSON document.

        Raises:
            InputError: A parameter or a setting can't be written as JSON.
        """
        document = {"version": _VERSION, **asdict(self, value_serializer=_plain)}
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
        version = values.pop("version")
        if version != _VERSION:
            raise InputError(f"This is a payload of version {version}, not {_VERSION}.")
        settings = values.pop("settings")
        spaces = tuple(
            Space(one["name"], Path(one["root"]), one["bundle"])
            for one in settings.pop("system_spaces")
        )
        keys = tuple(settings.pop("trusted_keys"))
        capabilities = values.pop("capabilities")
        return cls(
            Settings(system_spaces=spaces, trusted_keys=keys, **settings),
            capabilities=None if capabilities is None else frozenset(capabilities),
            **values,
        )


def _plain(_instance: object, _attribute: object, value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    return sorted(value) if isinstance(value, set | frozenset) else value
