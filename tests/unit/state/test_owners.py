"""Whether a thread's owner lives: neither a set clock nor another namespace makes it dead."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from attrs import evolve

from ryecore.errors import ProcessError
from ryecore.lillux.processes import current_process, kill_process, process_status
from ryecore.state.database import Database
from ryecore.state.model import ThreadRecord
from ryecore.state.owners import LEASE_S, Moment, is_abandoned, moment
from ryecore.state.schema import MIGRATIONS
from ryecore.state.sql_registry import SqlRegistry
from ryecore.state.waiting import run_blocking

HOURS = 3600.0


@pytest.fixture
def registry(tmp_path: Path) -> SqlRegistry:
    return SqlRegistry(Database(tmp_path / "threads.db", MIGRATIONS))


def claimed(registry: SqlRegistry, **owner: object) -> ThreadRecord:
    run_blocking(registry.register("a", "tool:x"))
    run_blocking(registry.claim("a", evolve(current_process(), **owner)))  # type: ignore[arg-type]
    return run_blocking(registry.get_thread("a"))


def unshared(*namespaces: str) -> list[str]:
    """A command that runs another one in new namespaces; skips where none may be made."""
    command = ["unshare", *namespaces]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*command, "true"], check=False).returncode
    ):
        pytest.skip("this machine makes no such namespaces for us")
    return command


def seen_from(folder: Path, *command: str) -> dict[str, object]:
    """What another process, started by a command, sees of the thread."""
    script = (
        "import json, sys\n"
        "from pathlib import Path\n"
        "from ryecore.state.owners import is_abandoned, moment\n"
        "from ryecore.state.database import Database\n"
        "from ryecore.state.sql_registry import SqlRegistry\n"
        "from ryecore.state.schema import MIGRATIONS\n"
        "from ryecore.state.waiting import run_blocking\n"
        "registry = SqlRegistry(Database(Path(sys.argv[1]) / 'threads.db', MIGRATIONS))\n"
        "found = run_blocking(registry.list_active())\n"
        "settled = bool(run_blocking(registry.settle_abandoned(found)))\n"
        "print(json.dumps([settled, moment().machine_s]))\n"
    )
    done = subprocess.run(
        [*command, sys.executable, "-c", script, str(folder)],
        check=True,
        capture_output=True,
        text=True,
    )
    settled, machine_s = json.loads(done.stdout)
    return {"settled": settled, "machine_s": machine_s}


@pytest.mark.parametrize("jump_s", [2 * HOURS, -2 * HOURS])
@pytest.mark.parametrize("where", [{"pid_namespace": 1}, {"time_namespace": 1}])
def test_an_owner_that_cannot_be_seen_lives_though_the_time_of_day_jumps(
    registry: SqlRegistry, jump_s: float, where: dict[str, object]
) -> None:
    record, now = claimed(registry, **where), moment()
    jumped = Moment(now.unix_s + jump_s, now.machine_s)
    assert not is_abandoned(record, jumped)
    later = Moment(now.unix_s + jump_s, now.machine_s + LEASE_S + 1)
    assert is_abandoned(record, later)


def test_an_owner_of_an_earlier_boot_is_dead_though_the_clock_went_back(
    registry: SqlRegistry,
) -> None:
    record, now = claimed(registry, boot_id="an earlier one"), moment()
    assert not is_abandoned(record, now)
    assert is_abandoned(record, now.plus(LEASE_S + 1))
    assert is_abandoned(record, now.plus(-2 * HOURS))


def test_the_first_process_of_a_container_is_looked_at(registry: SqlRegistry) -> None:
    ticks = int(Path("/proc/1/stat").read_text().rsplit(")", 1)[1].split()[19])
    record = claimed(registry, pid=1, start_ticks=ticks)
    assert not is_abandoned(record, moment().plus(2 * HOURS))
    other = evolve(record, owner=evolve(current_process(), pid=1, start_ticks=ticks + 1))
    assert is_abandoned(other, moment())


def test_a_zombie_is_dead(registry: SqlRegistry) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    try:
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        ticks = int(Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[19])
        assert is_abandoned(claimed(registry, pid=child, start_ticks=ticks))
    finally:
        os.waitpid(child, 0)


@pytest.mark.parametrize(
    "namespaces",
    [
        ["--time", "--fork", "--boottime", "7200", "--monotonic", "7200"],
        ["--pid", "--fork", "--mount-proc"],
        ["--pid", "--fork", "--mount-proc", "--time", "--monotonic", "90000"],
    ],
    ids=["time", "pid", "both"],
)
def test_a_living_owner_is_left_alone_by_who_looks_from_another_namespace(
    tmp_path: Path, registry: SqlRegistry, namespaces: list[str]
) -> None:
    command = unshared(*namespaces)
    claimed(registry)
    before = moment().machine_s
    seen = seen_from(tmp_path, *command)
    assert not seen["settled"]
    assert before <= float(str(seen["machine_s"])) <= moment().machine_s, "one clock for all"
    assert run_blocking(registry.get_thread("a")).status == "running"


def test_a_process_of_another_time_namespace_is_not_taken_for_dead() -> None:
    elsewhere = evolve(current_process(), time_namespace=1, start_ticks=1)
    for act in (process_status, kill_process):
        with pytest.raises(ProcessError, match="another time namespace"):
            act(elsewhere)
