"""The thread registry: all its operations, and what it refuses."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ryecore.errors import InputError, StateError, ThreadConflict, ThreadNotFound
from ryecore.lillux import ProcessId, current_process
from ryecore.state.database import Database
from ryecore.state.model import TERMINAL, Cost, Predecessor, ThreadRecord
from ryecore.state.owners import LEASE_S, Moment, is_abandoned, moment
from ryecore.state.registry import MIGRATIONS, ThreadRegistry


def registry_in(folder: Path) -> ThreadRegistry:
    return ThreadRegistry(Database(folder / "threads.db", MIGRATIONS))


@pytest.fixture
def registry(tmp_path: Path) -> ThreadRegistry:
    return registry_in(tmp_path)


def dead_process() -> ProcessId:
    """A process of this machine that has ended."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return evolve(current_process(), pid=child, start_ticks=1)


def test_a_registered_thread_is_created_and_owned(registry: ThreadRegistry) -> None:
    record = registry.register("acme/x/x-1", "directive:acme/x", model="fake/model")
    assert record == registry.get_thread("acme/x/x-1")
    assert (record.status, record.item_id, record.model) == (
        "created", "directive:acme/x", "fake/model",
    )  # fmt: skip
    assert record.owner == current_process()
    assert record.completed_at is None
    assert record.created_at.endswith("Z")
    assert not record.ended


def test_an_id_is_taken_once(registry: ThreadRegistry) -> None:
    registry.register("a", "tool:x")
    with pytest.raises(StateError, match="a thread a already"):
        registry.register("a", "tool:y")
    assert registry.get_thread("a").item_id == "tool:x"


def test_a_parent_must_exist(registry: ThreadRegistry) -> None:
    with pytest.raises(ThreadNotFound):
        registry.register("child", "tool:x", "parent")
    assert registry.list_threads() == ()  # nothing of it was written
    registry.register("parent", "tool:x")
    registry.register("one", "tool:x", "parent")
    registry.register("two", "tool:x", "parent")
    assert registry.get_thread("parent").spawn_count == 0  # that is `count_spawn`'s
    assert [one.thread_id for one in registry.list_children("parent")] == ["one", "two"]


def test_a_thread_is_claimed_once(registry: ThreadRegistry) -> None:
    registry.register("a", "tool:x", owner=dead_process())
    fence = registry.claim("a", owns_process=True)
    record = registry.get_thread("a")
    assert (record.status, record.fence, record.owner) == ("running", fence, current_process())
    assert record.owns_process
    with pytest.raises(ThreadConflict, match="is running and can't be started") as caught:
        registry.claim("a")
    assert (caught.value.thread_id, caught.value.state) == ("a", "running")


def test_what_an_earlier_owner_writes_is_refused(registry: ThreadRegistry) -> None:
    registry.register("a", "tool:x")
    fence = registry.claim("a")
    writes: list[Callable[[int], object]] = [
        lambda stale: registry.renew("a", stale),
        lambda stale: registry.settle("a", "completed", None, fence=stale),
        lambda stale: registry.update_status("a", "completed", fence=stale),
        lambda stale: registry.update_cost_snapshot("a", Cost(turns=1), fence=stale),
    ]
    for write in writes:
        with pytest.raises(StateError, match="taken the thread a over"):
            write(fence - 1)
    assert registry.get_thread("a").status == "running"
    registry.renew("a", fence)
    registry.settle("a", "completed", {"x": 1}, fence=fence)


def test_status_and_result_come_together(registry: ThreadRegistry) -> None:
    registry.register("a", "tool:x")
    assert registry.get_result("a") is None
    registry.settle("a", "completed", {"text": "ü \ud83d\ude00 \x00", "list": [1, None]})
    record = registry.get_thread("a")
    assert (record.status, record.ended, record.owner) == ("completed", True, None)
    assert record.completed_at is not None
    assert registry.get_result("a") == {"text": "ü 😀 \x00", "list": [1, None]}
    with pytest.raises(ThreadConflict, match="is completed and can't become error"):
        registry.settle("a", "error", {"other": 1})
    assert registry.get_result("a") == {"text": "ü 😀 \x00", "list": [1, None]}


def test_a_result_can_be_set_after_the_end(registry: ThreadRegistry) -> None:
    # Status first, result second.
    registry.register("a", "tool:x")
    registry.update_status("a", "completed")
    registry.set_result("a", {"cost": 1})
    assert registry.get_result("a") == {"cost": 1}


@pytest.mark.parametrize("status", sorted(TERMINAL))
def test_no_status_is_left_once_it_ended(registry: ThreadRegistry, status: str) -> None:
    registry.register("a", "tool:x")
    registry.update_status("a", status)
    registry.update_status("a", status)  # saying it again is no error
    for other in ("running", *TERMINAL - {status}):
        with pytest.raises(ThreadConflict):
            registry.update_status("a", other)
    with pytest.raises(ThreadConflict):
        registry.claim("a")
    assert registry.get_thread("a").status == status


