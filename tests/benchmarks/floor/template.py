"""A template by hand: forks a child for each message, and each child serves one call.

`python template.py TOOL PROJECT`, with a socket as its standard input. A message brings a child's
stdin, stdout and stderr; its answer is the child's pid. Only what the call itself needs is done in
the child: the tool is compiled and json is there before any is forked.
"""

import array
import gc
import json
import os
import signal
import socket
import sys


def _call(code: object, project: str) -> None:
    params = json.loads(os.read(0, 1 << 16))
    tool = {"__name__": "tool"}
    exec(code, tool)
    result = tool["execute"](params, project)
    os.write(1, json.dumps(result).encode())


def _main(path: str, project: str) -> None:
    with open(path, "rb") as source:
        code = compile(source.read(), path, "exec")
    control = socket.socket(fileno=os.dup(0))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # whoever ends is reaped at once
    gc.collect()
    gc.freeze()
    while True:
        message, sent, _, _ = control.recvmsg(1, socket.CMSG_SPACE(3 * 4))
        if not message:
            return
        streams = array.array("i", sent[0][2])
        pid = os.fork()
        if not pid:
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            os.closerange(3, max(streams) + 1)
            _call(code, project)
            os._exit(0)
        for stream in streams:
            os.close(stream)
        control.send(pid.to_bytes(4, "little"))


if __name__ == "__main__":
    _main(*sys.argv[1:])
