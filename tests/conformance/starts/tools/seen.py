"""What a tool sees of its own process, and of the interpreter in it."""

import ctypes
import gc
import json
import locale
import multiprocessing
import os
import resource
import signal
import sys
import threading
import time
import traceback
import warnings


def _lines_of(path, *starts):
    with open(path) as file:
        return [line.strip() for line in file if line.startswith(starts)]


def nothing(params):
    return None


def arguments(params):
    return [sys.argv, sys.orig_argv, sys.executable, sys.prefix, sys.base_prefix, sys.exec_prefix]


def command_line(params):
    with open("/proc/self/cmdline", "rb") as file:
        return file.read().decode().split("\0")


def options(params):
    return [list(sys.flags), str(sys.flags), sys._xoptions, sys.warnoptions, __debug__]


def bytecode(params):
    return [sys.dont_write_bytecode, sys.pycache_prefix, sys._git, sys.implementation.cache_tag]


def search_path(params):
    return [sys.path, [str(f)[:40] for f in sys.meta_path], len(sys.path_hooks)]


def importer_cache(params):
    return sorted(sys.path_importer_cache)


def modules(params):
    return sorted(sys.modules)


def order_of_modules(params):
    return list(sys.modules)


def environment(params):
    with open("/proc/self/environ", "rb") as file:
        given = sorted(file.read().decode().split("\0"))
    shown = sorted(os.environ.items())
    # Each call has an id of its own: see call_id.
    return [[one for one in shown if one[0] != "RYE_CALL_ID"],
            [one for one in given if not one.startswith("RYE_CALL_ID=")]]  # fmt: skip


def call_id(params):
    """Nothing of it may be the same in two calls."""
    return [os.environ["RYE_CALL_ID"]]


def folders(params):
    return [os.getcwd(), os.readlink("/proc/self/cwd"), os.readlink("/proc/self/root")]


def family(params):
    return {
        "parent is the host": os.getppid() == params["host"],
        "leads": os.getpid() == os.getpgid(0) == os.getsid(0),
        "group of the terminal": _lines_of("/proc/self/stat", str(os.getpid()))[0].split()[6:8],
        "exit signal": _lines_of("/proc/self/stat", str(os.getpid()))[0].split()[37],
        "children": open(f"/proc/self/task/{os.getpid()}/children").read(),
        "native": threading.get_native_id() == os.getpid() == threading.main_thread().native_id,
        "ident": threading.main_thread().ident == threading.get_ident(),
    }


def numbers(params):
    return [os.getresuid(), os.getresgid(), os.getgroups(), os.nice(0), os.getpriority(0, 0)]


def scheduling(params):
    affinity = sorted(os.sched_getaffinity(0))
    return [affinity, os.sched_getscheduler(0), os.cpu_count(), multiprocessing.cpu_count()]


def out_of_memory(params):
    return [
        open(f"/proc/self/{n}").read() for n in ("oom_score_adj", "coredump_filter", "loginuid")
    ]


def mask_of_files(params):
    before = os.umask(0)
    os.umask(before)
    return before


def limits(params):
    return [resource.getrlimit(number) for number in range(16)]


def status(params):
    return _lines_of(
        "/proc/self/status", "SigP", "SigB", "SigI", "SigC", "Shd", "NoNew", "Secc", "Spec", "Cap",
        "Uid", "Gid", "Groups",
        "Umask", "Threads", "TracerPid", "THP", "Cpus", "Mems", "CoreD", "State", "untag",
    )  # fmt: skip


def name_of_the_process(params):
    return [_lines_of("/proc/self/status", "Name"), os.readlink("/proc/self/exe")]


def name_spaces(params):
    return sorted(os.readlink(f"/proc/self/ns/{name}") for name in os.listdir("/proc/self/ns"))


def cgroup(params):
    return open("/proc/self/cgroup").read()


def signals(params):
    asked = sorted(signal.valid_signals())
    return {
        "handlers": [str(signal.getsignal(number))[:40] for number in asked],
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "pending": sorted(signal.sigpending()),
        "wakeup": signal.set_wakeup_fd(-1),
        "timers": [signal.getitimer(n) for n in range(3)],
        "siginterrupt": signal.siginterrupt(signal.SIGTERM, True),
    }


def descriptors(params):
    found = {}
    for name in sorted(os.listdir("/proc/self/fd")):
        try:
            kind = os.readlink("/proc/self/fd/" + name)
        except OSError:
            continue  # that of the listing
        info = _lines_of(f"/proc/self/fdinfo/{name}", "flags")
        found[name] = [kind.partition(":")[0], info, os.get_inheritable(int(name))]
    return found


