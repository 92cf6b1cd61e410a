"""The request for a run: a directive's thread, a graph's run, or a tool in its own process.

It is made once, from the arguments of a caller, and evolves on its way to the process that runs it.
"""

import os
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Final, Self

from attrs import evolve, field

from ryecore.convert.lines import check_mapping
from ryecore.errors import AlreadyStarted, InputError, StateUnreachable, ThreadConflict
from ryecore.frozen import frozen
from ryecore.items.refs import ItemRef
from ryecore.policy.limits import Limits, read_limits

if TYPE_CHECKING:
    from ryecore.runs.resume import Continuation
    from ryecore.state.idempotency import IdempotencyKey
    from ryecore.state.model import Predecessor, SpawnLimit, ThreadRecord
    from ryecore.state.registry import ThreadRegistry

__all__ = [
    "Claimed", "GraphOptions", "MapOptions", "MemberOptions", "Registered", "ResumeOptions",
    "RunRequest", "ThreadOptions", "check_grace", "parse_limits", "register_run",
]  # fmt: skip

_NO_LIMITS: Final = Limits()


@frozen
class Registered:
    """A run that another process has registered, and whoever begins it claims.

    Attributes:
        run_id: Its id.
        record: Its row, where it was read already.
    """

    run_id: str
    record: "ThreadRecord | None" = None


@frozen
class Claimed(Registered):
    """A run that another process has registered, and this one has claimed with a fence."""

    fence: int = field(kw_only=True)


@frozen
class ThreadOptions:
    """The options of a request for a thread, such as the ids of hooks that don't run in it."""

    muted_hooks: frozenset[str] = frozenset()
    continues: "Continuation | None" = None

    @property
    def owns_process(self) -> bool:
        """Whether the thread's process runs nothing but this chain of threads."""
        return self.continues is not None and self.continues.owns_process


def _members(members: Mapping[int, Any] | None) -> Mapping[int, Any]:
    return dict(members or {})


