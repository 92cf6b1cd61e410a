"""The Python template: what it prepares, what it refuses, and what its children are."""

import json
import os
import re
import select
import signal
import traceback
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from tests.interpreter import PYTHON
from tests.matrix import in_turn
from tests.warm_host import PYTHONS, RUNTIMES, Call, Refused, Template, python_call

SHOW = "import json, sys\n"


def script(tmp_path: Path, body: str, **options: Any) -> Call:
    tool = tmp_path / "tool.py"
    tool.write_text(body)
    return python_call("script", tool, project=str(tmp_path), **options)


@pytest.mark.parametrize(
    ("version", "runtime"), in_turn([*PYTHONS], ["function", "script", "script", "function"])
)
def test_each_interpreter_serves_or_says_why_not(
    version: str, runtime: str, tmp_path: Path
) -> None:
    body = f"{SHOW}def execute(params, project):\n    return [params, sys.argv[-1]]\n"
    if runtime == "script":
        body += "print(json.dumps(execute(json.load(sys.stdin), None)))\n"
    tool = tmp_path / "tool.py"
    tool.write_text(body)
    call = python_call(runtime, tool, python=PYTHONS[version])
    given = b'{"a": "\\u00fc"}'
    if version in ("3.6", "3.7"):
        with pytest.raises(Refused, match=r"it isn.t CPython 3\.8 or later"):
            Template(call)
        return
    cold = call.cold(given)
    assert cold.code == 0, cold.err
    with Template(call) as template:
        assert [template.call(given) for _ in range(2)] == [cold] * 2


def test_each_call_is_a_process_of_its_own_and_a_child_of_the_host(tmp_path: Path) -> None:
    body = (
        "import os, sys\nsys.x = getattr(sys, 'x', 0) + 1\nprint(os.getpid(), os.getppid(), sys.x)"
    )
    with Template(script(tmp_path, body)) as template:
        said = [template.call().out.split() for _ in range(3)]
    assert len({pid for pid, _, _ in said}) == 3
    assert {(int(parent), n) for _, parent, n in said} == {(os.getpid(), "1")}


@pytest.mark.parametrize("runtime", ["function", "script"])
def test_a_project_may_be_the_root_of_all_files(runtime: str, tmp_path: Path) -> None:
    tool = tmp_path / "tool.py"
    tool.write_text("import os\ndef execute(a, b): return os.getcwd()\nprint(os.getcwd())\n")
    call = python_call(runtime, tool, project="/")
    with Template(call) as template:
        assert template.call() == call.cold()


def test_children_of_one_template_are_as_random_as_others(tmp_path: Path) -> None:
    body = (
        "import random, secrets, uuid, tempfile, json, ssl\nfrom multiprocessing import process\n"
        "print(json.dumps([random.random(), ssl.RAND_bytes(9).hex(), secrets.token_hex(),"
        " str(uuid.uuid4()), tempfile.mktemp(), process.current_process().authkey.hex()]))"
    )
    with Template(script(tmp_path, body)) as template:
        said = [json.loads(template.call().out) for _ in range(3)]
    for values in zip(*said, strict=True):
        assert len(set(values)) == 3


def test_a_log_record_counts_from_its_own_call(tmp_path: Path) -> None:
    body = (
        "import logging\nprint(logging.makeLogRecord({}).relativeCreated < 1e4, logging._startTime)"
    )
    with Template(script(tmp_path, body)) as template:
        first, second = template.call().out.split(), template.call().out.split()
    assert first[1] != second[1]


def test_a_spare_that_is_not_wanted_leaves_quietly(tmp_path: Path) -> None:
    with Template(script(tmp_path, "print('ran')")) as template:
        spare = template.spare()
        spare.dismiss()
        ended = spare.end()
        assert (ended.code, ended.out, ended.err) == (0, "", "")
        assert template.call().out == "ran\n"


def test_a_template_that_is_killed_leaves_its_children_alone(tmp_path: Path) -> None:
    template = Template(script(tmp_path, "print(input())"))
    spares = [template.spare() for _ in range(3)]
    template.process.send_signal(signal.SIGKILL)
    template.process.wait()
    for spare in spares:
        spare.go(b"hi\n")
        assert spare.end().out == "hi\n"
    template.close()


