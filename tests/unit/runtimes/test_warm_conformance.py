"""A call of a Python tool ends warm as it ends cold: the same streams, the same exit code."""

import re
from pathlib import Path

import pytest

from tests.matrix import IS_SOAK
from tests.warm_host import PYTHONS, Ended, Template, python_call

GIVEN = b'{"a": 1, "text": "\\u00fc\\n"}'

# What a tool sees of its process. None of it may tell a warm start from a cold one.
SEEN = {
    "arguments": "sys.argv[1:], sys.argv[0][:1], getattr(sys, 'orig_argv', [])[1:]",
    "flags": "str(sys.flags), sys.dont_write_bytecode, sys.pycache_prefix, sys.warnoptions",
    "path": "sys.path, os.getcwd(), sorted(os.environ.items())",
    "main": "sorted(vars(sys.modules['__main__']))",
    "frames": "[f.name for f in traceback.extract_stack()]",
    "exception": "str(sys.exc_info())",
    "streams": "[[s.name, s.mode, s.encoding, s.errors, s.newlines, s.line_buffering,"
    " s.write_through, s.seekable(), s.isatty(), type(s.buffer).__name__, s.fileno(), s.closed,"
    " s.buffer.name] for s in (sys.stdin, sys.stdout, sys.stderr)]",
    "kept streams": "[a is b for a, b in zip((sys.stdin, sys.stdout, sys.stderr),"
    " (sys.__stdin__, sys.__stdout__, sys.__stderr__))]",
    "descriptors": "sorted(n for n in os.listdir('/proc/self/fd')"
    " if os.path.exists('/proc/self/fd/' + n))",
    "session": "os.getsid(0) == os.getpgrp() == os.getpid() == threading.get_native_id()",
    "signals": "[l for l in open('/proc/self/status')"
    " if l[:4] in ('SigP', 'SigB', 'SigI', 'SigC', 'NoNe')]",
    "handlers": "[str(signal.getsignal(n))[:30] for n in range(1, 32)]",
    "threads": "os.listdir('/proc/self/task') == [str(os.getpid())], threading.active_count(),"
    " threading.current_thread() is threading.main_thread(), threading.main_thread().name,"
    " threading.main_thread().native_id == os.getpid()",
    "collector": "gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.garbage",
    "limits": "[resource.getrlimit(n) for n in range(10)], os.nice(0), os.umask(0o22)",
    "times": "time.process_time() < 5, time.tzname, resource.getrusage(0).ru_nswap",
    "hooks": "str(sys.excepthook), str(sys.displayhook), sys.gettrace(), sys.getprofile(),"
    " [str(f)[:30] for f in sys.meta_path], sys.breakpointhook.__name__",
    "recursion": "sys.getrecursionlimit(), sys.getswitchinterval()",
    "no ctypes": "[n for n in sys.modules if 'ctypes' in n or n == '_socket']",
    "ids": "os.getuid(), os.getgid(), os.getgroups(), os.cpu_count()",
}
IMPORTS = "import gc, json, os, resource, signal, sys, threading, time, traceback\n"

