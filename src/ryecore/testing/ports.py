"""Ports that stay free while the server on them is away."""

import secrets
import socket
from itertools import chain
from pathlib import Path

__all__ = ["free_port"]

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_DYNAMIC = "49152 65535"  # RFC 6335, where the system doesn't say
_LEAST, _MOST = 24_000, 65_535


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 on which nothing listens.

    A port that the system picks (port 0) may go to any other program while a server is restarted.
    This one is outside of the range that the system picks from, so it stays free.

    Returns:
        A port from 24,000 to 65,535.

    Source: RFC 6335, section 6.
    """
    dynamic = _RANGE.read_text() if _RANGE.exists() else _DYNAMIC
    least, most = map(int, dynamic.split())
    ports = [*chain(range(_LEAST, least), range(most + 1, _MOST + 1))]
    while True:
        port = secrets.choice(ports)
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
