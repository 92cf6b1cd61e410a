"""A host that gives up rights, and templates that say too much: the next call is as a cold one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ryecore.lillux import WarmPool, run_process_sync

from .warm import MIB, python

ROOT = Path(__file__).parents[3]
HOST = """\
import ctypes, os, sys, time
from ryecore.lillux import WarmPool, run_process_sync
from tests.unit.lillux.warm import MIB, first_warm, one_spare, python

pool = WarmPool(256 * MIB)
"""
FILTERS = """\
libc = ctypes.CDLL(None, use_errno=True)
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP_FILTER, EVERY_THREAD = 38, 1, 1
NUMBER = {"x86_64": 317, "aarch64": 277}[os.uname().machine]

def allow_everything():
    instruction = (ctypes.c_uint64 * 1)(0x7FFF0000 << 32 | 0x06)
    class Filter(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]
    given = Filter(1, ctypes.addressof(instruction))
    assert not libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    failed = libc.syscall(NUMBER, PR_SET_SECCOMP_FILTER, EVERY_THREAD, ctypes.byref(given))
    assert not failed, ctypes.get_errno()

spec = python(pool, "print([x for x in open('/proc/self/status') if 'Seccomp_f' in x])")
allow_everything()
before = first_warm(spec).stdout
allow_everything()
after = run_process_sync(spec)
assert after.stdout != before, "a child of before the filter has served it"
assert not after.warm
assert first_warm(spec).stdout == after.stdout
assert pool.close()
"""
ANOTHER_USER = """\
spec = python(pool, "import os; print(os.getuid())", command=sys.argv[1])
assert first_warm(spec).stdout == b"0\\n"
one_spare(spec)
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
after = run_process_sync(spec)
assert (after.stdout, after.warm) == (b"65534\\n", False)
assert pool.close(), "what it may not kill is left"
"""


def run_host(script: str, *args: str) -> None:
    """In a host of its own: neither is ever undone."""
    done = subprocess.run(
        [sys.executable, "-c", HOST + script, *args],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(
    "Seccomp_filters" not in Path("/proc/self/status").read_text(),
    reason="this kernel does not tell how many filters there are",
)
def test_a_filter_that_a_host_adds_holds_for_the_next_call() -> None:
    run_host(FILTERS)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="no Python that all may run")
def test_a_host_that_becomes_another_user_leaves_nothing_of_the_first() -> None:
    run_host(ANOTHER_USER, "/usr/bin/python3")


def test_a_template_that_answers_what_nobody_asked_is_ended() -> None:
    template = (
        "import os\nfor _ in '12': os.read(3, 1 << 20)\nos.write(3, b'ready\\0')\n"
        "while True: os.write(3, b'no\\0')"
    )
    pool = WarmPool(256 * MIB)
    spec = python(pool, "print(1)", template=template)
    for _ in range(200):
        assert run_process_sync(spec).stdout == b"1\n"
        if any(stats.failures for stats in pool.stats()):
            break
    assert "nobody has asked" in pool.stats()[0].reason
    assert pool.close()
