# rye:signed:2026-11-22T16:30:30Z:4af2e06a6d303b4b82c535bb94705b030b3bac05dbf594b608ad160b6ea250b4:di8O9IJia3FikJKKcrYooL8MQNdAdseWf5VxAbF1Tvm7G7D8AzTEO0owEsMyuClSYMSbN0D6gCyKddw_0LZ0Cg:23a2317a45110522
"""Hold an interpreter just before a call, and fork it ahead of each.

This runs inside the process of a Python runtime, at the line that the runtime's script marks with
`{fork_point}`, and never comes back there: its children do. Each waits for one byte, returns from
that line as if nothing had been there, serves one call and ends. Descriptor 3 is the way to the
host: a SOCK_SEQPACKET socket in the template, the pipe with the byte in a child.

A child is the host's own (CLONE_PARENT), which Python can't ask for by itself, hence ctypes. What is
imported for it leaves sys.modules before the first fork. Whatever can't be forked faithfully, such
as a second thread or an open descriptor, is refused: then each call starts cold.
"""

import _io
import _thread
import gc
import os
import sys
from _weakref import ref


class Unfit(Exception):
    """This process can't be a template; the text says why."""


# Imports that do something to the process which a fork doesn't carry over, or to the desktop.
UNFIT = ("antigravity", "idlelib", "readline", "rlcompleter", "this", "tkinter", "turtle")
KEPT = []  # what would only cost each child the time to take it apart
REHEARSED = compile("import sys\ndef execute(a, b):\n    return {}\nexecute(1, 2)\n", "t", "exec")
# Modules that hold what an ordinary exit alone lets go.
NATURAL = frozenset(["_ctypes", "_dbm", "_gdbm"])
BUFFERS = (_io.TextIOWrapper, _io.BufferedWriter, _io.BufferedRandom)
LITERALS = ("Constant", "Dict", "List", "Tuple", "Set", "UnaryOp", "USub", "UAdd", "Load")

PR_SET_PDEATHSIG, PR_GET_TID_ADDRESS, SIGKILL, SIGCHLD = 1, 40, 9, 17
CLONE_PARENT, CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID = 0x8000, 0x200000, 0x1000000
# Numbers of the system calls: clone, set_robust_list, get_robust_list.
CALLS = {"x86_64": (56, 273, 274), "aarch64": (220, 99, 100)}


def find(name):
    """The spec of a module that nothing has imported, by the tool's own path; None where none is."""
    specs = (finder.find_spec(name, None) for finder in sys.meta_path)
    return next(filter(None, specs), None)


def of_the_interpreter(origin):
    """Whether a module from there belongs to the interpreter itself."""
    if origin in ("built-in", "frozen"):
        return True
    inside = os.path.dirname(os.__file__) + "/"
    return bool(origin) and origin.startswith(inside) and "-packages/" not in origin


def is_standard(name):
    """Whether the tool gets the interpreter's own module when it imports `name`."""
    top = name.partition(".")[0]
    if top in UNFIT:
        return False
    spec = getattr(sys.modules.get(top), "__spec__", None) or find(top)
    return spec is not None and of_the_interpreter(spec.origin)


def is_literal(node):
    """Whether a node of a syntax tree is made of literals alone."""
    if type(node).__name__ not in LITERALS:
        return False
    for name in node._fields:
        value = getattr(node, name)
        for each in value if isinstance(value, list) else [value]:
            if hasattr(each, "_fields") and not is_literal(each):
                return False
    return True


def leading_imports(tree):
    """What a tool imports from the standard library before it does anything else."""
    for node in tree.body:
        kind = type(node).__name__
        if kind == "Import":
            names = [alias.name for alias in node.names]
        elif kind == "ImportFrom":
            names = [] if node.level else [node.module]
        elif kind == "Expr" and is_literal(node.value):
            continue
        elif kind == "Assign" and is_literal(node.value):
            if all(type(target).__name__ == "Name" for target in node.targets):
                continue
            return
        else:
            return
        if not names or not all(map(is_standard, names)):
            return
        yield node


