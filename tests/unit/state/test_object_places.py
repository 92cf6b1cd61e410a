"""Large results of threads where all machines read them, and the addresses that say where."""

from pathlib import Path

import pytest

from ryecore.actions.settings import Settings, check_objects
from ryecore.errors import ConfigError, RyeError, StoreError
from ryecore.state.folder_objects import FolderObjects
from ryecore.state.object_places import ObjectPlace
from ryecore.state.pruning import Retention
from ryecore.state.store import ThreadStore
from ryecore.state.waiting import run_blocking
from tests.thread_host import PlannedWorkspace
from tests.workspace import Workspace

PASSWORD = "p4ss-0f-Nobody"
STATE = f"postgresql://ada:{PASSWORD}@db.example.com/agents"
pytestmark = pytest.mark.anyio


def machine(root: Path, name: str) -> ThreadStore:
    """The threads of a project on one of several machines that share a folder."""
    place = ObjectPlace(str(root / "shared"))
    return ThreadStore.open(root / name / "project/.ai", root / name / "user/.ai", objects=place)


def test_a_result_is_read_on_another_machine_by_its_own_thread(tmp_path: Path) -> None:
    here, there = machine(tmp_path, "here"), machine(tmp_path, "there")

    kept = here.put_artifact("t-1", b"a large result")

    assert there.get_artifact("t-1", kept) == b"a large result"
    for thread_id in ("t-2", "t-1/child"):
        with pytest.raises(StoreError, match="No result has this handle"):
            there.get_artifact(thread_id, kept)
    assert not list((tmp_path / "here/project").rglob("artifacts"))


def test_results_go_with_the_thread_that_is_pruned(tmp_path: Path) -> None:
    store = machine(tmp_path, "here")
    for thread_id in ("t-1", "t-2"):
        run_blocking(store.registry.register(thread_id, "directive:acme/x"))
        store.put_artifact(thread_id, b"a large result")
        values = store.objects(thread_id)
        values.put(b"a large value")
        run_blocking(values.stored())
    run_blocking(store.registry.settle("t-1", "completed", {"data": 1}))

    plan = run_blocking(store.pruning.plan(Retention(-60)))
    assert [run_blocking(store.pruning.prune(one)) for one in plan.families] == [True]

    shared = FolderObjects(tmp_path / "shared")
    for of in ("threads", "graphs"):
        left = {one: len([*shared.below(f"{of}/{one}").list()]) for one in ("t-1", "t-2")}
        assert left == {"t-1": 0, "t-2": 1}


def test_values_of_a_graph_are_sent_before_they_are_named(tmp_path: Path) -> None:
    here, there = machine(tmp_path, "here"), machine(tmp_path, "there")
    values = here.objects("run-1")
    name = values.put(b"a value")
    assert values.get(name) == b"a value"
    with pytest.raises(StoreError, match=name):
        there.objects("run-1").get(name)

    run_blocking(values.stored())

    assert there.objects("run-1").get(name) == b"a value"
    with pytest.raises(StoreError):
        there.objects("run-2").get(name)
    local = ThreadStore.open(tmp_path / "here/project/.ai", tmp_path / "here/user/.ai")
    earlier = local.objects("run-0").put(b"before objects were shared")
    assert here.objects("run-0").get(earlier) == b"before objects were shared"


async def test_a_thread_keeps_a_large_result_there(workspace: Workspace, tmp_path: Path) -> None:
    planned = PlannedWorkspace(workspace)
    planned.write("work", ["mark", {"text": "long " * 1000}])
    async with planned.open(objects=str(tmp_path / "shared")) as rye:
        done = (await rye.execute("directive:acme/work", thread="fork")).to_dict()

    space = FolderObjects(tmp_path / "shared").below(f"threads/{done['thread_id']}")
    (kept,) = [one.sha256 for one in space.list()]
    assert space.get(kept).decode() == "marked " + "long " * 1000
    assert not list(workspace.project.rglob("artifacts"))


@pytest.mark.parametrize(
    ("given", "variable", "state", "found"),
    [
        (None, None, None, None),
        (None, None, STATE, STATE),
        (None, "folder", STATE, None),
        (None, "/srv/objects", None, "/srv/objects"),
        ("folder", "/srv/objects", STATE, None),
        ("/srv/mine", "/srv/objects", STATE, "/srv/mine"),
        (STATE, None, None, STATE),
    ],
)
def test_where_objects_are(
    given: str | None, variable: str | None, state: str | None, found: str | None
) -> None:
    environ = {} if variable is None else {"RYE_OBJECTS": variable}
    assert check_objects(given, state, environ) == found


@pytest.mark.parametrize(
    "address", ["objects", "./objects", f"mysql://ada:{PASSWORD}@host/x", STATE + "?schema=A B"]
)
def test_an_address_that_cant_be_used_is_not_repeated(address: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_objects(address, None, {})

    assert PASSWORD not in f"{refused.value!s} {refused.value!r}"
    assert "postgresql://USER@HOST" in refused.value.next_step


def test_another_process_uses_the_same_place() -> None:
    for given in (None, "/srv/mine"):
        settings = Settings(
            "/p", "/u", (), "safe", (), False, {}, "/c", "process", None, state=STATE, objects=given
        )
        options = settings.to_options()
        environ = {"RYE_OBJECTS": "/srv/others"}
        assert check_objects(options["objects"], options["state"], environ) == given
        assert "/srv" not in repr(settings)


def test_a_place_that_cant_be_written_says_what_to_do(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = ThreadStore.open(
        workspace.path(""),
        workspace.path("", "user"),
        objects=ObjectPlace(str(tmp_path / "file/objects")),
    )
    with pytest.raises(RyeError) as failed:
        store.put_artifact("t-1", b"x")
    assert failed.value.next_step