def test_a_template_ends_with_its_socket_and_a_call_goes_on(tmp_path: Path) -> None:
    template = Template(script(tmp_path, "print(input())"))
    spare = template.spare()
    template.close()
    assert template.process.returncode == 0
    spare.go(b"hi\n")
    assert spare.end().out == "hi\n"


def test_a_host_that_is_killed_takes_spares_and_calls_along(tmp_path: Path) -> None:
    call = script(tmp_path, "import time\nprint('on', flush=True)\ntime.sleep(60)")
    reading, writing = os.pipe()
    host = os.fork()
    if not host:  # a host of its own, which is killed
        try:
            template = Template(call)
            waiting, running = template.spare(), template.spare()
            running.go()
            os.read(running._stdout, 3)
            os.write(writing, f"{waiting.pid} {running.pid} {template.process.pid}".encode())
            signal.pause()
        finally:  # what fails here would go on with the tests, as their parent does
            os.write(writing, traceback.format_exc().encode())
            os._exit(1)
    pids = [int(pid) for pid in os.read(reading, 9999).decode().split()]
    handles = [os.pidfd_open(pid) for pid in pids]
    os.kill(host, signal.SIGKILL)
    os.waitpid(host, 0)
    for handle in handles:
        # Readable once the process has ended.
        assert select.select([handle], [], [], 20)[0]
        os.close(handle)
    os.close(reading)
    os.close(writing)


def test_output_that_goes_to_a_file_can_be_sought(tmp_path: Path) -> None:
    body = "import sys\nprint(sys.stdin.seekable(), sys.stdout.seekable(), sys.stderr.seekable())"
    with Template(script(tmp_path, body)) as template, (tmp_path / "log").open("wb") as log:
        spare = template.spare(log.fileno())
        spare.go()
        spare.end()
    assert (tmp_path / "log").read_text() == "False True False\n"


def test_what_a_tool_begins_with_is_there_before_its_call(tmp_path: Path) -> None:
    modules = ("csv", "colorsys", "wave", "xml.dom", "chunk", "quopri", "asyncio", "this")
    body = (
        '"""Doc."""\nfrom __future__ import annotations\n'
        "NAMES = {'a': [1, -2], 'b': ('x', None)}\n"
        "import csv, xml.dom\nfrom colorsys import rgb_to_hsv as hsv\n"
        "__version__ = '1'\n"
        "SIZE = len(NAMES)\n"
        "import wave, quopri, json, sys\n"
        "print(json.dumps([hsv.__name__, SIZE]))\n"
    )
    call = script(tmp_path, body)
    # Whether a module is there shows in what the template has read.
    with Template(call) as template:
        read = " ".join(template.files)
        assert template.call().out == '["rgb_to_hsv", 2]\n'
    there = [name for name in modules if "/" + name.replace(".", "/") in read]
    assert there == ["csv", "colorsys", "xml.dom"]


def test_leading_imports_can_be_left_to_the_call(tmp_path: Path) -> None:
    call = script(tmp_path, "import colorsys\nprint(colorsys.__name__)", leading_imports=False)
    with Template(call) as template:
        assert not any("colorsys" in path for path in template.files)
        assert template.call().out == "colorsys\n"


def test_a_coroutine_has_its_loop_before_its_call(tmp_path: Path) -> None:
    tool = tmp_path / "tool.py"
    tool.write_text("async def execute(params, project):\n    return 3\n")
    with Template(python_call("function", tool)) as template:
        assert any("/asyncio/" in path for path in template.files)
        assert template.call().out == "3"


def test_a_module_of_the_tools_own_is_never_taken_for_the_interpreters(tmp_path: Path) -> None:
    (tmp_path / "colorsys.py").write_text("print('mine')")
    body = "import colorsys\nimport wave\nprint(colorsys.__file__)"
    with Template(script(tmp_path, body)) as template:
        assert not any("colorsys" in path or "wave" in path for path in template.files)
        assert template.call().out == f"mine\n{tmp_path}/colorsys.py\n"