def preload(settings):
    """Import what the settings ask for, and what the tool's own file begins with."""
    for name in settings["preload"]:
        __import__(name)
    path = settings["tool"]
    if path is None:
        return
    with open(path, "rb") as source:
        tree = compile(source.read(), path, "exec", 0x400, True)  # PyCF_ONLY_AST
    known = set(sys.modules)
    # The interpreter's own modules come from its own folders, with its own bytecode.
    everywhere, nowhere = sys.path[:], sys.pycache_prefix
    # A warning that the import of a module gives belongs to the call: as one to `__main__`, it is
    # seen here, and refuses the template.
    names = {"__name__": "__main__", "__file__": path}
    wanted = []
    for node in leading_imports(tree):
        wanted.append(compile(type(tree)([node], []), path, "exec", 0, True))
    defined = {type(node).__name__ for node in tree.body}
    if "AsyncFunctionDef" in defined and is_standard("asyncio"):
        wanted.append(compile("import asyncio", path, "exec", 0, True))
    try:
        sys.path[:] = [each for each in everywhere if of_the_interpreter(each + "/")]
        sys.pycache_prefix = None
        for code in wanted:
            exec(code, names)
    except ImportError:
        pass  # The tool itself shall say so, or deal with it.
    finally:
        sys.path[:], sys.pycache_prefix = everywhere, nowhere
    for name in set(sys.modules) - known:
        spec = getattr(sys.modules[name], "__spec__", None)
        if "." in name or spec is None or spec.origin in ("built-in", "frozen"):
            continue
        found = find(name)
        if found is None or found.origin != spec.origin:
            raise Unfit("another module stands in for " + name)


def read_files():
    """What this process has read, or found missing, that may be another thing later."""
    zone = os.path.join("/usr/share/zoneinfo", os.environ.get("TZ", "").lstrip(":"))
    seen = dict.fromkeys(["/etc/localtime", zone])
    for module in list(sys.modules.values()):
        spec = getattr(module, "__spec__", None)
        if spec is not None and spec.has_location and spec.origin:
            seen[spec.origin] = None
    for folder in sys.path:
        seen[folder] = None
        if os.path.isdir(folder):
            names = [name for name in os.listdir(folder) if name.endswith(".pth")]
            seen.update(dict.fromkeys(os.path.join(folder, name) for name in names))
    home = os.path.dirname(sys.executable)
    for folder in (home, os.path.dirname(home)):
        seen[os.path.join(folder, "pyvenv.cfg")] = None
    site = sys.modules.get("site")
    if site is not None and site.ENABLE_USER_SITE:
        seen[site.USER_SITE] = None
    with _io.open("/proc/self/maps", "rb") as maps:
        for library in {line.split(None, 5)[-1] for line in maps if b".so" in line}:
            seen[os.fsdecode(library).rstrip("\n").replace(" (deleted)", "")] = None
    return [path for path in seen if path]


def check_fit():
    """Refuse what a fork wouldn't carry over."""
    if len(os.listdir("/proc/self/task")) != 1:
        raise Unfit("it has more than one thread")
    with _io.open("/proc/self/maps", "rb") as maps:
        if any(line.split()[1][1::2] == b"ws" for line in maps):
            raise Unfit("it shares memory, which one call would leave to the next")
    for name in os.listdir("/proc/self/fd"):
        # One of them is the listing's own, and closed by now.
        if int(name) > 3 and os.path.exists("/proc/self/fd/" + name):
            raise Unfit("it has more open than its streams: descriptor " + name)


def make_stream(number):
    """Make the interpreter's stream for descriptor 0, 1 or 2 anew, for what stands there now."""
    name = ("stdin", "stdout", "stderr")[number]
    mode = "w" if number else "r"
    old = getattr(sys, "__" + name + "__")
    if old is None:
        raise Unfit("it has no sys." + name)
    unbuffered = number > 0 and isinstance(old.buffer, _io.FileIO)
    binary = _io.open(number, mode + "b", 0 if unbuffered else -1, closefd=False)
    (binary if unbuffered else binary.raw).name = "<" + name + ">"
    stream = _io.TextIOWrapper(
        binary,
        encoding=old.encoding,
        errors=old.errors,
        newline="\n",
        line_buffering=old.line_buffering or (not unbuffered and number > 0 and binary.isatty()),
        write_through=old.write_through,
    )
    stream.mode = mode
    setattr(sys, name, stream)
    setattr(sys, "__" + name + "__", stream)


def make_streams_for_pipes():
    """Have the streams that a call has, which remember of a descriptor that it is a pipe."""
    before = [os.dup(number) for number in range(3)]
    reading, writing = os.pipe()
    for number in range(3):
        os.dup2(writing if number else reading, number)
        make_stream(number)
    for number in range(3):
        os.dup2(before[number], number)
    for descriptor in (reading, writing, *before):
        os.close(descriptor)


def mend(number):
    """Take the script's mark, which is its line `number`, out of what the tool sees of its start."""
    for place, text in enumerate(getattr(sys, "orig_argv", ())):
        lines = text.split("\n")
        if len(lines) >= number and "read(3, 1 << 20)" in lines[number - 1]:
            lines[number - 1] = ""
            sys.orig_argv[place] = "\n".join(lines)


