"""The request to start a thread, and what it continues from."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Literal, TypeAlias

from attrs import field, frozen

from ryecore.items.refs import ItemRef
from ryecore.llm.parts import Message
from ryecore.policy.limits import Limits
from ryecore.runs.naming import Registered
from ryecore.state.model import Predecessor
from ryecore.state.start_keys import IdempotencyKey

__all__ = ["Continuation", "ContinuationKind", "ThreadWish"]

ContinuationKind: TypeAlias = Literal["handoff", "resume", "fork"]


@frozen
class Continuation:
    """The thread, and the turn of it, that a new thread continues.

    Attributes:
        kind: `handoff` from one that ends with it, `resume` of one that has ended, or a `fork` of
            one at an earlier turn.
        previous_id: The thread that is continued.
        chain_root_id: The first thread of the chain; None for a fork, which begins its own.
        messages: The conversation so far.
        message: The next message to the model; empty for the one of the directive or of ryecore.
        capabilities: Those of the earlier thread, which bound those of the new one.
        turn: The turn that a fork was cut after; 0 for none.
        digest: The digest of its transcript at that turn.
        inputs: The inputs of the earlier thread, from its proved transcript.
        model: The model of the earlier thread, likewise; None where the request names one.
        beside: See `Predecessor.beside`.
        limits: The limits of the earlier thread, from its signed file.
        ran_s: How long it ran, in seconds; 0 for a handoff, which keeps the deadline.
        owns_process: Whether its process runs nothing but this chain of threads.
    """

    kind: ContinuationKind
    previous_id: str
    chain_root_id: str | None
    messages: tuple[Message, ...] = field(repr=False)
    message: str = ""
    capabilities: frozenset[str] = frozenset()
    turn: int = 0
    digest: str = ""
    inputs: Mapping[str, object] = field(factory=dict, repr=False)
    model: str | None = None
    beside: frozenset[str] | None = None
    limits: Limits = field(factory=Limits)
    ran_s: Decimal = Decimal(0)
    owns_process: bool = False

    @property
    def follows(self) -> Predecessor:
        """Return what the registry's row of the new thread says of it."""
        return Predecessor(self.previous_id, self.chain_root_id, self.beside)


@frozen
class ThreadWish:
    """The request to start a thread.

    Attributes:
        ref: The directive.
        inputs: Its inputs.
        model: The caller's choice of a model; the directive's own where None.
        overrides: The caller's limits.
        muted_hooks: The ids of hooks that don't act in it.
        registered: The row to run in, where the thread is registered already.
        continues: The thread that it continues; None for a fresh thread.
        start_key: The idempotency key that it is started with.
    """

    ref: ItemRef
    inputs: Mapping[str, object] = field(factory=dict, repr=False)
    model: str | None = None
    overrides: Limits = field(factory=Limits)
    muted_hooks: frozenset[str] = frozenset()
    registered: Registered | None = None
    continues: Continuation | None = None
    start_key: IdempotencyKey | None = None

    @property
    def owns_process(self) -> bool:
        """Whether its process runs nothing but this chain of threads."""
        return self.continues is not None and self.continues.owns_process
