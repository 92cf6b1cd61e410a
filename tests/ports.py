"""Ports that stay free until a server of the tests is started on them."""

import random
import socket
from itertools import chain
from pathlib import Path

__all__ = ["free_port"]

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LEAST, _MOST = 24_000, 65_535


def free_port() -> int:
    """Return a port on which nothing listens, and which no other program is given by chance.

    Whoever asks the system for any port, or connects to somewhere, gets one of a range, which is
    left out here.
    """
    least, most = map(int, _RANGE.read_text().split())
    ports = [*chain(range(_LEAST, least), range(most + 1, _MOST + 1))]
    while True:
        port = random.choice(ports)
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
