"""The values of a thread's row, and its statuses. Pure.

Source: docs/design/threads.md#states; decisions 35, 37 and 39.
"""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal, Self, get_args

from attrs import asdict, field

from ryecore.convert.fields import omitted_at_default, usd
from ryecore.convert.money import to_usd
from ryecore.convert.strict import WIRE
from ryecore.display.text import Rendered, StyledText, render_threads
from ryecore.errors import ThreadNotFound
from ryecore.frozen import frozen
from ryecore.lillux.processes import ProcessId
from ryecore.policy.limits import Limits

if TYPE_CHECKING:
    from ryecore.policy.budget import Amount, CallCost
    from ryecore.state.approvals import ThreadApproval

__all__ = [
    "TERMINAL",
    "THREADS_FOLDER",
    "ContinuationLimits",
    "Cost",
    "Durability",
    "Predecessor",
    "RemotePlace",
    "SpawnLimit",
    "Status",
    "ThreadRecord",
    "ThreadRecords",
    "check_status",
    "has_ended",
    "thread_not_found",
]

THREADS_FOLDER: Final = "threads"
"""The folder below `.ai/state` with all threads and their registry."""

Durability = Literal["process", "machine"]
"""What a change survives: the death of the process (`process`), or a power cut too."""

Status = Literal["created", "running", "completed", "error", "cancelled", "continued", "killed"]

TERMINAL: Final[frozenset[str]] = frozenset(get_args(Status)) - {"created", "running"}
"""The final statuses of a thread."""


def has_ended(status: str) -> bool:
    """Return whether a status is final."""
    return status in TERMINAL


def check_status(status: str) -> Status:
    """Return a status by its name; a ValueError for any other name."""
    if status not in get_args(Status):
        raise ValueError(f"{status!r} isn't a status; these are: {', '.join(get_args(Status))}")
    return status  # type: ignore[return-value]


def thread_not_found(thread_id: str, of_item: Sequence[str] = ()) -> ThreadNotFound:
    """Return the error for an id that no thread has, with the running threads of such an item."""
    return ThreadNotFound(
        f"There is no thread {thread_id!r} in this project.",
        next_step=f"An item of that name runs in {', '.join(of_item[:3])}."
        if of_item
        else "See which there are: rye threads list --all",
        thread_id=thread_id,
    )


@frozen(slots=False)
class Cost:
    """The cost of a thread so far.

    Attributes:
        turns: Turns of its model.
        input_tokens: Tokens that the model read.
        output_tokens: Tokens that it wrote.
        spend_microcents: Money, in units of 1e-8 USD.
        estimated: Whether a part is an estimate, because a provider reported no tokens.
        cached_tokens: Tokens that the model read from its provider's cache, among those it read.
        unpriced: Requests to models without a price, which count as free.
        cache_saved_microcents: What the caches saved; below 0 where writing to them cost more.
    """

    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    spend_microcents: int = field(default=0, metadata=usd("spend"))
    estimated: bool = field(default=False, metadata=omitted_at_default())
    cached_tokens: int = field(default=0, metadata=omitted_at_default())
    unpriced: int = field(default=0, metadata=omitted_at_default())
    cache_saved_microcents: int = field(
        default=0, metadata=usd("cache_saved", omitted_at_default=True)
    )

    def to_dict(self) -> dict[str, object]:
        """Return the cost as JSON types; those behind `spend` only where they are set."""
        cost: dict[str, object] = WIRE.write(self)
        return cost

    def plus(
        self,
        read: int = 0,
        written: int = 0,
        spend: int = 0,
        *,
        turns: int = 0,
        estimated: bool,
    ) -> "Cost":
        """Return the cost with more turns, tokens and microcents."""
        return Cost(  # inlined: `evolve` takes several times as long
            self.turns + turns,
            self.input_tokens + read,
            self.output_tokens + written,
            self.spend_microcents + spend,
            self.estimated or estimated,
            self.cached_tokens,
            self.unpriced,
            self.cache_saved_microcents,
        )

    def with_call(self, call: "CallCost") -> "Cost":
        """Return the cost with that of one more request."""
        return Cost(
            self.turns,
            self.input_tokens + call.input_tokens,
            self.output_tokens + call.output_tokens,
            self.spend_microcents + call.spend_microcents,
            self.estimated or call.mark != "counted",
            self.cached_tokens + call.cached_tokens,
            self.unpriced + (not call.priced),
            self.cache_saved_microcents + call.cache_saved_microcents,
        )

    @property
    def cache_saved_usd(self) -> Decimal:
        """What the providers' caches saved, in US dollars."""
        return to_usd(self.cache_saved_microcents)

    @property
    def spend_usd(self) -> Decimal:
        """The money in US dollars."""
        return to_usd(self.spend_microcents)

    @property
    def tokens(self) -> int:
        """All tokens, read and written."""
        return self.input_tokens + self.output_tokens

    @property
    def amount(self) -> "Amount":
        """The money and the tokens."""
        from ryecore.policy.budget import Amount  # noqa: PLC0415 - only for what counts money

        return Amount(self.spend_microcents, self.tokens)


