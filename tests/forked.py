"""Be a forked process, for who starts programs by their command line; see `tests.forking`.

`python -I -S tests/forked.py ADDRESS[=PYTHON] MODULE ARGS` hands over its streams, folder and
environment, and ends as that process ends. It imports as little as it can: it is started for each
of them.
"""

import _signal
import _socket
import marshal
import os
import sys


def main() -> None:
    status = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    address, _, python = sys.argv[1].partition("=")
    status.connect(address.replace("@", "\0"))
    wish = os.memfd_create("wish")
    args = sys.argv[2:]
    while args[0].startswith("-"):  # an option of the interpreter
        del args[0]
    said = {
        "args": args,
        "cwd": os.getcwd(),
        "env": dict(os.environ),
        "executable": python,
        "leads_group": os.getpgrp() == os.getpid(),
    }
    os.write(wish, marshal.dumps(said))
    handed = b"".join(one.to_bytes(4, sys.byteorder) for one in (0, 1, 2, wish))
    status.sendmsg([b"."], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, handed)])
    pid = int(status.recv(64))
    for number in range(3):
        os.close(number)
    for name in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP):
        _signal.signal(name, lambda number, _: os.kill(pid, number))
    code = os.waitstatus_to_exitcode(int(status.recv(64)))
    os._exit(code if code >= 0 else 128 - code)


main()