# Bodies of a tool; each stands at the top of a script, and below `def execute(params, project)`.
ENDS = {
    "nothing": "pass",
    "prints": "print('out'); print('err', file=sys.stderr); os.write(1, b'raw\\n')",
    "raises": "raise ValueError('no tide')",
    "raises from": "\ntry:\n    1 / 0\nexcept ArithmeticError as e:\n    raise KeyError(1) from e",
    "a group": "raise ExceptionGroup('both', [ValueError(1), KeyError(2)])",
    "exits": "sys.exit()",
    "exits with 3": "sys.exit(3)",
    "exits with a text": "sys.exit('no tide')",
    "exits with much": "sys.exit(2**70)",
    "exits with 300": "sys.exit(300)",
    "exits at once": "print('x', flush=True); os._exit(4)",
    "is killed": "os.kill(os.getpid(), 9)",
    "aborts": "os.abort()",
    "is interrupted": "raise KeyboardInterrupt",
    "leaves a file open": "f = open('left', 'w'); f.write('kept'); sys.keep = f",
    "says farewell": "import atexit; atexit.register(print, 'bye'); atexit.register(print, 'so')",
    "farewell fails": "import atexit; atexit.register(lambda: 1 / 0); atexit.register(print, 'so')",
    "farewell exits": "import atexit; atexit.register(lambda: sys.exit(5))",
    "finalises": "import weakref\nclass A:\n    pass\na = A()\n"
    "weakref.finalize(a, print, 'gone')\nsys.keep = a",
    "dies": "\nclass A:\n    def __del__(self):\n        print('gone', json.dumps(os.sep))\n"
    "global keep\nkeep = A()",
    "dies in a cycle": "\nclass A:\n    def __del__(self):\n        print('gone', os.sep)\n"
    "global keep\nkeep = A()\nkeep.me = keep",
    "dies badly": "\nclass A:\n    def __del__(self):\n        raise ValueError('hm')\n"
    "global keep\nkeep = A()",
    "a thread goes on": "t = threading.Thread(target=lambda: (time.sleep(.1), print('late')));"
    " t.start()",
    "a daemon goes on": "t = threading.Thread(target=time.sleep, args=(60,), daemon=True);"
    " t.start()",
    "a thread has ended": "t = threading.Thread(target=print, args=('in',)); t.start(); t.join()",
    "a pool": "from concurrent.futures import ThreadPoolExecutor as P;"
    " print(list(P(2).map(abs, [-1])))",
    "a coroutine": "import asyncio\nasync def main():\n    await asyncio.sleep(0)\n"
    "    return 3\nprint(asyncio.run(main()))",
    "loses its output": "os.close(1); print('x')",
    "loses its errors": "os.close(2); print('x', file=sys.stderr)",
    "full output": "sys.stdout = open('/dev/full', 'w'); print('x')",
    "other output": "import io; sys.stdout = io.TextIOWrapper(os.fdopen(os.dup(1), 'wb'));"
    " print('buffered')",
    "no output": "sys.stdout = None",
    "closed output": "sys.stdout.close()",
    "closes all": "os.closerange(0, 64)",
    "forks": "p = os.fork()\nif not p:\n    os._exit(5)\nprint(os.waitpid(p, 0)[1])",
    "a fork returns": "p = os.fork()\nprint('child' if not p else os.waitpid(p, 0)[1])",
    "starts a program": "import subprocess; print(subprocess.run(['echo', 'hi'],"
    " capture_output=True).stdout)",
    "becomes a program": "os.execv('/bin/echo', ['echo', 'hi'])",
    "calls C": "import ctypes\nl = ctypes.CDLL(None)\nl.puts(b'by C')\n"
    "f = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda n: n + 1)\n"
    "class S(ctypes.Structure):\n    _fields_ = [('x', ctypes.c_int)]\n"
    "print(f(2), S(3).x, ctypes.sizeof(S), ctypes.string_at(b'abc'))",
    "has sockets": "import socket, struct, array; a, b = socket.socketpair(); a.send(b'x');"
    " print(b.recv(1), struct.pack('i', 3), array.array('i', [1]))",
    "warns": "import warnings; warnings.warn('dear me')",
    "logs": "import logging; logging.warning('%s', 'dear me');"
    " logging.Formatter().format(logging.makeLogRecord({'exc_info': None}))",
    "changes a module": "json.dumps = None; sys.modules.pop('json')",
    "drops every module": "sys.modules.clear()",
    "replaces itself": "sys.modules['tool'] = sys.modules['__main__'] = None",
    "another way out": "sys.exit = None; os._exit = None",
    "recurses": "\ndef f():\n    f()\nf()",
    "no memory": "resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20)); bytearray(1 << 28)",
    "moves": "os.chdir('/'); os.umask(0o77); os.environ.clear(); sys.path.clear()",
    "ignores": "signal.signal(signal.SIGTERM, signal.SIG_IGN); os.kill(os.getpid(), 15);"
    " print('still')",
    "is told to end": "os.kill(os.getpid(), 15)",
    "an alarm": "signal.setitimer(signal.ITIMER_REAL, .01); signal.pause()",
    "traces": "sys.settrace(lambda *a: None); sys.setprofile(lambda *a: None)",
    "no collector": "gc.disable(); gc.set_threshold(1)",
    "reads input": "print(repr(sys.stdin.read()), sys.stdin.tell() if 0 else '')",
    "databases": "import sqlite3; c = sqlite3.connect('left'); c.execute('create table t(a)');"
    " c.execute('insert into t values (1)')",
    "temporary": "import tempfile; d = tempfile.TemporaryDirectory(dir='.'); sys.keep = d",
    "spawns": "import multiprocessing as m\nif __name__ != '__mp_main__':\n"
    "    with m.get_context('fork').Pool(1) as p:\n        print(p.map(abs, [-2]))",
}


