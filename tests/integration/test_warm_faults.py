"""Killed, stopped, flooded, at any step: no process stays, and no call is lost or runs twice."""

import array
import ctypes
import errno
import fcntl
import itertools
import os
import random
import signal
import socket
import termios
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from ryecore import Rye
from ryecore.errors import RyeClosed
from tests.matrix import IS_SOAK
from tests.warm_hosts import (
    MARK,
    Host,
    Hosts,
    Say,
    effects,
    furnish,
    is_spare,
    none_left,
    open_rye,
    spares_of,
    start_of,
    state_of,
    stats_of,
    templates_of,
    warm_up,
    wrap_python,
)

PIDFD_GETFD: Final = 438
AT_ONCE: Final = 16 if IS_SOAK else 4
PAUSE_S: Final = 0 if IS_SOAK else 0.08


# The host is killed

STATES: Final = (
    "no template",
    "starting",
    "spare",
    "forking",
    "go told",
    "running",
    "ending",
    "template killed",
    "closing",
)


def reach(root: Path, say: Say, state: str) -> None:
    """Come to a state, say so, and stay there."""
    pipe = str(root / "pipe")
    os.mkfifo(pipe)

    async def until(is_so: Callable[[], object]) -> None:
        with anyio.fail_after(30):
            while not is_so():
                await anyio.sleep(0.001)

    async def main() -> None:
        async with open_rye(root) as rye, anyio.create_task_group() as group:

            async def call(parameters: dict[str, object]) -> None:
                with suppress(RyeClosed):  # the host stays, though it closes
                    await rye.execute(MARK, parameters)

            def begin(number: int, **more: str) -> None:
                group.start_soon(call, {"id": number, **more})

            await _come_to(state, rye, begin, until, pipe)
            say(state)
            await anyio.sleep_forever()

    async def _come_to(
        state: str, rye: Rye, begin: Callable[..., None], until: Callable[..., Any], pipe: str
    ) -> None:
        if state == "no template":
            await rye.execute(MARK, {"id": 0})
            return
        if state == "starting":
            while not stats_of(rye):
                await rye.execute(MARK, {"id": 0})
            assert stats_of(rye)[0].state == "starting"
            return
        await warm_up(rye)
        await until(lambda: stats_of(rye)[0].spares)
        (template,) = stats_of(rye)
        if state == "forking":
            os.kill(template.pid, signal.SIGSTOP)
            for number in range(8):
                begin(number)
            await until(lambda: not stats_of(rye)[0].spares)
        elif state == "go told":
            for pid in spares_of(root):
                os.kill(pid, signal.SIGSTOP)
            begin(0)
            await until(lambda: stats_of(rye)[0].forks > template.forks)
        elif state in ("running", "closing"):
            begin(0, wait=pipe)
            begin(1, wait=pipe)
            await until(lambda: {0, 1} <= set(effects(root)))
            if state == "closing":
                with anyio.move_on_after(0.001):
                    await rye.aclose()
        elif state == "ending":
            begin(0, end=pipe)
            await until(Path(pipe + ".begun").exists)
        elif state == "template killed":
            os.kill(template.pid, signal.SIGKILL)

    anyio.run(main)


@pytest.mark.parametrize("state", STATES)
def test_a_host_that_is_killed_leaves_no_process(hosts: Hosts, tmp_path: Path, state: str) -> None:
    workspace = furnish(tmp_path)
    if state == "starting":
        wrap_python(workspace, "[ $template = 0 ] || exec sleep 20")
    with hosts.start(reach, tmp_path, state) as host:
        assert host.hear() == state
        host.kill()
        assert host.wait() == -signal.SIGKILL
        assert none_left(tmp_path)


def busy(root: Path, say: Say, first: int) -> None:
    """Call and call again."""
    ids = itertools.count(first)

    async def main() -> None:
        async with open_rye(root) as rye, anyio.create_task_group() as group:

            async def caller() -> None:
                while True:
                    await rye.execute(MARK, {"id": next(ids)})

            for _ in range(AT_ONCE):
                group.start_soon(caller)
            say("open")

    anyio.run(main)


def test_a_host_that_is_killed_at_any_moment_leaves_no_process(
    hosts: Hosts, tmp_path: Path
) -> None:
    furnish(tmp_path)
    rounds = 200 if IS_SOAK else 3
    for turn in range(rounds):
        with hosts.start(busy, tmp_path, turn * 100_000) as host:
            assert host.hear() == "open"
            # From the first cold calls on, until forks and ends follow each other closely.
            time.sleep(random.uniform(turn, turn + 1) * 1.5 / rounds)
            host.kill()
            assert host.wait() == -signal.SIGKILL
            assert none_left(tmp_path), turn
    assert max(Counter(effects(tmp_path)).values()) == 1


