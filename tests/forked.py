"""Be a forked process, for who starts programs by their command line; see `tests.forking`.

`python tests/forked.py ADDRESS MODULE ARGS` hands over its streams, folder and environment, and
ends as that process ends.
"""

import os
import signal
import socket
import sys


def main() -> None:
    import json

    status = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    status.connect(sys.argv[1].replace("@", "\0"))
    wish = os.memfd_create("wish")
    args = sys.argv[2:]
    while args[0].startswith("-"):  # an option of the interpreter
        del args[0]
    said = {
        "args": args,
        "cwd": os.getcwd(),
        "env": dict(os.environ),
        "leads_group": os.getpgrp() == os.getpid(),
    }
    os.write(wish, json.dumps(said).encode())
    socket.send_fds(status, [b"."], [0, 1, 2, wish])
    pid = int(status.recv(64))
    for number in range(3):
        os.close(number)
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(name, lambda number, _: os.kill(pid, number))
    code = os.waitstatus_to_exitcode(int(status.recv(64)))
    os._exit(code if code >= 0 else 128 - code)


main()
