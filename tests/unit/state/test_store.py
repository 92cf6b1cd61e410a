"""The threads of a project: what happens to one from two sides at once."""

from contextlib import suppress
from threading import Barrier, Thread

import pytest

from ryecore.errors import ThreadConflict
from ryecore.state.store import ThreadStore
from tests.house import House


def claim(store: ThreadStore, thread_id: str, both: Barrier, claimed: list[int]) -> None:
    both.wait()
    with suppress(ThreadConflict):
        claimed.append(store.registry.claim(thread_id))


@pytest.mark.parametrize("kill", [False, True])
def test_who_stops_and_who_claims_at_once_never_collide(house: House, kill: bool) -> None:
    one, other = (ThreadStore.open(house.path(""), house.path("", "user")) for _ in range(2))
    for number in range(60):
        thread_id = f"t-{number}"
        one.make_folder(thread_id)
        one.registry.register(thread_id, "tool:x")
        both = Barrier(2)
        claimed: list[int] = []
        claiming = Thread(target=claim, args=(other, thread_id, both, claimed))
        claiming.start()
        both.wait()
        one.kill(thread_id, grace_s=0) if kill else one.cancel(thread_id)
        claiming.join()
        record = one.look(thread_id)
        assert record.status == ("running" if claimed else "killed" if kill else "cancelled")
        assert record.kill_requested if kill else record.cancel_requested
    one.close()
    other.close()
