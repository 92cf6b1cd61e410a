"""A list that is cut says how many more there are, and how to see them."""

import pytest

from ryecore.state.store import ThreadStore
from ryecore.state.waiting import run_blocking
from tests.unit.cli.conftest import Run
from tests.workspace import Workspace


@pytest.fixture
def many(workspace: Workspace) -> Workspace:
    """53 threads that have ended, and 52 runs of a graph of which two have not."""
    store = ThreadStore.open(workspace.path(""), workspace.path("", "user"))
    for number in range(53):
        run_blocking(store.registry.register(f"acme/x/x-{number}", "directive:acme/x"))
        run_blocking(store.registry.settle(f"acme/x/x-{number}", "completed", {}))
    for number in range(52):
        run_blocking(store.registry.register(f"acme/flow/flow-{number}", "tool:acme/flow"))
        if number > 1:
            run_blocking(store.registry.settle(f"acme/flow/flow-{number}", "completed", {}))
    store.close()
    return workspace


@pytest.mark.parametrize(
    ("asked", "key", "total"),
    [
        (["threads", "list", "--all"], "threads", 105),
        (["threads", "list", "--all", "--limit", "20"], "threads", 105),
        (["threads", "list", "--limit", "1"], "threads", 2),
        (["graph", "list"], "runs", 52),
        (["graph", "list", "--running", "--limit", "1"], "runs", 2),
    ],
)
def test_following_what_a_list_says_shows_all(
    many: Workspace, run: Run, asked: list[str], key: str, total: int
) -> None:
    seen: list[str] = []
    command = asked
    for _ in range(10):
        page = run(*command, "--json").json
        assert page["total"] == total
        seen += [one["thread_id"] for one in page[key]]
        text = run(*command).out
        if len(seen) == total:
            assert " more" not in text
            break
        said = text.splitlines()[-1]
        assert f"{total - len(seen)} more of {total}" in said
        command = said.partition("rye ")[2].split()
    assert len(set(seen)) == total


def test_the_library_says_how_many_there_are(many: Workspace) -> None:
    with many.sync() as rye:
        for listed, total in (
            (rye.threads.list(all=True), 105),
            (rye.threads.list(), 2),
            (rye.graphs.list(), 52),
            (rye.graphs.list(running=True, limit=1, offset=1), 2),
        ):
            assert listed.total == total
        assert len(rye.graphs.list(offset=50)) == 2
