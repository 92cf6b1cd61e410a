"""What a thread is wanted for."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Literal, TypeAlias

from attrs import field, frozen

from ryecore.items.refs import ItemRef
from ryecore.llm.parts import Message
from ryecore.policy.limits import Limits
from ryecore.runs.naming import Registered
from ryecore.state.model import Follows
from ryecore.state.start_keys import StartKey

__all__ = ["Continuation", "ContinuationKind", "ThreadWish"]

ContinuationKind: TypeAlias = Literal["handoff", "resume", "fork"]


@frozen
class Continuation:
    """What a thread goes on from.

    Attributes:
        kind: `handoff` from one that ends with it, `resume` of one that has ended, or a `fork` of
            one at an earlier turn.
        previous_id: The thread that it goes on from.
        chain_root_id: The first thread of the chain; None for a fork, which begins its own.
        messages: The conversation so far.
        message: What is said to the model now; empty for what the directive or ryecore says.
        capabilities: What the earlier thread might do: this one never may more.
        turn: The turn that a fork was cut after; 0 for none.
        digest: The digest of the transcript there.
        inputs: What the earlier thread was given, as its proved transcript says.
        model: The model that it asked, likewise; None where the wish says it.
        beside: See `Follows.beside`.
        limits: What the earlier thread might use, as its signed file says.
        ran_s: How long it ran, in seconds. A handoff counts none: its deadline stays.
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
    def follows(self) -> Follows:
        """What the new thread's row says of it."""
        return Follows(self.previous_id, self.chain_root_id, self.beside)


@frozen
class ThreadWish:
    """What a thread is wanted for.

    Attributes:
        ref: The directive.
        inputs: What it is given.
        model: The caller's choice of a model; the directive's own where None.
        overrides: The caller's limits.
        muted_hooks: The ids of hooks that don't act in it.
        registered: The thread that it runs in, where there is one already.
        continues: What it goes on from; None for a fresh thread.
        start_key: The idempotency key that it is started with.
    """

    ref: ItemRef
    inputs: Mapping[str, object] = field(factory=dict, repr=False)
    model: str | None = None
    overrides: Limits = field(factory=Limits)
    muted_hooks: frozenset[str] = frozenset()
    registered: Registered | None = None
    continues: Continuation | None = None
    start_key: StartKey | None = None

    @property
    def owns_process(self) -> bool:
        """Whether its process runs nothing but this chain of threads."""
        return self.continues is not None and self.continues.owns_process