def pipes(params):
    import fcntl

    return [[fcntl.fcntl(fd, 1032), fcntl.fcntl(fd, 3), os.fstat(fd).st_mode] for fd in range(3)]


def streams(params):
    found = []
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        found.append(
            [
                stream is getattr(sys, f"__{name}__"), repr(stream), stream.name, stream.mode,
                stream.encoding, stream.errors, stream.newlines, stream.line_buffering,
                stream.write_through, stream.seekable(), stream.readable(), stream.writable(),
                stream.isatty(), stream.fileno(), stream.closed, type(stream.buffer).__name__,
                stream.buffer.name, getattr(stream.buffer, "mode", None), sorted(vars(stream)),
                type(getattr(stream.buffer, "raw", None)).__name__,
                str(getattr(getattr(stream.buffer, "raw", None), "closefd", None)),
            ]
        )  # fmt: skip
    return found


def tasks(params):
    return [
        os.listdir("/proc/self/task") == [str(os.getpid())],
        [[t.name, t.daemon, type(t).__name__] for t in threading.enumerate()],
        threading.active_count(), threading.current_thread() is threading.main_thread(),
        threading.stack_size(), sys.getswitchinterval(), len(sys._current_frames()),
        threading.current_thread().is_alive(),
    ]  # fmt: skip


def main_module(params):
    main = sys.modules["__main__"]
    shown = {name: str(value)[:60] for name, value in vars(main).items() if name[:2] == "__"}
    return [list(vars(main)), shown, main.__name__]


def own_module(params):
    shown = {name: str(globals().get(name))[:90] for name in list(globals()) if name[:2] == "__"}
    return [shown, list(globals()), type(__builtins__).__name__]


def frames(params):
    return [[f.f_code.co_name, f.f_code.co_filename, f.f_lineno] for f in _stack()]


def _stack():
    frame = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def stack_as_text(params):
    return traceback.format_stack()


def exception(params):
    return [str(sys.exc_info()), hasattr(sys, "last_type")]


def collector(params):
    return [gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.garbage, gc.callbacks]


def frozen_objects(params):
    return gc.get_freeze_count()


def words(params):
    return [
        locale.setlocale(locale.LC_ALL), locale.getpreferredencoding(), locale.getlocale(),
        sys.getdefaultencoding(), sys.getfilesystemencoding(), sys.getfilesystemencodeerrors(),
        locale.localeconv()["decimal_point"],
    ]  # fmt: skip


def interpreter(params):
    import faulthandler
    import tracemalloc

    return [
        sys.version, sys.hexversion, sys.platform, sys.getrecursionlimit(), sys.abiflags,
        sys.get_int_max_str_digits(), tracemalloc.is_tracing(), faulthandler.is_enabled(),
        sys.gettrace(), sys.getprofile(), str(sys.excepthook), str(sys.displayhook),
        str(sys.unraisablehook), str(threading.excepthook), str(sys.breakpointhook),
        sys.get_asyncgen_hooks(), sys.get_coroutine_origin_tracking_depth(), sys.getdlopenflags(),
        sys.is_finalizing(), hasattr(sys, "ps1"), sys.path_hooks and len(sys.path_hooks),
        sorted(name for name in vars(sys)), sys.float_repr_style, sys.maxsize,
    ]  # fmt: skip


def built_ins(params):
    import builtins

    return sorted(vars(builtins))


def decimals(params):
    import decimal

    return [str(decimal.getcontext()), decimal.Decimal(1) / 3]


def filters(params):
    return [str(warnings.filters), warnings.defaultaction, warnings.showwarning.__name__]


def clock(params):
    start = int(_lines_of("/proc/self/stat", str(os.getpid()))[0].split()[21])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - start / os.sysconf("SC_CLK_TCK")
    return {
        "zone": [time.tzname, time.timezone, time.daylight],
        "slack": open("/proc/self/timerslack_ns").read(),
        "young": time.process_time() < 5 and time.thread_time() < 5,
        "started lately": -1 < age < 60,
        "children's": resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime < 5,
    }


def processes(params):
    own = multiprocessing.current_process()
    return [
        own.name, own.daemon, own.pid == os.getpid(), multiprocessing.parent_process(),
        multiprocessing.active_children(), len(own.authkey), multiprocessing.get_start_method(),
        sorted(own._config),
    ]  # fmt: skip