def refresh():
    """In a child: make anew what modules have kept of the time or the process."""
    threading = sys.modules.get("threading")
    if threading is not None:
        threading.main_thread()._set_native_id()
    logging = sys.modules.get("logging")
    if logging is not None:
        import time

        now = time.time_ns() if isinstance(logging._startTime, int) else time.time()
        logging._startTime = now
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        key = process.AuthenticationString(os.urandom(32))
        process.current_process()._config["authkey"] = key


def is_foreign(module):
    """Whether a module is compiled and not the interpreter's own: it may have an end of its own."""
    path = module.__dict__.get("__file__") if isinstance(module, type(sys)) else None
    bundled = os.path.dirname(os.__file__) + "/lib-dynload/"
    return isinstance(path, str) and path.endswith(".so") and not path.startswith(bundled)


def flush():
    """Flush what is printed, as an interpreter does at its end."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()


def is_something_left():
    """Whether anything of the call lives on, held by older modules, and has an end of its own."""
    for each in gc.get_objects():
        kind = type(each)
        if kind.__module__ == "sqlite3" or (hasattr(kind, "__del__") and kind.__module__ != "_io"):
            return True
    return False


def drop(modules, names):
    """Let the modules of a call go, and with them what they hold; say whether all of it went."""
    # What is written to a file stays, wherever the file is kept, and in whatever order things go.
    for each in gc.get_objects():
        if type(each) in BUFFERS and not each.closed:
            try:  # noqa: SIM105 - contextlib may not be there
                each.flush()
            except (OSError, ValueError):
                pass  # as when it is dropped
    each = None
    held = []
    for name in names:
        module = modules.pop(name, None)
        if isinstance(module, type(sys)):
            held.append(ref(module))
    module = None
    # First they go as anything goes that nobody refers to any more, each with all that it needs at
    # its end; then those that something still holds are emptied.
    gc.collect()
    if is_something_left():
        return False
    for each in held:
        module = each()
        if module is not None:
            values = module.__dict__
            for hidden in (True, False):
                for name in list(values):
                    if name != "__builtins__" and (name[:1] == "_") is hidden:
                        values[name] = None
    return True


def make_leave(script):
    """The way out of a call that went well, for the script whose names are given.

    It does what an ordinary exit does that anybody could notice, and spares the rest: taking the
    interpreter apart touches every page that the child shares with the template. Where more could
    be noticed than it covers, it is an ordinary exit.
    """
    modules = sys.modules
    is_known = "atexit" in modules
    import atexit

    if not is_known and sys.version_info >= (3, 10):  # before, a second one forgets the first
        del modules["atexit"]
    # At an ordinary exit the collector has all of it again, and it goes as it goes cold.
    atexit.register(gc.unfreeze)
    # All that is imported from here on stands behind it.
    modules["sys"] = modules.pop("sys")
    covered = not any(map(is_foreign, modules.values()))
    stop, registered = os._exit, atexit._ncallbacks()

    def leave(code=None):
        """End the process."""
        fresh = []
        for name in reversed(modules):
            if name == "sys":
                break
            fresh.append(name)
        code = 0 if code is None else code
        if (
            not covered
            or not isinstance(code, int)
            or not -(2**31) <= code < 2**31
            or sys.modules is not modules
            or "sys" not in modules
            or not NATURAL.isdisjoint(modules)
            or _thread._count()
            # What fails of them is shown without this frame.
            or atexit._ncallbacks() != registered
            or any(is_foreign(modules[name]) for name in fresh)
        ):
            raise SystemExit(code)
        try:
            if "threading" in modules:
                modules["threading"]._shutdown()
            atexit.unregister(gc.unfreeze)
            atexit._run_exitfuncs()
            flush()
        except BaseException:
            gc.unfreeze()
            raise SystemExit(code) from None
        try:
            sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
            script.clear()
            is_all = drop(modules, ["__main__", *fresh])
            flush()
        except BaseException:
            stop(120)
        if not is_all:
            gc.unfreeze()
            raise SystemExit(code)
        stop(code)

    return leave


def make_fork():
    """A function that forks a child of the host, and the one that ties a child to it."""
    import ctypes

    machine = os.uname().machine
    libc, api = ctypes.PyDLL(None, use_errno=True), ctypes.pythonapi
    if not hasattr(libc, "gnu_get_libc_version"):
        # Another one keeps something else at the address that is asked for below.
        raise Unfit("the C library isn't glibc")
    address, head, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
    if libc.prctl(PR_GET_TID_ADDRESS, ctypes.byref(address), 0, 0, 0) or not address.value:
        raise Unfit("the kernel doesn't tell where the C library keeps a thread's number")
    clone, set_robust, get_robust = map(ctypes.c_long, CALLS[machine])
    call, prctl = libc.syscall, libc.prctl
    call.restype = ctypes.c_long
    call(get_robust, ctypes.c_long(0), ctypes.byref(head), ctypes.byref(size))
    flags = CLONE_PARENT | CLONE_CHILD_CLEARTID | CLONE_CHILD_SETTID | SIGCHLD
    flags, zero = ctypes.c_long(flags), ctypes.c_long(0)
    rest = (address, zero) if machine == "x86_64" else (zero, address)
    before, in_parent = api.PyOS_BeforeFork, api.PyOS_AfterFork_Parent
    in_child = api.PyOS_AfterFork_Child
    before.restype = in_parent.restype = in_child.restype = None
    host = os.getppid()

    def fork():
        before()
        pid = call(clone, flags, zero, zero, *rest)
        if pid:
            in_parent()
        else:
            in_child()
            call(set_robust, head, size)
        return pid

    def tie():
        prctl(PR_SET_PDEATHSIG, SIGKILL)
        if os.getppid() != host:
            os._exit(0)

    return fork, tie, ctypes.get_errno


def rehearse():
    """In a child that waits: do what nearly every call does, so that its pages are its own by then.

    Most of what a call costs is the copying of pages that it writes to for the first time.
    """
    util, json = sys.modules.get("importlib.util"), sys.modules.get("json")
    if util is not None:
        util.module_from_spec(util.spec_from_file_location("rehearsed", "/a/rehearsed.py"))
    if json is not None:
        given = json.loads(b'{"a": [1, 2.5, "b", null, true], "c": {}}')
        with _io.open("/dev/null", "w") as out:
            json.dump(given, out, default=str)
    exec(REHEARSED, type(sys)("rehearsed").__dict__)
    flush()
    drop({}, [])


def become_child(descriptors, tie, control):
    """In a child: take the call's streams, and wait for it."""
    os.setsid()
    tie()
    for number in range(3):
        os.dup2(descriptors[number], number)
        if os.fstat(number).st_mode & 0o170000 != 0o010000:
            make_stream(number)  # no pipe
    control.detach()
    os.dup2(descriptors[3], 3)
    for descriptor in descriptors:
        os.close(descriptor)
    try:
        refresh()
        rehearse()
    except Exception:
        os._exit(0)  # its call starts cold
    if not os.read(3, 1):
        os._exit(0)
    os.close(3)


