"""Connections to a provider's server, whose answers are bounded."""

from typing import Final

import httpx2

from ryecore.bounded_http import BodyBounds, BoundedTransport
from ryecore.providers.certificates import authorities

__all__ = ["MAX_ANSWER_BYTES", "MAX_TEXT_BYTES", "make_transport"]

MAX_ANSWER_BYTES: Final = 24 * 1024 * 1024
"""The default bound, in bytes, of an answer that comes whole and of one event of a stream."""

MAX_TEXT_BYTES: Final = 16 * 1024 * 1024
"""The same for models that make no media."""

_EVENTS_A_STREAM: Final = 4
_MAX_JSON_VALUES: Final = 1_000_000
_MAX_COPIED_BYTES: Final = 2**32


def make_transport(
    proxy: str | None, max_answer_bytes: int, limits: httpx2.Limits
) -> BoundedTransport:
    """Return a pool of connections that ignores the environment and follows no redirect.

    Args:
        proxy: A proxy's address; None for none.
        max_answer_bytes: How large an answer may be that comes whole, or one event of a stream, in
            bytes. A whole stream may have four times as much.
        limits: The bounds of the number of connections.
    """
    transport = httpx2.AsyncHTTPTransport(
        verify=authorities(), trust_env=False, proxy=proxy, limits=limits
    )
    bounds = BodyBounds(
        max_answer_bytes,
        max_answer_bytes * _EVENTS_A_STREAM,
        _MAX_JSON_VALUES,
        _MAX_COPIED_BYTES,
    )
    return BoundedTransport(transport, bounds)