# The template and the spares are killed


def steady(root: Path, say: Say) -> None:
    """Have many callers call until the file `stop` is there; say how each call ended.

    The last ones are warm: whatever happened, that is how calls start again.
    """
    ids = itertools.count()
    ended: dict[int, list[object]] = {}

    async def main() -> None:
        async with open_rye(root) as rye, anyio.create_task_group() as group:

            async def caller() -> None:
                start: object = None
                while start != "warm" or not (root / "stop").exists():
                    number = next(ids)
                    done = await rye.execute(MARK, {"id": number}, trace=True)
                    start = start_of(done)
                    is_right = isinstance(done.data, dict) and done.data.get("id") == number
                    error = None if done.success and is_right else f"{done.error} {done.data}"
                    ended[number] = [start, error]
                    await anyio.sleep(PAUSE_S)

            await warm_up(rye)
            say("warm")
            for _ in range(AT_ONCE):
                group.start_soon(caller)

    anyio.run(main)
    say(ended)


Harm = Callable[[Host], bool]


def some_template(host: Host) -> int:
    """A template of the host, once there is one that has forked."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if spares_of(host.root) and (found := templates_of(host.root)):
            return min(found)
    raise AssertionError("there is no template any more")


def kill_template(host: Host) -> bool:
    os.kill(some_template(host), signal.SIGKILL)
    return True


def pause_template(host: Host) -> bool:
    """Shorter than what counts as hanging."""
    template = some_template(host)
    os.kill(template, signal.SIGSTOP)
    time.sleep(0.2)
    with suppress(ProcessLookupError):
        os.kill(template, signal.SIGCONT)
    return True


def stop_template(host: Host) -> bool:
    """For good; it is killed then."""
    template = some_template(host)
    os.kill(template, signal.SIGSTOP)
    end = time.monotonic() + 30
    while state_of(template) not in "ZX":
        assert time.monotonic() < end
        time.sleep(0.01)
    return True


def flood_host(host: Host) -> bool:
    """Say what makes no sense, many times, as the template."""
    said = random.choice([b"x" * 100, b"1", b"%d" % host.pid, b"no\0no", b"ready\0", b""])
    try:
        template = os.pidfd_open(some_template(host))
        taken = ctypes.CDLL(None, use_errno=True).syscall(PIDFD_GETFD, template, 3, 0)
    except ProcessLookupError:
        return False
    os.close(template)
    if taken < 0 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS):
        pytest.skip("taking a descriptor of another process is not permitted here")
    if taken < 0:
        return False
    with socket.socket(fileno=taken) as control, suppress(OSError):
        for _ in range(10_000):
            control.send(said, socket.MSG_DONTWAIT)
    return True


def kill_untold(pid: int) -> bool:
    """Kill a child that was given a call and has not taken the word yet."""
    try:
        os.kill(pid, signal.SIGSTOP)
        while state_of(pid) not in "TZX":
            pass
        with open(f"/proc/{pid}/fd/3", "rb", buffering=0) as go:
            end, unread = time.monotonic() + 0.3, array.array("i", [0])
            while is_spare(pid) and not unread[0] and time.monotonic() < end:
                fcntl.ioctl(go, termios.FIONREAD, unread)
    except OSError:
        unread = array.array("i", [0])
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL if unread[0] else signal.SIGCONT)
    return bool(unread[0])


def kill_one_untold(host: Host) -> bool:
    some_template(host)
    return any(kill_untold(pid) for pid in sorted(spares_of(host.root))[:1])


def kill_all_untold(host: Host) -> bool:
    some_template(host)
    return sum(map(kill_untold, sorted(spares_of(host.root)))) > 0


def kill_blindly(host: Host) -> bool:
    """Kill spares; one or the other may have its call by then."""
    some_template(host)
    for pid in spares_of(host.root):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return True


@pytest.mark.parametrize(
    ("harm", "times"),
    [
        (kill_template, 1),
        (stop_template, 1),
        (flood_host, 1),
        (kill_one_untold, 2),
        (kill_blindly, 2),
        *([(pause_template, 3), (kill_all_untold, 2)] if IS_SOAK else []),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_every_call_runs_once_and_answers_right(
    hosts: Hosts, tmp_path: Path, harm: Harm, times: int
) -> None:
    furnish(tmp_path)
    with hosts.start(steady, tmp_path) as host:
        assert host.hear() == "warm"
        done, end = 0, time.monotonic() + 60
        while done < (times + 2 if IS_SOAK else times):
            done += harm(host)
            assert time.monotonic() < end, f"{done} times"
        some_template(host)  # it comes back
        (tmp_path / "stop").touch()
        ended: dict[str, list[str | None]] = host.hear()
        host.end()
    ran = Counter(number for number in effects(tmp_path) if number >= 0)
    failed = {int(number): error for number, (_, error) in ended.items() if error}
    assert ended
    assert any(start == "warm" for start, _ in ended.values())
    assert max(ran.values()) == 1, [number for number in ran if ran[number] > 1]
    assert set(ran) | set(failed) == {int(number) for number in ended}
    if harm is kill_blindly:
        assert all("SIGKILL" in str(error) or "signal 9" in str(error) for error in failed.values())
        assert len(failed) <= times * AT_ONCE
    else:
        assert not failed


def killed_calls(root: Path, say: Say) -> None:
    """How a call ends whose process is killed while it runs, cold and warm."""
    pipe = root / "pipe"
    os.mkfifo(pipe)
    begun = Path(f"{pipe}.begun")
    ended: list[object] = []

    async def one(rye: Rye) -> None:
        done = await rye.execute(MARK, {"id": 0, "wait": str(pipe)}, trace=True)
        ended.append([start_of(done), done.status, str(done.error), done.data])

    async def main() -> None:
        for memory_mib in (0, 256):
            async with open_rye(root, warm_memory_mib=memory_mib) as rye:
                if memory_mib:
                    await warm_up(rye)
                async with anyio.create_task_group() as group:
                    group.start_soon(one, rye)
                    while not begun.exists() or not begun.read_text():
                        await anyio.sleep(0.001)
                    os.kill(int(begun.read_text()), signal.SIGKILL)
                    begun.unlink()
                assert (await rye.execute(MARK, {"id": 1})).success

    anyio.run(main)
    say(ended)


def test_a_call_whose_process_is_killed_ends_as_a_cold_one(hosts: Hosts, tmp_path: Path) -> None:
    furnish(tmp_path)
    cold, warm = hosts.run(killed_calls, tmp_path)
    assert (cold[0], warm[0]) == ("cold", "warm")
    assert cold[1:] == warm[1:]
    assert effects(tmp_path).count(0) == 2


# The interpreter is no good as a template


def cold_calls(root: Path, say: Say, least: int) -> None:
    """Call until a template has failed, or so often, and say how the templates stood."""

    async def main() -> None:
        states, reasons = set[str](), list[str]()
        async with open_rye(root) as rye:
            for number in itertools.count():
                done = await rye.execute(MARK, {"id": number}, trace=True)
                assert done.success, done.error
                assert start_of(done) == "cold"
                states |= {one.state for one in stats_of(rye)}
                reasons = [one.reason for one in stats_of(rye)]
                if number >= least and (reasons or least) and ("failed" in states or least):
                    break
                if not least:
                    await anyio.sleep(0.1)  # a cold start costs more than to look a little later
        say([sorted(states), reasons])

    anyio.run(main)


def test_no_call_waits_for_a_slow_interpreter(hosts: Hosts, tmp_path: Path) -> None:
    wrap_python(furnish(tmp_path), "[ $template = 0 ] || exec sleep 600")
    states, _ = hosts.run(cold_calls, tmp_path, 6)
    assert states == ["starting"]
    assert effects(tmp_path) == list(range(7))


BAD_TEMPLATES: Final = ["exit 3", "exec cat <&3 >&3"]
"""The soak tries more; `tests/unit/lillux/test_warm_faults.py` tries them all without an agent."""
MORE_BAD_TEMPLATES: Final = ["kill -SEGV $$", "echo hello", "exec 3<&-"]


@pytest.mark.parametrize("script", BAD_TEMPLATES + (MORE_BAD_TEMPLATES if IS_SOAK else []))
def test_an_interpreter_that_fails_as_a_template_harms_no_call(
    hosts: Hosts, tmp_path: Path, script: str
) -> None:
    wrap_python(furnish(tmp_path), f"[ $template = 0 ] || {script}")
    states, reasons = hosts.run(cold_calls, tmp_path, 0)
    assert "failed" in states
    assert reasons[0]
    assert Counter(effects(tmp_path)).most_common(1)[0][1] == 1