def test_an_unknown_status_is_refused(registry: ThreadRegistry) -> None:
    registry.register("a", "tool:x")
    with pytest.raises(InputError, match=r"'done' is no status; there are .*completed"):
        registry.update_status("a", "done")


def test_costs_are_integers(registry: ThreadRegistry) -> None:
    registry.register("a", "tool:x")
    cost = Cost(turns=3, input_tokens=10**12, output_tokens=7, spend_microcents=123_456_789)
    registry.update_cost_snapshot("a", cost)
    record = registry.get_thread("a")
    assert record.cost == cost
    shown = record.to_dict()
    assert (shown["turns"], shown["spend"]) == (3, 1.23456789)


def test_the_pid_can_be_told_until_somebody_claims(registry: ThreadRegistry) -> None:
    registry.register("a", "tool:x")
    other = evolve(current_process(), pid=4_000_000)
    registry.update_pid("a", other)
    assert registry.get_thread("a").pid == 4_000_000
    registry.claim("a")
    registry.update_pid("a", other)
    assert registry.get_thread("a").pid == os.getpid()


def test_lists(registry: ThreadRegistry) -> None:
    for number in range(5):
        registry.register(f"t-{number}", "tool:x")
    registry.update_status("t-1", "completed")
    registry.update_status("t-3", "killed")
    assert [one.thread_id for one in registry.list_active()] == ["t-0", "t-2", "t-4"]
    assert [one.thread_id for one in registry.list_threads(limit=2)] == ["t-4", "t-3"]
    assert [one.thread_id for one in registry.list_threads(limit=9, offset=3)] == ["t-1", "t-0"]
    assert [one.thread_id for one in registry.find_by_prefix("t-")] == [
        f"t-{number}" for number in range(5)
    ]
    assert registry.find_by_prefix("%") == ()


@pytest.mark.parametrize("name", ["missing", "", "' OR 1=1 --"])
def test_a_thread_that_never_existed(registry: ThreadRegistry, name: str) -> None:
    registry.register("a", "tool:x")
    calls: list[Callable[[], object]] = [
        lambda: registry.get_thread(name),
        lambda: registry.get_result(name),
        lambda: registry.get_chain(name),
        lambda: registry.set_result(name, 1),
        lambda: registry.update_status(name, "error"),
        lambda: registry.request_cancel(name),
        lambda: registry.set_continuation("a", name),
        lambda: registry.set_chain_info(name, "a", "a"),
    ]
    for call in calls:
        with pytest.raises(ThreadNotFound, match="rye threads list"):
            call()
    assert registry.get_thread("a").status == "created"


def test_a_chain_of_continuations(registry: ThreadRegistry) -> None:
    for name in ("first", "second", "third"):
        registry.register(name, "directive:x")
    for before, after in (("first", "second"), ("second", "third")):
        registry.set_continuation(before, after)
        registry.set_chain_info(after, "first", before)
    for name in ("first", "second", "third"):
        chain = registry.get_chain(name)
        assert [one.thread_id for one in chain] == ["first", "second", "third"]
        assert [one.status for one in chain] == ["continued", "continued", "created"]
    assert registry.get_thread("third").chain_root_id == "first"
    registry.update_status("third", "completed")
    with pytest.raises(ThreadConflict):
        registry.set_continuation("third", "first")


def test_a_chain_that_bites_its_tail_ends(registry: ThreadRegistry) -> None:
    registry.register("a", "directive:x")
    registry.register("b", "directive:x")
    registry.set_continuation("a", "b")
    registry.set_continuation("b", "a")
    registry.set_chain_info("a", "a", "b")
    registry.set_chain_info("b", "a", "a")
    assert {one.thread_id for one in registry.get_chain("a")} == {"a", "b"}


def test_the_wish_to_stop_stands_until_the_end(registry: ThreadRegistry) -> None:
    registry.register("a", "tool:x")
    assert registry.request_cancel("a").cancel_requested
    assert registry.request_cancel("a", kill=True).kill_requested
    registry.register("b", "tool:x")
    registry.update_status("b", "completed")
    assert not registry.request_cancel("b").cancel_requested


def test_who_is_dead_leaves_no_row_running(registry: ThreadRegistry) -> None:
    registry.register("running", "tool:x")
    registry.claim("running", dead_process())
    registry.register("killed", "tool:x")
    registry.claim("killed", dead_process())
    registry.request_cancel("killed", kill=True)
    registry.register("never began", "tool:x", owner=dead_process())
    registry.register("alive", "tool:x")
    registry.claim("alive")
    assert set(registry.settle_abandoned(registry.list_active())) == {
        "running", "killed", "never began",
    }  # fmt: skip
    assert [one.thread_id for one in registry.list_active()] == ["alive"]
    assert registry.get_thread("running").status == "error"
    assert registry.get_thread("killed").status == "killed"
    assert "ended without recording a result" in json.dumps(registry.get_result("running"))
    assert "before it began" in json.dumps(registry.get_result("never began"))
    assert registry.settle_abandoned(registry.list_active()) == ()