def kernel(params):
    libc = ctypes.CDLL(None, use_errno=True)
    value = ctypes.c_int()

    def asked(option, *rest):
        result = libc.prctl(option, *(rest or (0, 0, 0, 0)))
        return [option, result]

    libc.prctl(2, ctypes.byref(value))
    found = {"PDEATHSIG": value.value}
    libc.prctl(37, ctypes.byref(value))
    found["CHILD_SUBREAPER"] = value.value
    for name, option in {
        "DUMPABLE": 3, "KEEPCAPS": 7, "SECCOMP": 21, "SECUREBITS": 27, "TIMERSLACK": 30,
        "NO_NEW_PRIVS": 39, "THP_DISABLE": 42, "IO_FLUSHER": 58,
    }.items():  # fmt: skip
        found[name] = asked(option)
    found["personality"] = libc.personality(0xFFFFFFFF)
    return found


def native_thread(params):
    """What the C library holds for this thread's number, and what hangs on it."""
    libc = ctypes.CDLL(None)
    libc.pthread_self.restype = ctypes.c_ulong
    libc.pthread_self.argtypes = ()
    libc.pthread_kill.argtypes = (ctypes.c_ulong, ctypes.c_int)
    got = []
    signal.signal(signal.SIGUSR1, lambda *_: got.append("got"))
    told = [libc.raise_(10) if hasattr(libc, "raise_") else getattr(libc, "raise")(10)]
    told.append(libc.pthread_kill(libc.pthread_self(), 10))
    signal.pthread_kill(threading.get_ident(), 10)
    signal.raise_signal(10)
    # A recursive mutex and one that checks are bound to the thread's number.
    for kind in (1, 2):
        attributes, mutex = (ctypes.c_char * 64)(), (ctypes.c_char * 64)()
        libc.pthread_mutexattr_init(attributes)
        libc.pthread_mutexattr_settype(attributes, kind)
        libc.pthread_mutex_init(mutex, attributes)
        told += [libc.pthread_mutex_lock(mutex), libc.pthread_mutex_lock(mutex)]
        told += [libc.pthread_mutex_unlock(mutex)]
    own = ctypes.c_uint.from_buffer(mutex, 8).value  # glibc's __owner
    clock = ctypes.c_int()
    told.append(
        libc.pthread_getcpuclockid(ctypes.c_ulong(libc.pthread_self()), ctypes.byref(clock))
    )
    return [told, len(got), own in (0, os.getpid()), libc.gettid() == os.getpid(), clock.value != 0]


def c_library(params):
    libc = ctypes.CDLL(None)

    class Pair(ctypes.Structure):
        _fields_ = [("x", ctypes.c_int), ("y", ctypes.c_double)]

    twice = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda n: 2 * n)
    libc.getppid.restype = ctypes.c_int
    return [twice(4), Pair(1, 2.5).y, libc.strlen(b"tide"), libc.getppid() == params["host"],
            ctypes.string_at(b"abc"), ctypes.get_errno()]  # fmt: skip


def locks(params):
    lock = threading.RLock()
    with lock, lock:
        held = repr(lock).partition(" object")[2][:40]
    condition = threading.Condition()
    found = []
    thread = threading.Thread(target=lambda: found.append(threading.current_thread().name))
    thread.start()
    thread.join()
    return [held.replace(str(threading.get_ident()), "me"), found, condition.acquire(False)]


def chance(params):
    """Nothing of it may be the same in two calls."""
    import random
    import secrets
    import uuid

    shared = random.random()
    return [shared, random.getrandbits(64), secrets.token_hex(4), str(uuid.uuid4()),
            os.urandom(4).hex(), random.Random().random(), random.SystemRandom().random(),
            next(__import__("tempfile")._get_candidate_names())]  # fmt: skip


def hash_of_text(params):
    return hash("tide")


def keys_of_processes(params):
    return [bytes(multiprocessing.current_process().authkey).hex()]


def started_at(params):
    import logging

    return time.time() - logging._startTime < 60


def profile(params):
    from importlib import metadata

    return [len(list(metadata.distributions(path=sys.path))), sys.stdlib_module_names is not None]


def execute(params, project):
    return [globals()[name](params) for name in params["case"].split()]


if __name__ == "__main__":
    given = json.load(sys.stdin)
    print(json.dumps([globals()[name](given) for name in given["case"].split()], default=str))