def test_a_module_that_one_of_the_interpreters_would_get_elsewhere_refuses(tmp_path: Path) -> None:
    (tmp_path / "_strptime.py").write_text("")
    (tmp_path / "chunk.py").write_text("")
    (tmp_path / "calendar.py").write_text("")
    with pytest.raises(Refused, match="another module stands in for calendar"):
        Template(script(tmp_path, "import http.cookiejar"))


def test_no_planted_bytecode_is_read(tmp_path: Path) -> None:
    import py_compile

    planted = tmp_path / "mine.py"
    planted.write_text("print('evil')")
    py_compile.compile(
        str(planted), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    planted.write_text("VALUE = 'good'")
    body = "import csv\nimport mine, sys\nprint(mine.VALUE, sys.pycache_prefix)"
    with Template(script(tmp_path, body)) as template:
        assert template.call().out == f"good {tmp_path}/nowhere\n"
    (tmp_path / "tool.py").write_text("import mine\nprint(mine.VALUE)")
    with Template(script(tmp_path, "import mine\nprint(mine.VALUE)", preload=["mine"])) as template:
        assert template.call().out == "good\n"


def test_a_preloaded_module_is_the_one_that_the_tool_would_find(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import os\nPID = os.getpid()")
    body = "import mine, os\nprint(mine.PID != os.getpid(), mine.__file__)"
    with Template(script(tmp_path, body, preload=["mine"])) as template:
        assert str(tmp_path / "mine.py") in template.files
        assert template.call().out == f"True {tmp_path}/mine.py\n"


def test_it_names_what_it_has_read(tmp_path: Path) -> None:
    with Template(
        script(
            tmp_path, "import csv", env={"PYTHONPATH": "/var/lib:/not/there", "TZ": ":Asia/Tokyo"}
        )
    ) as template:
        files = set(template.files)
        maps = Path(f"/proc/{template.process.pid}/maps").read_text().split()
    assert {str(tmp_path), "/var/lib", "/not/there", "/etc/localtime"} <= files
    assert "/usr/share/zoneinfo/Asia/Tokyo" in files
    assert {name for name in maps if ".so" in name} <= files
    assert any(path.endswith("/bin/pyvenv.cfg") for path in files)
    assert any(path.endswith("/csv.py") for path in files)
    assert any(path.endswith("/json/__init__.py") for path in files)


BASH = RUNTIMES.parents[2] / "bash.py"


@pytest.mark.parametrize(
    "given",
    [
        {"command": "echo hi; echo no >&2; exit 3"},
        {"command": "sleep 60 & sleep 60", "timeout": 0.2},
        {"command": "kill -9 $$"},
        {"command": "ps -o pgid= -p $$ | tr -d ' ' | grep -qx $PPID && echo in the group"},
        {"command": "yes | head -c 200000"},
        {"command": ""},
    ],
)
def test_a_shell_command_runs_warm_as_it_runs_cold(given: dict[str, Any], tmp_path: Path) -> None:
    call = python_call("script", BASH, project=str(tmp_path))
    text = json.dumps(given).encode()
    cold = call.cold(text)
    with Template(call) as template:
        assert [template.call(text) for _ in range(2)] == [cold] * 2


def test_what_a_shell_command_needs_is_there_before_its_call(tmp_path: Path) -> None:
    with Template(python_call("script", BASH, project=str(tmp_path))) as template:
        names = {Path(path).name.partition(".")[0] for path in template.files}
    assert {"__future__", "signal"} <= names


REFUSALS = {
    "a module that is missing": ("", ["absent"], "ModuleNotFoundError"),
    "a module that fails": ("raise ValueError('secret')", ["mine"], "ValueError"),
    "a module that exits": ("raise SystemExit(3)", ["mine"], "SystemExit"),
    "a module that opens something": ("f = open('/dev/null')", ["mine"], "has more open"),
    "a module that starts a thread": (
        "import threading as t, time\nt.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        ["mine"],
        "more than one thread",
    ),
    "a module that shares memory": (
        "import mmap; m = mmap.mmap(-1, 9)",
        ["mine"],
        "shares memory",
    ),
    "a module that makes a lock for processes": (
        "import multiprocessing; lock = multiprocessing.Lock()",
        ["mine"],
        "shares memory",
    ),
    "a module that prints": ("print('dear me')", ["mine"], "dear me"),
    "a module that warns": ("import warnings; warnings.warn('dear me')", ["mine"], "dear me"),
    "a module that takes the streams": (
        "import sys; sys.__stdin__ = None",
        ["mine"],
        "no sys.stdin",
    ),
}


@pytest.mark.parametrize("why", REFUSALS)
def test_it_refuses(why: str, tmp_path: Path) -> None:
    text, preload, said = REFUSALS[why]
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(Refused, match=said) as refused:
        Template(script(tmp_path, "print('ran')", preload=preload))
    assert "secret" not in str(refused.value)


# What another machine, interpreter or C library would show; it stands before the fork point.
ELSEWHERE = {
    "another machine": (
        "import os; real = os.uname(); u = (*real[:4], 'riscv64'); os.uname = lambda:"
        " os.uname_result(u)",
        "nobody knows how to fork .* on riscv64",
    ),
    "another system": ("sys.platform = 'darwin'", "nobody knows how to fork"),
    "another interpreter": (
        "n = type(sys.implementation)(**vars(sys.implementation)); n.name = 'pypy';"
        " sys.implementation = n",
        "it isn.t CPython",
    ),
    "no global lock": ("sys.abiflags = 't'", "it isn.t CPython .* with a global lock"),
    "no ctypes": ("sys.modules['ctypes'] = None", "ModuleNotFoundError"),
    "another C library": (
        "import ctypes; ctypes.PyDLL = lambda *a, **k: object()",
        "the C library isn't glibc",
    ),
    "a kernel that doesn't tell": (
        "import ctypes; real = ctypes.PyDLL\n"
        "def load(*a, **k):\n"
        "    libc = real(*a, **k); libc.prctl = lambda *a: -1; return libc\n"
        "ctypes.PyDLL = load",
        "the kernel doesn't tell",
    ),
}


@pytest.mark.parametrize("where", ELSEWHERE)
def test_it_refuses_where_nobody_knows_how_to_fork(where: str, tmp_path: Path) -> None:
    text, said = ELSEWHERE[where]
    call = script(tmp_path, "print('ran')")
    mark = "leave = sys.exit\n"
    argv = [arg.replace(mark, f"{text}\n{mark}") for arg in call.warm_argv]
    with pytest.raises(Refused, match=said):
        Template(evolve(call, warm_argv=argv))


@pytest.mark.parametrize("version", ["3.11", "3.12"])
def test_a_warning_that_belongs_to_the_call_refuses(version: str, tmp_path: Path) -> None:
    if version not in PYTHONS:
        pytest.skip(f"there is no Python {version} on this machine")
    call = script(tmp_path, "import telnetlib", python=PYTHONS[version])
    assert "deprecated" in call.cold().err
    with pytest.raises(Refused, match="deprecated"):
        Template(call)


def test_a_warning_about_the_tools_own_text_refuses(tmp_path: Path) -> None:
    call = script(tmp_path, "print(1 is 1)")
    assert "SyntaxWarning" in call.cold().err
    with pytest.raises(Refused, match="SyntaxWarning"):
        Template(call)


def test_text_that_is_no_python_refuses(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="SyntaxError"):
        Template(script(tmp_path, "def"))


def test_what_is_no_fork_is_refused_and_the_next_one_served(tmp_path: Path) -> None:
    with Template(script(tmp_path, "print('ran')")) as template:
        template._control.send(b"fork")
        assert template._control.recv(99) == b"no\0a fork takes four descriptors"
        assert template.call().out == "ran\n"


def test_many_calls_leave_the_template_as_it_was(tmp_path: Path) -> None:
    def state(template: Template) -> tuple[int, int]:
        status = Path(f"/proc/{template.process.pid}/status").read_text()
        size = int(status.split("VmRSS:")[1].split()[0])
        return size, len(os.listdir(f"/proc/{template.process.pid}/fd"))

    with Template(script(tmp_path, "print('ran')")) as template:
        for _ in range(50):
            template.call()
        size, descriptors = state(template)
        for _ in range(400):
            assert template.call().out == "ran\n"
        after, descriptors_after = state(template)
    assert descriptors_after == descriptors
    assert after < size + 256


def test_a_call_costs_a_small_part_of_a_cold_one(tmp_path: Path) -> None:
    call = script(tmp_path, "import csv, datetime\nprint('ran')")
    with Template(call) as template:
        template.call()
        warm = min(template.call().usage.ru_minflt for _ in range(5))
    assert warm < call.cold().usage.ru_minflt / 2


@pytest.mark.parametrize("version", PYTHONS)
def test_the_forks_of_a_tool_mend_what_a_fork_breaks(version: str, tmp_path: Path) -> None:
    if version in ("3.6", "3.7"):
        pytest.skip("these have no templates")
    body = (
        "import logging, os, random, sys, threading\n"
        "hold = threading.Event()\n"
        "log = threading.Thread(target=logging.warning, args=('heard',))\n"
        "log.start()\nlog.join(5)\n"
        "threading.Thread(target=hold.wait).start()\n"
        "logging._lock.acquire()\n"
        "before = random.Random.getstate(random._inst)\n"
        "if not os.fork():\n"
        "    logging._lock._release_save() if logging._lock._is_owned() else None\n"
        "    print(threading.active_count(), random._inst.getstate() != before, flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\nhold.set()\nlogging._lock.release()\nprint(log.is_alive())\n"
    )
    call = script(tmp_path, body, python=PYTHONS[version])
    cold = call.cold()
    assert (cold.code, cold.out) == (0, "1 True\nFalse\n")
    with Template(call) as template:
        warm = template.call()
    assert (warm.code, warm.out) == (0, cold.out)
    assert "WARNING:root:heard" in warm.err


@pytest.mark.parametrize(
    "kept",
    [
        "import gc; gc.callbacks.append(lambda phase, _: print(phase) or gc.callbacks.clear())",
        "import warnings, os; warnings.simplefilter('always'); kept = os.scandir('.'); next(kept)",
        "class A:\n    __slots__ = ()\n    def __del__(self): print('gone')\nkept = A()",
        "import json, weakref\nclass A: pass\nkept = A()\nseen = weakref.ref(kept, print)",
        "def rest():\n    try: yield\n    finally: print('closed')\nkept = rest()\nnext(kept)",
        "import sys; out = sys.stdout; sys.stdout = open('left', 'w'); print('kept')",
        "import gc\nclass A:\n    def __del__(self): print('gone')\nkept = A()\ngc.freeze()",
        "import gc\ndef rest():\n    try: yield\n    finally: print('closed')\n"
        "kept = rest()\nnext(kept)\ngc.freeze()\nimport colorsys",
    ],
)
def test_what_has_an_end_of_its_own_has_it_at_the_end_of_a_call(kept: str, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    tool = tmp_path / "tool.py"
    tool.write_text(f"open('there', 'w').close()\n{kept}\n")
    call = python_call("script", tool, project=str(tmp_path / "project"))
    texts = []
    with Template(call) as template:
        for start in (call.cold, template.call):
            ended = start()
            left = tmp_path / "project/left"
            shown = [re.sub("0x[0-9a-f]+", "_", text) for text in (ended.out, ended.err)]
            texts.append((ended.code, shown, left.read_text() if left.exists() else None))
    assert texts[0] == texts[1]
    assert any(texts[0][1]) or texts[0][2]


def test_of_a_result_that_is_no_json_nothing_is_printed(tmp_path: Path) -> None:
    tool = tmp_path / "tool.py"
    tool.write_text("def execute(params, project_path):\n    return {'a': 1, (2, 3): 4}\n")
    call = python_call("function", tool)
    with Template(call) as template:
        for ended in (call.cold(), template.call()):
            assert (ended.code, ended.out) == (1, "")
            assert "TypeError: keys must be str" in ended.err


def test_it_runs_on_the_interpreter_of_these_tests() -> None:
    assert PYTHON in PYTHONS.values()
