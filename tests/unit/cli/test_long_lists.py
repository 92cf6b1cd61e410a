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


@pytest.mark.parametrize("options", [["--all", "--limit", "20"], ["--limit", "1"]])
def test_pages_after_a_thread_show_each_once_though_others_start(
    many: Workspace, run: Run, options: list[str]
) -> None:
    seen: list[str] = []
    after: list[str] = []
    store = ThreadStore.open(many.path(""), many.path("", "user"))
    while True:
        page = run("threads", "list", *options, *after, "--json").json
        seen += [one["thread_id"] for one in page["threads"]]
        if page["next_after"] is None:
            break
        after = ["--after", page["next_after"]]
        if "--all" in options:  # it is the newest, so it would shift pages by their numbers
            name = f"acme/late/late-{len(seen)}"
            run_blocking(store.registry.register(name, "directive:acme/late"))
            run_blocking(store.registry.settle(name, "completed", {}))
    store.close()
    assert len(seen) == len(set(seen)) == (105 if "--all" in options else 2)


def test_a_cut_list_says_so_and_a_page_has_its_bound(many: Workspace, run: Run) -> None:
    with many.sync() as rye:
        page = rye.threads.list(all=True, limit=100)
        assert page.is_cut
        assert page.next_after == page[-1].thread_id
        rest = rye.threads.list(all=True, limit=100, after=page.next_after)
        assert (len(rest), rest.is_cut, rest.next_after, rest.total) == (5, False, None, 105)
    text = run("threads", "list", "--all", "--limit", "20", "--after", page[0].thread_id).out
    command = text.splitlines()[-1].partition("rye ")[2].split()
    assert command[-2:] == ["--after", page[20].thread_id]
    assert run(*command).code == 0
    refused = run("threads", "list", "--all", "--limit", "5000")
    assert refused.code == 2
    assert "a page has at most 1,000" in refused.err
    assert run("threads", "list", "--after", "acme/none/none-1").code == 2