def _state(state: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return check_mapping(state, "Values of the state", '{"total": 0}')


@frozen
class ResumeOptions:
    """The options for resuming the run of a graph.

    Attributes:
        run_id: The run that is resumed.
        at: The step after which to continue; where the run stopped by default.
        again: Whether to resume it although another run has done so.
        rerun: Whether to repeat the node that had begun and has no known end.
        result: The result of that node, as the caller found out; `...` where it is not known.
        members: The results of single members of a foreach, by their indexes.
        failed: Whether to call only those members again that failed, of the foreach at `at`.
        changed: Whether to resume although the graph has changed.
        state: Values to set in the state first, by key.
    """

    run_id: str
    at: int | None = None
    again: bool = False
    rerun: bool = False
    result: object = field(default=..., repr=False)
    members: Mapping[int, Any] = field(factory=dict, repr=False, converter=_members)
    failed: bool = False
    changed: bool = False
    state: Mapping[str, Any] = field(factory=dict, repr=False, converter=_state)


@frozen
class MapOptions:
    """The options of a map, from which its graph is made: the item that it calls for each row.

    Attributes:
        item: A directive, which runs in threads, or a tool, which may be a graph.
        concurrency: The most rows at once, from 1.
        model: The model of a directive's threads; by default the directive's own.
    """

    item: ItemRef
    concurrency: int
    model: str | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the options as a run's journal holds them."""
        model = {} if self.model is None else {"model": self.model}
        return {"item": str(self.item), "concurrency": self.concurrency, **model}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Return the options that `to_dict` wrote, from a proved journal."""
        return cls(ItemRef.parse(document["item"]), document["concurrency"], document.get("model"))


@frozen
class MemberOptions:
    """The foreach of a graph whose agent runs for one member: the graph, its digest, and the node.

    `name` is that of the member in the agent's prompt.
    """

    graph: ItemRef
    digest: str
    node: str
    name: str


@frozen
class GraphOptions:
    """The options of a request for the run of a graph, whose file must have the SHA-256 `digest`.

    `only` is the single node to run; `state` is set above the initial state of the graph. `map`
    makes the graph of a map, which has no file, and `member` that of a foreach's member.
    """

    digest: str | None = None
    resumes: ResumeOptions | None = None
    only: str | None = None
    map: MapOptions | None = None
    member: MemberOptions | None = None
    state: Mapping[str, Any] = field(factory=dict, repr=False, converter=_state)


@frozen(slots=False)
class RunRequest:
    """The request for a run.

    The inputs are those of a directive or graph, or a tool's parameters. The model is the caller's
    choice, before the directive's own. A tool may have a timeout in seconds. `registered` is the
    run, where another process has registered it already. `target` is `local`, `remote` or
    `remote:NAME`; with `collect` the node keeps the project files that the run changed. `queue` is
    the queue whose workers run it.
    """

    ref: ItemRef
    inputs: Mapping[str, object] = field(factory=dict, repr=False)
    limits: Limits = _NO_LIMITS
    model: str | None = None
    timeout_s: float | None = None
    start_key: "IdempotencyKey | None" = None
    registered: Registered | None = None
    target: str = "local"
    collect: bool = False
    queue: str | None = None
    thread: ThreadOptions = ThreadOptions()
    graph: GraphOptions = GraphOptions()

    def with_key(
        self,
        key: str | None,
        capabilities: Collection[str] | None,
        labels: Mapping[str, str] | None = None,
    ) -> Self:
        """Return the request with a caller's idempotency key, bound to the content of the request.

        The key's scope is the caller's capabilities; None for the host. Labels are content, so that
        a key of one tenant doesn't find the run of another.
        """
        if key is None:
            return self
        from ryecore.state.idempotency import IdempotencyKey  # noqa: PLC0415 - only with a key

        identity = {
            "parameters": self.inputs,
            "model": self.model,
            "limits": self.limits.to_dict(),
            **({} if self.target == "local" else {"target": self.target}),
            **({"labels": dict(labels)} if labels else {}),
        }
        return evolve(self, start_key=IdempotencyKey.of(key, str(self.ref), identity, capabilities))


def check_grace(grace_s: float) -> float:
    """Return the time that killed processes may take to end by themselves: a number from 0."""
    if not grace_s >= 0:
        raise InputError(
            f"grace_s is {grace_s}, not a number from 0.", next_step="Pass seconds, such as 3."
        )
    return grace_s


def parse_limits(limits: Limits | Mapping[str, Any] | None) -> Limits:
    """Return the limits of a caller, perhaps as numbers by their names; none by default."""
    if limits is None:
        return _NO_LIMITS
    if isinstance(limits, Limits):
        return limits
    try:
        return read_limits(check_mapping(limits, "Limits", '{"turns": 8}'))
    except ValueError as problem:
        raise InputError(
            f"limits: {problem}.",
            next_step='Pass such as {"turns": 8, "spend": 0.5}; on the command line '
            "--limit turns=8 --limit spend=0.5.",
        ) from None


async def register_run(
    registry: "ThreadRegistry",
    request: RunRequest,
    parent_id: str | None,
    *,
    follows: "Predecessor | None" = None,
    spawns: "SpawnLimit | None" = None,
    recent: "MutableMapping[str, str] | None" = None,
    labels: Mapping[str, str] | None = None,
    also: Callable[["ThreadRecord"], Coroutine[Any, Any, None]] | None = None,
    on_unreachable: Callable[[str, StateUnreachable], None] | None = None,
) -> "ThreadRecord":
    """Register a thread, or the run of a graph.

    Its id is `ITEM/LEAF-EPOCH`, with a suffix where that is taken. `spawns` is the parent's limit,
    which the run is counted against; None where it was counted before. `recent` has the last id
    without a suffix that this process has tried, by item. `also` writes more with the run's row, in
    the same transaction. `on_unreachable` is told the id of a run that may have been registered,
    as the server's answer was lost.

    Source: docs/design/threads.md#thread-ids; decision 36.
    """

    async def write(run_id: str) -> "ThreadRecord":
        record = await registry.register(
            run_id,
            str(request.ref),
            parent_id,
            follows=follows,
            start=request.start_key,
            spawns=spawns,
            labels=labels,
            queue=request.queue,
        )
        if also is not None:
            await also(record)
        return record

    async def register(run_id: str) -> "ThreadRecord":
        try:
            return await register_once(run_id)
        except StateUnreachable as problem:
            if on_unreachable is not None:
                on_unreachable(run_id, problem)
            raise

    async def register_once(run_id: str) -> "ThreadRecord":
        # A transaction for each id: where one is taken, what was counted before is undone with it.
        if also is None:
            return await write(run_id)
        is_in_tree = follows is None and request.start_key is None
        tree = (parent_id or run_id) if is_in_tree else None
        return await registry.together(lambda: write(run_id), tree=tree)

    item_id = request.ref.id
    run_id = f"{item_id}/{item_id.rpartition('/')[2]}-{int(time.time())}"
    if recent is None or recent.get(item_id) != run_id:  # else this process has taken it
        if recent is not None:
            recent[item_id] = run_id
        try:
            return await register(run_id)
        except AlreadyStarted:
            raise
        except ThreadConflict:  # the id is taken; any other conflict is raised again
            pass
    return await register(f"{run_id}-{os.urandom(4).hex()}")