def prepare(script):
    """Get everything ready for the first fork: the ready message, the fork function, the socket."""
    # Read first: a socket that is closed with something unread in it takes the refusal along.
    asked = os.read(3, 1 << 20)
    version, machine = sys.version_info, os.uname().machine
    if sys.implementation.name != "cpython" or version < (3, 8) or "t" in sys.abiflags:
        raise Unfit("it is no CPython from 3.8 on with a global lock")
    if sys.platform != "linux" or machine not in CALLS or sys.maxsize < 2**32:
        raise Unfit("nobody knows how to fork a child of the host on " + machine)
    own = set(sys.modules)
    import json

    settings = json.loads(asked)
    for name in set(sys.modules) - own:
        del sys.modules[name]
    preload(settings)
    own = set(sys.modules)
    import _socket

    control = _socket.socket(fileno=3)
    fork = make_fork()
    for name in set(sys.modules) - own:
        del sys.modules[name]
    check_fit()
    make_streams_for_pipes()
    files = read_files()
    script["leave"] = make_leave(script)
    gc.collect()
    gc.freeze()
    return control, fork, files


def serve(script, number):
    """Fork a child for each message of the host; this returns in the children alone."""
    try:
        control, (fork, tie, errno), files = prepare(script)
        KEPT.extend((control, fork, tie, errno, sys._getframe(), sys._getframe(1).f_code))
        mend(number)
    except BaseException as failure:
        reason = str(failure) if isinstance(failure, Unfit) else type(failure).__name__
        os.write(3, b"no\0" + reason.encode("utf-8", "replace")[:4000])
        os._exit(0)
    control.send(b"\0".join([b"ready", *map(os.fsencode, files)]))
    while True:
        message, received, _, _ = control.recvmsg(16, 64)
        if not message:
            os._exit(0)
        descriptors = [fd for _, _, data in received for fd in memoryview(data).cast("i")]
        if len(descriptors) != 4:
            for descriptor in descriptors:
                os.close(descriptor)
            control.send(b"no\0a fork takes four descriptors")
            continue
        pid = fork()
        if not pid:
            become_child(descriptors, tie, control)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        control.send(b"%d" % pid if pid > 0 else b"no\0" + os.strerror(errno()).encode())


serve(script, sys._getframe(1).f_lineno)  # noqa: F821 - the runtime's line gives it
