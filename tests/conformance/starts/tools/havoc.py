"""What a call of a tool can do to its process, its host and its template."""

import gc
import json
import os
import resource
import signal
import sys
import threading
import time


def state(params):
    """What the next call finds."""
    mask = os.umask(0)
    return {
        "folder": os.getcwd(),
        "mask": mask,
        "nice": os.nice(0),
        "limits": [resource.getrlimit(number) for number in range(16)],
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "handlers": [str(signal.getsignal(number))[:30] for number in signal.valid_signals()],
        "descriptors": [n for n in os.listdir("/proc/self/fd") if int(n) < 3],
        "threads": threading.active_count(),
        "text": json.dumps({"a": len("abc"), "sep": os.sep}),
        "path": sys.path,
        "variables": sorted(os.environ.items()),
        "modules": sorted(sys.modules),
        "collects": [gc.isenabled(), gc.get_threshold()],
        "priority": open("/proc/self/oom_score_adj").read(),
        "session": os.getsid(0) == os.getpid(),
        "affinity": sorted(os.sched_getaffinity(0)),
    }


nothing = state


def _templates(params):
    """The processes that this one may have been forked from, by the command that they show."""
    with open("/proc/self/cmdline", "rb") as file:
        own = file.read()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                same = file.read() == own
            with open(f"/proc/{name}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        is_forked = int(fields[6]) & 0x40  # and has not become another program since
        if same and int(fields[1]) == params["host"] and not is_forked:
            yield int(name)


def forks(params):
    for _ in range(4):
        if not os.fork():
            time.sleep(60)
            os._exit(0)


def starts_threads(params):
    for _ in range(20):
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()


def moves(params):
    os.chdir("/")
    os.umask(0o77)
    os.nice(5)
    os.environ.clear()
    os.environ["LEFT"] = "1"
    sys.path.clear()
    os.sched_setaffinity(0, {next(iter(os.sched_getaffinity(0)))})


def closes_everything(params):
    os.closerange(0, 1024)


def handles_signals(params):
    for number in signal.valid_signals() - {9, 19}:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    signal.setitimer(signal.ITIMER_REAL, 30)


def ends_at_once(params):
    os._exit(7)


def lowers_limits(params):
    for number, value in ((resource.RLIMIT_NOFILE, 4), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(number, (value, value))
    resource.setrlimit(resource.RLIMIT_CPU, (1, 1))


def changes_everything(params):
    import builtins

    json.dumps = len.__class__
    os.sep = "?"
    builtins.len = builtins.open = None
    gc.disable()
    gc.set_threshold(1)
    threading.Thread = None
    sys.modules["json"] = None
    sys.setrecursionlimit(50)
    sys.settrace(lambda *_: None)


def fills_its_output(params):
    for _ in range(20):
        os.write(1, b"." * (1 << 20))


def fills_the_disk(params):
    try:
        with open(params["disk"] + "/full", "wb", buffering=0) as file:
            while True:
                file.write(b"." * 4096)
    except OSError as error:
        return error.errno


def exhausts_memory(params):
    resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20))
    return bytearray(1 << 28)


def deletes_its_own_file(params):
    os.chmod(os.path.dirname(__file__), 0o700)
    os.unlink(__file__)


def kills_its_template(params):
    found = list(_templates(params))
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return len(found) > 0


def stops_its_template(params):
    found = list(_templates(params))
    for pid in found:
        os.kill(pid, signal.SIGSTOP)
    return len(found) > 0


def tells_its_template_to_end(params):
    found = list(_templates(params))
    for pid in found:
        os.kill(pid, signal.SIGTERM)
    return len(found) > 0


def speaks_on_every_descriptor(params):
    told = 0
    for number in range(3, 64):
        for speak in (lambda n: os.write(n, b"ready\0"), lambda n: os.read(n, 1)):
            try:
                speak(number)
                told += 1
            except OSError:
                pass
    return told


def leaves_a_child_with_its_pipes(params):
    if not os.fork():
        os.setsid()
        time.sleep(1)
        os._exit(0)
    return "left"


def kills_its_group(params):
    os.killpg(0, signal.SIGKILL)


def becomes_another_program(params):
    os.execv("/bin/true", ["true"])


def execute(params, project):
    return globals()[params["case"]](params)


if __name__ == "__main__":
    given = json.load(sys.stdin)
    print(json.dumps(globals()[given["case"]](given)))
