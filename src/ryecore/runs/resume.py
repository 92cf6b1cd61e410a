"""The resuming of runs: what the new run takes over, and the check that it is the only one.

Two successors of one run would both take its next step. A fork of a thread begins a chain of its
own, and may stand beside a successor.

Source: decision 47.
"""

from collections.abc import Awaitable, Callable, Mapping
from decimal import Decimal
from typing import Literal, TypeAlias

from attrs import field

from ryecore.errors import ThreadConflict
from ryecore.frozen import frozen
from ryecore.llm.parts import Message
from ryecore.policy.limits import Limits
from ryecore.state.model import Predecessor, ThreadRecord
from ryecore.state.refusals import already_continued
from ryecore.state.store import ThreadStore

__all__ = ["Continuation", "ContinuationKind", "idle_followers", "refuse_running"]

ContinuationKind: TypeAlias = Literal["handoff", "resume", "fork"]


@frozen
class Continuation:
    """The earlier thread that a new thread continues, and what is taken over from it.

    Attributes:
        kind: `handoff` from one that ends with it, `resume` of one that has ended, or a `fork` of
            one at an earlier turn.
        chain_root_id: The first thread of the chain; None for a fork, which begins its own.
        message: The next message to the model; empty for the one of the directive or of ryecore.
        turn: The turn that a fork was cut after; 0 for none.
        digest: The digest of the earlier transcript at that turn.
        model: The model of the earlier thread; None where the request names one.
        beside: See `Predecessor.beside`.
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
        """The link to the earlier thread in the new thread's row."""
        return Predecessor(self.previous_id, self.chain_root_id, self.beside)


def refuse_running(record: ThreadRecord) -> None:
    """Refuse to continue a run that has not ended."""
    if record.ended:
        return
    kind = "thread" if record.item_id.startswith("directive:") else "run"
    raise ThreadConflict(
        f"The {kind} {record.thread_id} still runs, so it can't be resumed.",
        next_step=f"Wait for it, or stop it: rye threads cancel {record.thread_id}",
        thread_id=record.thread_id,
        state=record.status,
    )


async def idle_followers(
    store: ThreadStore,
    run_id: str,
    has_begun: Callable[[ThreadRecord], Awaitable[bool]],
    next_step: Callable[[str], str],
) -> frozenset[str]:
    """Return the successors of a run that ended before they did anything.

    A successor that still runs, or did something, is a ThreadConflict, whose next step is made from
    its id.
    """
    idle: set[str] = set()
    for one in await store.registry.list_following(run_id):
        if one.chain_root_id is None:
            continue
        record = await store.look(one.thread_id)
        if not record.ended or await has_begun(record):
            refused = already_continued(run_id, record.thread_id, record.status)
            refused.next_step = next_step(record.thread_id)
            raise refused
        idle.add(record.thread_id)
    return frozenset(idle)
