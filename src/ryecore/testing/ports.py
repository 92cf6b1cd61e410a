"""Ports that stay free while the server on them is away."""

import errno
import secrets
import socket
from contextlib import suppress
from pathlib import Path

__all__ = ["free_port"]

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_DYNAMIC = "49152 65535"  # RFC 6335, where the system doesn't say
_REGISTERED, _PREFERRED, _MOST = 1_024, 24_000, 65_535


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 on which nothing listens.

    A port that the system picks (port 0) may go to any other program while a server is restarted.
    This one is outside of the range that the system picks from, so it stays free; where that range
    leaves no other port, the system picks this one, too.

    Returns:
        A port from 1,024 to 65,535, from 24,000 on where the range leaves some there.

    Source: RFC 6335, section 6.
    """
    dynamic = _RANGE.read_text() if _RANGE.exists() else _DYNAMIC
    least, most = map(int, dynamic.split())
    outside = [one for one in range(_REGISTERED, _MOST + 1) if not least <= one <= most]
    ports = [one for one in outside if one >= _PREFERRED] or outside
    secrets.SystemRandom().shuffle(ports)
    for port in (*ports, 0):
        with suppress(OSError), socket.socket() as one:
            one.bind(("127.0.0.1", port))
            return int(one.getsockname()[1])
    raise OSError(errno.EADDRINUSE, "no port of 127.0.0.1 is free")