@frozen
class Predecessor:
    """The thread that a new thread continues.

    Attributes:
        thread_id: The thread.
        chain_root_id: The first thread of the continued chain; None for a fork.
        beside: The ids of other continuations that don't count, since they never began; any other
            one prevents this one. None allows any number of continuations.
    """

    thread_id: str
    chain_root_id: str | None
    beside: frozenset[str] | None = None


@frozen
class RemotePlace:
    """The place of a run that another machine carries out.

    Attributes:
        remote: The name of the remote.
        node: The fingerprint of the node's key.
    """

    remote: str
    node: str


@frozen
class SpawnLimit:
    """The bound on the children of a parent.

    Attributes:
        most: The number in all; None for any.
    """

    most: int | None


@frozen
class ContinuationLimits:
    """The bounds of a continuation.

    Attributes:
        previous_id: The thread that it continues.
        limits: The limits of that thread.
        ran_s: The time that that thread ran, in seconds.
        wanted: The limits that the new thread would have without a predecessor.
        renewed: The limits that a person or the host sets anew, which count from zero.
    """

    previous_id: str
    limits: Limits
    ran_s: Decimal
    wanted: Limits
    renewed: Limits = field(factory=Limits)


@frozen(slots=False)
class ThreadRecord(Rendered):
    """One thread, as the registry knows it.

    Attributes:
        thread_id: Its id.
        item_id: The canonical ref of the item that runs in it.
        parent_id: The thread that started it; None for a root.
        status: Its status.
        created_at: The time of its registration, UTC, with milliseconds.
        updated_at: The time of the last change of its row.
        completed_at: The time of its end; None while it runs.
        owner: The process that runs it or is about to; None after its end.
        fence: The number of its changes of owner; writes of an earlier owner are refused.
        lease_until: The Unix time in seconds until which an owner that can't be checked from here
            counts as alive, after another boot of the machine.
        lease_machine_s: The same within one boot, in seconds that the machine has been awake; 0 if
            an earlier version wrote the row.
        owns_process: Whether its owner's process runs nothing else, and may be killed with it.
        cancel_requested: Whether it was asked to stop.
        kill_requested: Whether it is being killed.
        handoff_requested: Whether it was asked to hand off to another thread.
        model: The model of its turns.
        cost: Its cost so far.
        spawn_count: The number of threads that it has started.
        continuation_of: The thread that this one continues.
        continuation_thread_id: The thread that continues this one.
        chain_root_id: The first thread of its chain of continuations.
        root_id: The root of its tree of threads; itself if it is one.
        limits: Its limits by name.
        transcript_head: The length in bytes and the digest of its transcript's last checkpoint
            that the registry knows of.
        place: The node that runs it, while its owner here follows it; None for a local thread.
        labels: Its labels, such as its tenant and user.
        queue: The queue whose workers run it; None for a run that its caller's process runs.
        approvals: The calls of its tools that wait for a person's approval.
        host: The name of the machine, or container, whose process runs it, or has run it; None
            where none has begun, or a version wrote the row that didn't keep it.
    """

    thread_id: str
    item_id: str
    parent_id: str | None
    status: Status
    created_at: str
    updated_at: str
    completed_at: str | None
    owner: ProcessId | None
    fence: int
    lease_until: float
    owns_process: bool = False
    cancel_requested: bool = False
    kill_requested: bool = False
    handoff_requested: bool = False
    model: str | None = None
    cost: Cost = Cost()
    spawn_count: int = 0
    continuation_of: str | None = None
    continuation_thread_id: str | None = None
    chain_root_id: str | None = None
    root_id: str = ""
    limits: Mapping[str, object] | None = None
    transcript_head: tuple[int, str] | None = None
    lease_machine_s: float = 0.0
    place: RemotePlace | None = None
    labels: Mapping[str, str] = field(factory=dict)
    queue: str | None = None
    approvals: "tuple[ThreadApproval, ...]" = ()
    host: str | None = None

    @property
    def ended(self) -> bool:
        """Whether its status is final."""
        return has_ended(self.status)

    @property
    def awaits_worker(self) -> bool:
        """Whether its worker died, and another one of its queue is about to resume it."""
        is_unlinked = self.queue is not None and self.continuation_thread_id is None
        return is_unlinked and self.status == "continued"

    @property
    def pid(self) -> int | None:
        """The number of the process that runs it."""
        return self.owner.pid if self.owner else None

    def to_dict(self) -> Mapping[str, object]:
        """Return the record as a JSON-ready object.

        It has `estimated` only if a part of its cost is an estimate, `remote` and `node` only if
        a node runs it, `queue` only if workers do, `labels` and `approvals` only if it has some.

        Source: docs/design/threads.md#registry.
        """
        return {
            "thread_id": self.thread_id,
            "item_id": self.item_id,
            "parent_id": self.parent_id,
            "status": self.status,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "completed_at": self.completed_at,
            "pid": self.pid,
            "host": self.host,
            "model": self.model,
            **self.cost.to_dict(),
            "spawn_count": self.spawn_count,
            "cancel_requested": self.cancel_requested,
            "continuation_of": self.continuation_of,
            "continuation_thread_id": self.continuation_thread_id,
            "chain_root_id": self.chain_root_id,
            **({} if self.place is None else asdict(self.place)),
            **({} if self.queue is None else {"queue": self.queue}),
            **({"labels": dict(self.labels)} if self.labels else {}),
            **({"approvals": [one.to_dict() for one in self.approvals]} if self.approvals else {}),
        }

    def render(self) -> StyledText:
        """Render the thread as a line for a terminal or a notebook."""
        return render_threads((self,))


class ThreadRecords(Rendered, tuple[ThreadRecord, ...]):
    """Some threads, in order.

    Attributes:
        total: The number of all threads, including those that aren't in this list.
        is_cut: Whether more threads follow; pass the id of the last one as `after` to list them.
    """

    total: int
    is_cut: bool

    def __new__(
        cls,
        records: Iterable[ThreadRecord] = (),
        total: int | None = None,
        *,
        is_cut: bool | None = None,
    ) -> Self:
        """Make the list of these threads; `total` None means that they are all."""
        made = super().__new__(cls, tuple(records))
        made.total = len(made) if total is None else total
        made.is_cut = len(made) < made.total if is_cut is None else is_cut
        return made

    @property
    def next_after(self) -> str | None:
        """The `after` of the next page; None where no more threads follow."""
        return self[-1].thread_id if self and self.is_cut else None

    def render(self) -> StyledText:
        """Render the list for a terminal or a notebook, a line for each thread."""
        text = render_threads(self)
        if not self:
            text.line("no threads")
        elif len(self) < self.total:
            text.line((f"{len(self):,} of {self.total:,} threads", "dim"))
        return text
