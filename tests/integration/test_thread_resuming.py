"""A thread that died is resumed once, however many processes try it at the same time."""

import signal
import subprocess
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from ryecore.errors import ThreadConflict
from ryecore.state.model import Predecessor
from tests.thread_host import PlannedWorkspace
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio
PATIENCE_S = 60.0


@pytest.fixture
def anyio_backend() -> str:
    """The processes' loops are their own."""
    return "asyncio"


async def killed(planned: PlannedWorkspace) -> str:
    """A thread whose process was killed while a tool ran; behind it, it leaves a mark."""
    ref = planned.write(
        "work",
        ["gate", {"name": "g"}],
        ["mark", {"text": "done"}],
        permissions="<execute><tool>host/*</tool></execute>",
    )
    host = planned.host([ref])
    with anyio.fail_after(PATIENCE_S):
        await planned.begun("g")
    host.send_signal(signal.SIGKILL)
    host.wait()
    planned.allow("g")
    (row,) = await planned.store().look_at_all(lambda registry: registry.list_threads())
    assert row.status == "error"
    return row.thread_id


def marks(planned: PlannedWorkspace) -> list[str]:
    return (planned.root / "marks").read_text().split()


async def test_of_many_processes_that_resume_a_thread_at_once_one_does(tmp_path: Path) -> None:
    planned = PlannedWorkspace(Workspace(tmp_path))
    thread_id = await killed(planned)
    # Processes of their own, which begin together: they wait for the same line on their inputs.
    script = (
        "import sys, anyio\n"
        "from pathlib import Path\n"
        "from ryecore import Rye\n"
        "from ryecore.errors import ThreadConflict\n"
        "from tests.thread_host import _deps\n"
        "root = Path(sys.argv[1])\n"
        "async def main():\n"
        "    opened = Rye.open(root / 'project', user_space=root / 'user', **_deps(root))\n"
        "    async with opened as rye:\n"
        "        print('ready', flush=True)\n"
        "        sys.stdin.readline()\n"
        "        try:\n"
        "            done = await rye.threads.resume(sys.argv[2])\n"
        "            print('resumed', done.ended, flush=True)\n"
        "        except ThreadConflict as error:\n"
        "            print('refused', error.thread_id, flush=True)\n"
        "anyio.run(main)\n"
    )
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    hosts = [planned.fork(script, str(tmp_path), thread_id, **pipes) for _ in range(4)]
    assert [host.stdout.readline() for host in hosts if host.stdout] == [b"ready\n"] * 4
    for host in hosts:
        assert host.stdin
        host.stdin.write(b"go\n")
        host.stdin.flush()
    ended = [(*host.communicate(timeout=PATIENCE_S), host.returncode) for host in hosts]
    assert [code for *_, code in ended] == [0, 0, 0, 0], ended
    said = sorted(printed.split()[0] for printed, *_ in ended)
    assert said == [b"refused", b"refused", b"refused", b"resumed"]
    assert marks(planned) == ["done"]
    async with planned.open() as rye:
        old, *others = reversed(await rye.threads.list(all=True))
        (new,) = others
        assert (old.thread_id, new.continuation_of) == (thread_id, thread_id)
        with pytest.raises(ThreadConflict) as refused:
            await rye.threads.resume(thread_id)
        assert new.thread_id in str(refused.value)
        again = await rye.threads.resume(thread_id, again=True)
        assert again.ended == "completed"
        assert (await rye.threads.resume(new.thread_id, "And now?")).ended == "completed"
        # A fork begins a conversation of its own: it neither counts nor is refused.
        await rye.threads.fork(again.thread_id, at=1)
        assert (await rye.threads.resume(again.thread_id, "And now?")).ended == "completed"


async def test_who_died_before_it_resumed_a_thread_keeps_nobody_from_it(tmp_path: Path) -> None:
    planned = PlannedWorkspace(Workspace(tmp_path))
    thread_id = await killed(planned)
    store = planned.store()
    await store.registry.register(
        "late", "directive:acme/work", follows=Predecessor(thread_id, thread_id, frozenset())
    )
    async with planned.open() as rye:
        with pytest.raises(ThreadConflict, match="late"):
            await rye.threads.resume(thread_id)  # it is about to begin
        await store.settle("late", "error", {"error": "It died."}, 0)
        assert (await rye.threads.resume(thread_id)).ended == "completed"
    assert marks(planned) == ["done"]