def test_whom_a_dead_thread_has_started_is_asked_to_stop(registry: ThreadRegistry) -> None:
    registry.register("boss", "directive:x", owner=dead_process())
    registry.register("worker", "directive:x", "boss")
    registry.register("below", "directive:x", "worker")
    registry.register("other", "directive:x")
    assert registry.settle_abandoned(registry.list_active()) == ("boss",)
    asked = {one.thread_id for one in registry.list_active() if one.cancel_requested}
    assert asked == {"worker", "below"}


def test_a_continuation_is_one_from_its_first_line_on(registry: ThreadRegistry) -> None:
    registry.register("first", "directive:x")
    row = registry.register("second", "directive:x", follows=Predecessor("first", "first"))
    assert (row.chain_root_id, row.continuation_of) == ("first", "first")


def test_where_one_alone_may_go_on_a_second_one_is_refused(registry: ThreadRegistry) -> None:
    registry.register("first", "tool:x")
    alone = Predecessor("first", "first", frozenset())
    registry.register("second", "tool:x", follows=alone)
    with pytest.raises(ThreadConflict, match="second") as refused:
        registry.register("third", "tool:x", follows=alone)
    assert (refused.value.thread_id, refused.value.state) == ("second", "created")
    registry.register(
        "third", "tool:x", follows=Predecessor("first", "first", frozenset({"second"}))
    )
    registry.register("fourth", "tool:x", follows=Predecessor("first", None))
    assert [one.thread_id for one in registry.list_following("first")] == [
        "second", "third", "fourth",
    ]  # fmt: skip


def test_who_claims_meanwhile_is_not_declared_dead(registry: ThreadRegistry) -> None:
    registry.register("a", "tool:x", owner=dead_process())
    seen = registry.list_active()
    registry.claim("a")
    assert registry.settle_abandoned(seen) == ()
    assert registry.get_thread("a").status == "running"


def test_a_stranger_is_dead_only_when_its_lease_is_over(registry: ThreadRegistry) -> None:
    stranger = evolve(current_process(), boot_id="another boot", pid=1)
    registry.register("a", "tool:x")
    registry.claim("a", stranger)
    record = registry.get_thread("a")
    now = moment()
    assert LEASE_S - 5 < record.lease_until - now.unix_s <= LEASE_S
    end = Moment(record.lease_until, record.lease_machine_s)
    assert not is_abandoned(record, end.plus(-1))
    assert is_abandoned(record, end.plus(1))
    registry.renew("a", record.fence)
    assert registry.get_thread("a").lease_until >= record.lease_until


def test_who_renews_meanwhile_is_not_declared_dead(tmp_path: Path) -> None:
    database = Database(tmp_path / "threads.db", MIGRATIONS)
    registry = ThreadRegistry(database)
    registry.register("a", "tool:x")
    fence = registry.claim("a", evolve(current_process(), boot_id="another boot", pid=1))
    with database.write() as run:
        run.execute("UPDATE threads SET lease_until = 0")
    seen = registry.list_active()
    registry.renew("a", fence)
    assert registry.settle_abandoned(seen) == ()
    with database.write() as run:
        run.execute("UPDATE threads SET lease_until = 0")
    assert registry.settle_abandoned(registry.list_active()) == ("a",)


def test_an_id_is_found_though_many_others_begin_with_it(registry: ThreadRegistry) -> None:
    for number in range(12):
        registry.register(f"x-{number}", "tool:x")
    registry.register("x", "tool:x")
    assert registry.find_by_prefix("x")[0].thread_id == "x"


def test_a_living_owner_needs_no_lease(registry: ThreadRegistry) -> None:
    registry.register("a", "tool:x")
    registry.claim("a")
    assert not is_abandoned(registry.get_thread("a"), moment().plus(10 * LEASE_S))


OPERATIONS = st.lists(
    st.sampled_from(["claim", "cancel", "kill", "settle", "cost", *sorted(TERMINAL), "running"]),
    max_size=12,
)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(OPERATIONS)
def test_whatever_happens_an_end_is_the_end(
    tmp_path_factory: pytest.TempPathFactory, operations: list[str]
) -> None:
    registry = registry_in(tmp_path_factory.mktemp("registry"))
    record: ThreadRecord = registry.register("a", "tool:x")
    ends: dict[str, Callable[[], object]] = {
        "claim": lambda: registry.claim("a"),
        "cancel": lambda: registry.request_cancel("a"),
        "kill": lambda: registry.request_cancel("a", kill=True),
        "settle": lambda: registry.settle("a", "completed", operations),
        "cost": lambda: registry.update_cost_snapshot("a", Cost(turns=1)),
    }
    for operation in operations:
        before = record
        call = ends.get(operation, lambda status=operation: registry.update_status("a", status))
        try:
            call()
        except ThreadConflict:
            assert registry.get_thread("a") == before
        record = registry.get_thread("a")
        assert record.fence >= before.fence
        if before.ended:
            assert (record.status, record.completed_at) == (before.status, before.completed_at)
        assert record.ended == (record.completed_at is not None)
