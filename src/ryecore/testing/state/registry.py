"""Cases: the registry's states and their order, keys, claims, owners, trees and chains."""

from attrs import evolve

from ryecore.errors import (
    AlreadyStarted,
    InputError,
    LimitReached,
    StateError,
    ThreadConflict,
    ThreadNotFound,
)
from ryecore.lillux.processes import ProcessId, current_process
from ryecore.state.idempotency import IdempotencyKey
from ryecore.state.model import TERMINAL, Cost, Predecessor, RemotePlace, SpawnLimit, Status
from ryecore.state.owners import host_name
from ryecore.testing.conformance.bench import check, equal
from ryecore.testing.state.bench import (
    Place,
    StateCases,
    StateStore,
    dead_process,
    raises,
    state_case,
)

__all__ = ["RegistryCases"]

_ITEM = "directive:acme/x"


class RegistryCases(StateCases):
    """The registry's states and their order, keys, claims, owners, trees and chains."""

    # States

    @state_case
    async def test_a_registered_thread_is_created(self, store: StateStore, place: Place) -> None:
        """A row holds what it was registered with, and no end."""
        made = await store.registry.register("a", _ITEM, model="m", limits={"turns": 3})
        equal(await store.registry.get_thread("a"), made, "the row")
        equal((made.status, made.model, made.limits), ("created", "m", {"turns": 3}), "its fields")
        equal((made.owner, made.completed_at), (current_process(), None), "its owner and its end")
        equal((made.root_id, made.ended), ("a", False), "its root")

    @state_case
    async def test_an_id_is_taken_once(self, store: StateStore, place: Place) -> None:
        """A second thread of one id is refused, and the first stays as it is."""
        first = await store.registry.register("a", _ITEM)
        await raises(ThreadConflict, store.registry.register("a", "directive:acme/y"))
        equal(await store.registry.get_thread("a"), first, "the row")

    @state_case
    async def test_unknown_threads_are_not_found(self, store: StateStore, place: Place) -> None:
        """Reading, claiming and asking to stop name the thread that doesn't exist."""
        registry = store.registry
        for call in (
            registry.get_thread("no"),
            registry.get_result("no"),
            registry.claim("no"),
            registry.request_cancel("no"),
            registry.register("child", _ITEM, "no"),
        ):
            equal((await raises(ThreadNotFound, call)).facts["thread_id"], "no", "the id")
        equal(await registry.list_tree("no"), (), "the tree of no thread")

    @state_case
    async def test_an_end_is_final(self, store: StateStore, place: Place) -> None:
        """Each terminal status is stored with its result, and no second end follows."""
        for status in sorted(TERMINAL):
            await store.registry.register(status, _ITEM)
            fence = await store.registry.claim(status)
            await _end(store, status, status, {"n": 1}, fence=fence)  # type: ignore[arg-type]
            row = await store.registry.get_thread(status)
            equal((row.status, row.owner), (status, None), "the ended row")
            check(row.completed_at is not None, "An ended thread has no time of its end.")
            equal(await store.registry.get_result(status), {"n": 1}, "the result")
            for other in sorted(TERMINAL):
                await raises(ThreadConflict, _end(store, status, other, {}))  # type: ignore[arg-type]
            await raises(ThreadConflict, store.registry.claim(status))
            equal(await store.registry.get_thread(status), row, "the row after refused ends")

    @state_case
    async def test_an_end_is_one_transaction(self, store: StateStore, place: Place) -> None:
        """A result that isn't JSON ends nothing; a valid end stores head and cost with it."""
        await store.registry.register("a", _ITEM)
        fence = await store.registry.claim("a")
        await raises(InputError, _end(store, "a", "completed", {(1, 2): "x"}, fence=fence))
        equal((await store.registry.get_thread("a")).status, "running", "the status")
        cost = Cost(turns=2, input_tokens=3, output_tokens=4, spend_microcents=5, estimated=True)
        await store.registry.settle(
            "a", "completed", {}, fence=fence, head=(17, "ab" * 32), snapshot=cost
        )
        row = await store.registry.get_thread("a")
        equal((row.transcript_head, row.cost), ((17, "ab" * 32), cost), "head and cost")

    @state_case
    async def test_results_keep_json(self, store: StateStore, place: Place) -> None:
        """Half characters, large numbers and nested values come back as they were."""
        result = {"text": "\ud800 é", "big": 2**63, "deep": [[{"a": None}]], "": 0.1}
        await store.registry.register("a", _ITEM)
        equal(await store.registry.get_result("a"), None, "the result before the end")
        await _end(store, "a", "completed", result)
        equal(await store.registry.get_result("a"), result, "the result")

    @state_case
    async def test_lists_keep_their_order(self, store: StateStore, place: Place) -> None:
        """Active threads and children come oldest first, threads and runs newest first."""
        registry = store.registry
        for name in ("b", "a", "c"):
            await registry.register(name, _ITEM)
        await registry.register("g/f/f-1", "tool:g/f")
        await registry.register("t", "tool:g/f")
        await registry.register("b1", _ITEM, "b")
        await _end(store, "a", "completed", {})
        equal(
            [one.thread_id for one in await registry.list_active()],
            ["b", "c", "g/f/f-1", "t", "b1"],
            "active threads",
        )
        first, second = await registry.list_threads(limit=2)
        after = await registry.list_threads(limit=1, after=first.thread_id)
        equal(after, (second,), "the page after a thread")
        newest = [one.thread_id for one in await registry.list_threads(limit=3, offset=1)]
        equal(newest, ["t", "g/f/f-1", "c"], "a page of threads")
        equal([one.thread_id for one in await registry.list_runs()], ["g/f/f-1"], "runs of graphs")
        counts = (await registry.count_threads(), await registry.count_threads(only_runs=True))
        equal(counts, (6, 1), "the counts")
        equal([one.thread_id for one in await registry.list_children("b")], ["b1"], "children")
        found = [one.thread_id for one in await registry.find_by_prefix("b")]
        equal(found, ["b", "b1"], "threads by prefix")
        equal(await registry.find_by_prefix("%"), (), "a prefix is text, never a pattern")
        found = [one.thread_id for one in await registry.find_by_suffix("1")]
        equal(found, ["b1", "g/f/f-1"], "threads by suffix")
        found = [one.thread_id for one in await registry.find_by_suffix("g/f/f-1", limit=1)]
        equal(found, ["g/f/f-1"], "a thread by its whole id")
        equal(await registry.find_by_suffix("%1"), (), "a suffix is text, never a pattern")
        equal(await registry.find_by_suffix("xg/f/f-1"), (), "a suffix longer than an id")

    @state_case
    async def test_open_threads_count_by_their_labels(
        self, store: StateStore, place: Place
    ) -> None:
        """Those that have ended don't count, nor those that others have started."""
        registry, wanted = store.registry, {"tenant": "acme", "user.name": "Ada"}
        for name, labels in (("a", wanted), ("b", wanted), ("c", {"tenant": "acme"}), ("d", None)):
            await registry.register(name, _ITEM, labels=labels)
        await registry.register("e", _ITEM, "a")
        await _end(store, "b", "completed", {})
        found = [await registry.count_open(one) for one in (wanted, {"tenant": "acme"}, {})]
        equal(found, [1, 2, 3], "the counts")
        await raises(ValueError, registry.count_open({'"': "acme"}))

    # Owners

    @state_case
    async def test_a_claim_is_made_once(self, store: StateStore, place: Place) -> None:
        """A claim makes a thread run; another one is refused."""
        await store.registry.register("a", _ITEM)
        fence = await store.registry.claim("a", owns_process=True)
        row = await store.registry.get_thread("a")
        equal((row.status, row.fence, row.owns_process), ("running", fence, True), "the row")
        await raises(ThreadConflict, store.registry.claim("a"))

    @state_case
    async def test_an_ended_thread_names_its_machine(self, store: StateStore, place: Place) -> None:
        """The row of a thread names the machine whose process runs it, also after its end."""
        registry = store.registry
        made = await registry.register("a", _ITEM)
        waits = await registry.register("q", _ITEM, queue="default")
        equal((made.host, waits.host), (host_name(), None), "the hosts of created threads")
        await registry.claim("q")
        await _end(store, "a", "completed", {})
        rows = [await registry.get_thread(one) for one in ("a", "q")]
        equal([one.host for one in rows], [host_name()] * 2, "the hosts")
        await registry.register("elsewhere", _ITEM, owner=dead_process())
        await registry.claim("elsewhere", ProcessId("another boot", 1, 2, 3))
        equal((await registry.get_thread("elsewhere")).host, None, "the host of another's process")

    @state_case
    async def test_a_token_is_used_once(self, store: StateStore, place: Place) -> None:
        """A thread with a token is claimed only with the newest one."""
        registry = store.registry
        await registry.register("a", _ITEM)
        old, new = await registry.mint_token("a"), await registry.mint_token("a")
        for wrong in (None, "", old, new[:-1]):
            await raises(ThreadConflict, registry.claim("a", token=wrong))
        await registry.claim("a", token=new)
        await raises(ThreadConflict, registry.claim("a", token=new))
        await raises(ThreadConflict, registry.mint_token("a"))

    @state_case
    async def test_a_lost_owner_writes_nothing(self, store: StateStore, place: Place) -> None:
        """Once a dead owner's thread was ended, its fence is refused everywhere."""
        registry = store.registry
        await registry.register("a", _ITEM)
        fence = await registry.claim("a", dead_process())
        stale = await registry.list_active()
        equal(await registry.settle_abandoned(stale), ("a",), "the ended threads")
        equal(await registry.settle_abandoned(stale), (), "the same once more")
        equal((await registry.get_thread("a")).status, "error", "the status")
        equal(dict(await registry.get_result("a"))["died"], True, "its result")  # type: ignore[call-overload]
        for call in (
            registry.renew("a", fence),
            registry.set_cost("a", Cost(turns=1), fence=fence),
            registry.set_limits("a", {}, fence=fence),
            registry.settle("a", "completed", {}, fence=fence),
        ):
            await raises(StateError, call)

    @state_case
    async def test_only_the_dead_are_ended(self, store: StateStore, place: Place) -> None:
        """A living owner's thread stays, as does one whose row changed since it was read."""
        registry = store.registry
        await registry.register("lives", _ITEM)
        await registry.claim("lives")
        await registry.register("taken", _ITEM, owner=dead_process())
        stale = await registry.list_active()
        await registry.claim("taken")
        equal(await registry.settle_abandoned(stale), (), "the ended threads")

    @state_case
    async def test_the_dead_are_killed_where_asked(self, store: StateStore, place: Place) -> None:
        """A dead thread that was to be killed ends as killed; those below it are asked to stop."""
        registry = store.registry
        await registry.register("a", _ITEM)
        await registry.claim("a", dead_process())
        await registry.register("below", _ITEM, "a")
        await registry.claim("below")
        await registry.request_cancel("a", kill=True)
        await registry.settle_abandoned(await registry.list_active())
        equal((await registry.get_thread("a")).status, "killed", "the status")
        below = await registry.get_thread("below")
        equal((below.status, below.cancel_requested), ("running", True), "the child")

    @state_case
    async def test_a_run_on_a_node_outlives_who_follows_it(
        self, store: StateStore, place: Place
    ) -> None:
        """A thread on a node isn't ended with its dead owner; exactly one process takes it over."""
        registry = store.registry
        await registry.register("a", _ITEM)
        fence = await registry.claim("a", dead_process())
        node = RemotePlace("gpu", "0123456789abcdef")
        await raises(ThreadConflict, registry.set_place("a", node, fence=fence + 1))
        await registry.set_place("a", node, fence=fence)
        equal(
            await registry.settle_abandoned(await registry.list_active()), (), "the ended threads"
        )
        taken = await registry.take_over("a")
        row = await registry.get_thread("a")
        equal((row.status, row.place, row.fence), ("running", node, taken), "the row")
        await raises(ThreadConflict, registry.take_over("a", dead_process()))
        taken = await registry.take_over("a")  # by the same process, which has stopped following
        await raises(StateError, registry.settle("a", "completed", {}, fence=fence))
        await registry.settle("a", "completed", {}, fence=taken)
        await raises(ThreadConflict, registry.take_over("a"))
        await registry.register("here", _ITEM)
        await registry.claim("here", dead_process())
        await raises(ThreadConflict, registry.take_over("here"))

    @state_case
    async def test_requests_reach_their_owner(self, store: StateStore, place: Place) -> None:
        """Requests to stop and to hand off are listed for the process that owns the thread."""
        registry = store.registry
        for name in ("stop", "kill", "hand", "none", "over"):
            await registry.register(name, _ITEM)
            await registry.claim(name)
        await _end(store, "over", "completed", {})
        await registry.request_cancel("stop")
        await registry.request_cancel("kill", kill=True)
        await registry.request_handoff("hand")
        equal((await registry.request_cancel("over")).cancel_requested, False, "an ended thread")
        found = await registry.pending_requests()
        asked = [
            (one.thread_id, one.cancel_requested, one.kill_requested, one.handoff_requested)
            for one in found
        ]
        expected = [
            ("stop", True, False, False),
            ("kill", False, True, False),
            ("hand", False, False, True),
        ]
        equal(asked, expected, "the requests")
        other = evolve(current_process(), pid=1, start_ticks=1)
        equal(await registry.pending_requests(other), (), "those of another process")

    # Trees and chains

    @state_case
    async def test_a_stop_reaches_the_subtree(self, store: StateStore, place: Place) -> None:
        """Everything below is asked to stop, later children too, and nothing beside."""
        registry = store.registry
        for name, parent in (("r", None), ("a", "r"), ("a1", "a"), ("b", "r")):
            await registry.register(name, _ITEM, parent)
        await registry.request_cancel("a")
        late = await registry.register("late", _ITEM, "a1")
        check(late.cancel_requested, "A child of a stopped thread isn't asked to stop.")
        stopped = {one.thread_id for one in await registry.list_tree("r") if one.cancel_requested}
        equal(stopped, {"a", "a1", "late"}, "the stopped threads")
        equal(late.root_id, "r", "the root of a grandchild")
        equal(
            [await registry.is_below(*pair) for pair in (("a1", "r"), ("a", "a"), ("b", "a"))],
            [True, True, False],
            "who is below whom",
        )

    @state_case
    async def test_spawns_are_counted(self, store: StateStore, place: Place) -> None:
        """A refused child is neither registered nor counted."""
        registry = store.registry
        await registry.register("r", _ITEM)
        await registry.register("a", _ITEM, "r", spawns=SpawnLimit(2))
        equal(await registry.count_spawn("r", 2), 2, "the count")
        await raises(LimitReached, registry.count_spawn("r", 2))
        await raises(LimitReached, registry.register("b", _ITEM, "r", spawns=SpawnLimit(2)))
        await raises(ThreadNotFound, registry.get_thread("b"))
        equal((await registry.get_thread("r")).spawn_count, 2, "the stored count")

    @state_case
    async def test_a_thread_is_continued_once(self, store: StateStore, place: Place) -> None:
        """A chain leads to its last thread, and a second continuation is refused."""
        registry = store.registry
        await registry.register("a", _ITEM)
        follows = Predecessor("a", "a", frozenset())
        await registry.register("b", _ITEM, follows=follows)
        await raises(ThreadConflict, registry.register("c", _ITEM, follows=follows))
        await registry.register("fork", _ITEM, follows=Predecessor("a", None))
        await registry.link_continuation("a", "b")
        await _end(store, "a", "continued", {})
        equal(await registry.last_of("a"), "b", "the last of the chain")
        chain = [one.thread_id for one in await registry.get_chain("b")]
        equal(chain, ["a", "b"], "the chain")
        followers = [one.thread_id for one in await registry.list_following("a")]
        equal(followers, ["b", "fork"], "the threads that continue it")
        await registry.request_cancel("a")
        check((await registry.get_thread("b")).cancel_requested, "A stop misses the continuation.")

    @state_case
    async def test_labels_are_inherited(self, store: StateStore, place: Place) -> None:
        """A child has its parent's labels, a continuation its predecessor's; none changes."""
        registry = store.registry
        await registry.register("a", _ITEM, labels={"tenant": "acme"})
        await registry.register("b", _ITEM, "a", labels={"tenant": "other", "user": "u"})
        await registry.register("c", _ITEM, follows=Predecessor("a", "a"))
        found = {one: (await registry.get_thread(one)).labels for one in ("a", "b", "c")}
        acme = {"tenant": "acme"}
        equal(found, {"a": acme, "b": {**acme, "user": "u"}, "c": acme}, "the labels")

    # Idempotency keys

    @state_case
    async def test_a_key_starts_once(self, store: StateStore, place: Place) -> None:
        """The same request finds the first thread; another request is refused."""
        registry = store.registry
        key = IdempotencyKey.of("order-1", _ITEM, {"n": 1})
        await registry.register("a", _ITEM, start=key)
        found = await raises(AlreadyStarted, registry.register("b", _ITEM, start=key))
        equal(found.facts["thread_id"], "a", "the thread of the first start")
        await raises(AlreadyStarted, registry.check_start(key, None))
        other = IdempotencyKey.of("order-1", _ITEM, {"n": 2})
        await raises(InputError, registry.register("b", _ITEM, start=other))
        await raises(ThreadNotFound, registry.get_thread("b"))
        fence = await registry.claim("a")
        await _end(store, "a", "completed", {}, fence=fence)
        await raises(AlreadyStarted, registry.check_start(key, None))

    @state_case
    async def test_a_key_has_a_scope(self, store: StateStore, place: Place) -> None:
        """One key of two parents, or of callers with other capabilities, is two keys."""
        registry = store.registry
        for name in ("p", "q"):
            await registry.register(name, _ITEM)
        key = IdempotencyKey.of("k", _ITEM, {})
        less = IdempotencyKey.of("k", _ITEM, {}, capabilities=["x"])
        for name, parent, one in (("1", None, key), ("2", "p", key), ("3", "q", key)):
            await registry.register(name, _ITEM, parent, start=one)
        await registry.register("4", _ITEM, start=less)
        found = await raises(AlreadyStarted, registry.check_start(key, "p"))
        equal(found.facts["thread_id"], "2", "the thread of the parent's key")

    @state_case
    async def test_a_start_that_never_began_frees_its_key(
        self, store: StateStore, place: Place
    ) -> None:
        """A freed key, and one of a thread that nobody claimed before its end, starts anew."""
        registry = store.registry
        key = IdempotencyKey.of("k", _ITEM, {})
        await registry.register("a", _ITEM, start=key)
        await registry.free_start_key("a")
        await registry.register("b", _ITEM, start=key)
        await _end(store, "b", "error", {})
        await registry.register("c", _ITEM, start=key, owner=dead_process())
        await registry.register("d", _ITEM, start=key)
        equal((await registry.get_thread("c")).status, "error", "the dead start")
        found = await raises(AlreadyStarted, registry.check_start(key, None))
        equal(found.facts["thread_id"], "d", "the thread of the key")

    # Durability

    @state_case
    async def test_another_opening_sees_every_write(self, store: StateStore, place: Place) -> None:
        """What one opening has written, another one of the same place reads at once."""
        await store.registry.register("a", _ITEM)
        async with place.open() as other:
            equal((await other.registry.get_thread("a")).status, "created", "the status")
            await other.registry.claim("a")
        equal((await store.registry.get_thread("a")).status, "running", "the status")
        await store.registry.synced()


async def _end(
    store: StateStore,
    thread_id: str,
    status: Status,
    result: object,
    *,
    fence: int | None = None,
) -> None:
    await store.registry.settle(thread_id, status, result, fence=fence)
