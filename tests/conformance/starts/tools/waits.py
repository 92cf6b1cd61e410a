"""A call of a tool that has to be ended."""

import json
import os
import signal
import sys
import threading
import time


def _say_so(params):
    """Say whose call it is, to whoever waits for that."""
    if "begun" in params:
        with open(params["begun"], "w") as pipe:
            pipe.write(str(os.getpid()))


def nothing(params):
    return None


def sleeps(params):
    _say_so(params)
    time.sleep(60)


def says_something_and_sleeps(params):
    print("so far", flush=True)
    time.sleep(60)


def ignores(params):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(60)


def blocks(params):
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    time.sleep(60)


def hears(params):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
    try:
        _say_so(params)
        time.sleep(60)
    finally:
        with open(params["place"] + "/heard", "w") as file:
            file.write("heard")


def stops(params):
    os.kill(os.getpid(), signal.SIGSTOP)


def waits_for_a_child(params):
    if not os.fork():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)
    _say_so(params)
    os.wait()


def waits_for_a_child_that_left(params):
    if not os.fork():
        os.setsid()
        time.sleep(5)
        os._exit(0)
    os.wait()


def waits_for_a_thread(params):
    threading.Thread(target=time.sleep, args=(60,)).start()


def waits_at_its_end(params):
    import atexit

    atexit.register(time.sleep, 60)


def computes(params):
    _say_so(params)
    while True:
        pass


def reads_on(params):
    os.read(os.pipe()[0], 1)


def execute(params, project):
    return globals()[params["case"]](params)


if __name__ == "__main__":
    given = json.load(sys.stdin)
    print(json.dumps(globals()[given["case"]](given)))
