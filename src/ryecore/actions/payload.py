"""What a detached process is told on its standard input, to go on where its parent left off.

Everything in it is data. What can't travel (callables, keys, cancellation, event sinks) is rebuilt
by the host's `deps_factory`, or has no meaning in another process. Nothing of it touches a disk.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from attrs import asdict, field, frozen

from ryecore.actions.settings import Settings
from ryecore.errors import InputError
from ryecore.items.spaces import Space
from ryecore.policy import CallContext

__all__ = ["Fork", "Payload", "Walk"]

_VERSION: Final = 4


@frozen
class Fork:
    """How the thread of a directive is started.

    Attributes:
        model: The caller's choice of a model.
        limits: The caller's limits, by the names that files use.
        muted_hooks: The ids of hooks that don't act in it.
        token: Proves to the registry that this process was started for the thread.
    """

    model: str | None
    limits: Mapping[str, Any]
    muted_hooks: frozenset[str]
    token: str = field(repr=False)


@frozen
class Walk:
    """How the run of a graph is started.

    Attributes:
        digest: What the graph's file held when it was verified for the call.
        token: Proves to the registry that this process was started for the run.
    """

    digest: str
    token: str = field(repr=False)


@frozen
class Payload:
    """One execution that another process carries out.

    Attributes:
        settings: How to open the Rye.
        thread_id: The thread that it runs in, which is registered already.
        item_id: What to execute, as a canonical ref.
        parameters: What it is given.
        timeout_s: The caller's timeout, in seconds.
        fork: How a directive's thread is started; None for another item.
        capabilities: What the caller may do; None for the host itself.
        budget_account: The ledger account that pays.
        depth: How many actions lie between this one and the host.
        deadline: The monotonic time in seconds when it must have ended; one clock for all
            processes of a machine.
        call_id: What events call this action.
        parent: The call that this one is part of.
        walk: How a graph's run is started; None for another item.
    """

    settings: Settings
    thread_id: str
    item_id: str
    parameters: Mapping[str, Any] = field(repr=False)
    timeout_s: float | None
    fork: Fork | None
    capabilities: frozenset[str] | None
    budget_account: str | None
    depth: int
    deadline: float | None
    call_id: str
    parent: str | None
    walk: Walk | None = None

    @classmethod
    def within(cls, ctx: CallContext, **what: Any) -> Self:
        """A payload that is carried out on behalf of a caller.

        Args:
            ctx: The caller's. Its deadline holds where `what` has none.
            what: The other attributes.
        """
        return cls(
            capabilities=ctx.capabilities,
            budget_account=ctx.budget_account,
            depth=ctx.depth,
            call_id=ctx.call_id,
            parent=ctx.parent,
            **{"deadline": ctx.deadline, "timeout_s": None, "fork": None, **what},
        )

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
            raise InputError(
                f"This is a payload of version {version}, not {_VERSION}.",
                next_step="Start it again: another ryecore was installed meanwhile.",
            )
        settings = values.pop("settings")
        spaces = tuple(
            Space(one["name"], Path(one["root"]), one["bundle"])
            for one in settings.pop("system_spaces")
        )
        keys = tuple(settings.pop("trusted_keys"))
        capabilities, fork = values.pop("capabilities"), values.pop("fork")
        walk = values.pop("walk")
        if fork is not None:
            fork = Fork(**{**fork, "muted_hooks": frozenset(fork["muted_hooks"])})
        return cls(
            Settings(system_spaces=spaces, trusted_keys=keys, **settings),
            capabilities=None if capabilities is None else frozenset(capabilities),
            fork=fork,
            walk=None if walk is None else Walk(**walk),
            **values,
        )


def _plain(_instance: object, _attribute: object, value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    return sorted(value) if isinstance(value, set | frozenset) else value
