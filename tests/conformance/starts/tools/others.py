"""Threads, loops and processes that a call of a tool leaves at its end."""

import atexit
import json
import os
import signal
import sys
import threading
import time


def note(params, text):
    """Say that something has happened, in a file, by itself: modules may be gone by then."""
    fd = os.open(params["place"] + "/notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, text.encode() + b"\n")
    os.close(fd)


def nothing(params):
    return None


def a_thread_that_goes_on(params):
    def late():
        time.sleep(0.05)
        print("late")
        note(params, "late")

    threading.Thread(target=late).start()
    atexit.register(note, params, "after it")


def a_thread_that_starts_another(params):
    def first():
        threading.Thread(target=note, args=(params, "second")).start()

    threading.Thread(target=first).start()


def a_daemon_that_goes_on(params):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    return "done"


def a_daemon_in_a_loop(params):
    def forever():
        while True:
            pass

    threading.Thread(target=forever, daemon=True).start()
    return "done"


def a_timer(params):
    threading.Timer(0.02, note, (params, "time is up")).start()


def a_lock_that_is_held(params):
    global lock  # noqa: PLW0603
    lock = threading.RLock()
    lock.acquire()


def an_executor(params):
    from concurrent.futures import ThreadPoolExecutor

    sys.kept = ThreadPoolExecutor(2)
    for number in range(3):
        sys.kept.submit(lambda n: (time.sleep(0.01 * n), note(params, f"task {n}")), number)


def an_executor_of_processes(params):
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    context = multiprocessing.get_context("fork")
    sys.kept = ProcessPoolExecutor(1, mp_context=context)
    return sys.kept.submit(abs, -3).result()


def a_loop_with_tasks(params):
    import asyncio

    async def long():
        try:
            await asyncio.sleep(60)
        finally:
            note(params, "cancelled")

    async def main():
        sys.kept = asyncio.create_task(long())
        await asyncio.sleep(0)
        return "done"

    return asyncio.run(main())


def a_loop_that_is_open(params):
    import asyncio

    sys.kept = asyncio.new_event_loop()
    return sys.kept.run_until_complete(asyncio.sleep(0, "done"))


def a_queue_between_processes(params):
    import multiprocessing

    sys.kept = multiprocessing.get_context("fork").Queue()
    sys.kept.put("x" * 10)
    return sys.kept.get()


def a_child(params):
    """It shares the group and the pipes, and would outlive the call."""
    if not os.fork():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)
        os._exit(0)
    return "done"


def a_child_that_returns(params):
    if not os.fork():
        return "child"
    os.wait()
    return "parent"


def a_child_that_fails(params):
    if not os.fork():
        raise ValueError("child")
    return os.wait()[1]


def a_child_that_exits(params):
    atexit.register(note, params, "farewell")
    if not os.fork():
        sys.exit(3)
    return os.wait()[1]


def a_child_that_left(params):
    """It leads a session of its own, holds the pipes, and outlives the call."""
    if not os.fork():
        os.setsid()
        time.sleep(1.5)
        os._exit(0)
    return "done"


def a_child_that_left_without_pipes(params):
    if not os.fork():
        os.setsid()
        os.closerange(0, 64)
        time.sleep(0.5)
        os._exit(0)
    return "done"


def a_dead_child(params):
    if not os.fork():
        os._exit(0)
    return "done"


def a_program_that_goes_on(params):
    import subprocess

    sys.kept = subprocess.Popen(["sleep", "60"])
    return "done"


def _run(params):
    found = globals()[params["case"]](params)
    if params.get("fails"):
        raise ValueError("and it failed")
    return found


def execute(params, project):
    return _run(params)


if __name__ == "__main__":
    print(json.dumps(_run(json.load(sys.stdin))))