def shown(ended: Ended, project: Path) -> tuple[int, str, str, str]:
    """What anybody sees of a call's end, without addresses and process numbers."""
    left = sorted(p.name for p in project.iterdir())
    content = "".join(p.read_text() for p in project.iterdir() if p.stat().st_size < 99)
    # As the last of a cold start's interpreter goes, it can't read source lines any more.
    late = r"(in __del__\n)    raise.*\n"
    out, err = (
        re.sub(r"0x[0-9a-f]+|\bpid=\d+|tmp\w{8}", "_", s)
        for s in (ended.out, re.sub(late, r"\1", ended.err))
    )
    for path in project.iterdir():
        path.unlink()
    return ended.code, out, err, f"{left}: {content}"


def as_tool(runtime: str, body: str) -> str:
    if runtime == "script":
        return f"{IMPORTS}{body}\n"
    indented = body.replace("\n", "\n    ")
    return f"{IMPORTS}def execute(params, project):\n    {indented}\n"


def compare(runtime: str, text: str, tmp_path: Path, python: str) -> Ended:
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    home.mkdir()
    tool = home / "tool.py"
    tool.write_text(text)
    call = python_call(runtime, tool, python=python, project=str(project))
    cold = call.cold(GIVEN)
    cold_shown = shown(cold, project)
    with Template(call) as template:
        for _ in range(2):
            warm = template.call(GIVEN)
            assert shown(warm, project) == cold_shown
    return cold


@pytest.mark.skipif(
    not IS_SOAK,
    reason="tests/conformance/starts shows it for the interpreter that runs this; here is each one",
)
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("runtime", ["function", "script"])
@pytest.mark.parametrize("python", [one for one in PYTHONS if one not in ("3.6", "3.7")])
def test_a_tool_can_not_tell_and_a_call_ends_as_it_ends_cold(
    runtime: str, python: str, tmp_path: Path
) -> None:
    for name, seen in SEEN.items():
        show = f"print(json.dumps([{seen}], default=str))"
        folder = tmp_path / "seen" / name
        folder.mkdir(parents=True)
        ended = compare(runtime, as_tool(runtime, show), folder, PYTHONS[python])
        assert (ended.code, bool(ended.out)) == (0, True), (name, ended.err)
    for name, body in ENDS.items():
        folder = tmp_path / "ends" / name
        folder.mkdir(parents=True)
        compare(runtime, as_tool(runtime, body), folder, PYTHONS[python])


@pytest.mark.parametrize(
    "kept",
    [
        "l = [f]; l.append(l)",
        "import contextvars; contextvars.ContextVar('v').set(f)",
        "json.kept = f",
        "sys.modules['kept'] = f",
        "import functools; functools.lru_cache(lambda: f)()",
    ],
)
def test_what_is_written_to_a_file_stays_however_it_is_kept(kept: str, tmp_path: Path) -> None:
    # A cold start loses it in some of these, by the order in which things go.
    tool = tmp_path / "tool.py"
    tool.write_text(f"{IMPORTS}f = open('left', 'w'); f.write('kept'); {kept}\n")
    with Template(python_call("script", tool, project=str(tmp_path))) as template:
        assert template.call().code == 0
    assert (tmp_path / "left").read_text() == "kept"
