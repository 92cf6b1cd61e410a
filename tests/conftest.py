"""What every test may use."""

import gc
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.forking import SERVERS, forking_python, share
from tests.loops import choose_loops, spare_loops
from tests.matrix import IS_SOAK
from tests.postgres import serving_postgres
from tests.rays import ServedRay, serving_ray
from tests.s3 import serving_s3
from tests.sharing import begin_with_servers
from tests.small_disk import mount_small_disk
from tests.workspace import Workspace

# Who starts the tests in the background has signals ignored, and children would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGQUIT, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)

# How long an example takes, or is looked for, is the machine's affair, and no verdict.
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ordinary", untimed, max_examples=20)
settings.register_profile("soak", untimed, max_examples=500)
settings.load_profile("soak" if IS_SOAK else "ordinary")

# What is collected stays until the end: nothing of it is garbage that is worth looking for.
gc.disable()

RAY = pytest.StashKey[tuple[ServedRay, ExitStack]]()

MEMORY = "/dev/shm"
ROOM_BYTES = 4 * 2**30


def has_memory_for_files() -> bool:
    """Whether temporary folders can be in memory, and programs be run from there."""
    try:
        found = os.statvfs(MEMORY)
    except OSError:
        return False
    has_room = found.f_bavail * found.f_frsize >= ROOM_BYTES
    return has_room and not found.f_flag & os.ST_NOEXEC and os.access(MEMORY, os.W_OK)


# Tests make, sync and remove many small files; on a disk, half of their time would go into that.
# The soak runs on the disk, and so does what is given another folder here.
if not IS_SOAK and has_memory_for_files():
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)


def pytest_configure(config: pytest.Config) -> None:
    """Have the workers of a test run share the servers that fork, which end with their parent."""
    if hasattr(config, "workerinput"):
        share(os.getppid())


def pytest_collection_finish() -> None:
    """From here on collecting garbage passes over what was there before the first test."""
    gc.freeze()
    gc.enable()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Choose the event loops of each async test."""
    choose_loops(metafunc)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what `spare_loops` finds, and have each server started by one worker."""
    spare = set(spare_loops(items))
    if spare:
        config.hook.pytest_deselected(items=[one for one in items if one in spare])
        items[:] = [one for one in items if one not in spare]
    if workers := getattr(config, "workerinput", {}).get("workercount"):
        items[:] = begin_with_servers(items, workers)


@pytest.fixture
def anyio_backend() -> str:
    """The event loop of a test, where `choose_loops` has chosen none."""
    return "asyncio"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A temporary project and user space with a key."""
    return Workspace(tmp_path)


@pytest.fixture
def forked_walkers(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fork the processes that walk graphs or are launched, with their modules imported.

    Tests of the processes themselves have fresh ones: they are marked `fresh_processes`.
    """
    if request.node.get_closest_marker("fresh_processes"):
        return
    program = forking_python(tmp_path_factory.mktemp("forking"))
    monkeypatch.setattr(sys, "executable", program)


@pytest.fixture(scope="session")
def forking_interpreter(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter that forks MCP connectors, walkers and what is launched.

    The SDK of MCP is imported there already.
    """
    return forking_python(tmp_path_factory.mktemp("interpreter"), "-EP|-PXutf8", SERVERS)


@pytest.fixture
def forked_connectors(
    request: pytest.FixtureRequest, forking_interpreter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fork the connectors of a test, and what `forked_walkers` forks: what they answer is the same.

    Tests of how their processes start and end have fresh ones: they are marked
    `fresh_processes`, where their module uses this fixture.
    """
    if request.node.get_closest_marker("fresh_processes"):
        return
    monkeypatch.setattr(sys, "executable", forking_interpreter)


@pytest.fixture
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB, where one may be mounted.

    A test that needs more room is parametrized with its size, indirectly.
    """
    with mount_small_disk(tmp_path / "disk", getattr(request, "param", "64k")) as disk:
        yield disk


@pytest.fixture(scope="session")
def postgres_address() -> Iterator[str]:
    """The address of a PostgreSQL server, which runs until the last test of this process."""
    with serving_postgres() as address:
        yield address


@pytest.fixture
def ray_cluster(request: pytest.FixtureRequest) -> ServedRay:
    """A Ray cluster, which runs as long as tests that use it follow one another."""
    stash = request.session.stash
    if RAY not in stash:
        running = ExitStack()
        stash[RAY] = running.enter_context(serving_ray()), running
    return stash[RAY][0]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the Ray cluster where the next test uses none: other tests count threads and files."""
    stash = item.session.stash
    if RAY in stash and "ray_cluster" not in getattr(nextitem, "fixturenames", ()):
        stash[RAY][1].close()
        del stash[RAY]


@pytest.fixture(scope="session")
def s3_environ() -> Iterator[Mapping[str, str]]:
    """The variables by which programs find a server's bucket, which runs until the last test."""
    with serving_s3() as environ:
        yield environ
