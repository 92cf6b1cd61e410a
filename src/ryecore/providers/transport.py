"""How the adapters reach a provider's server: connections whose answers are bounded."""

from typing import Final

import httpx2

from ryecore.bounded_http import BodyBounds, BoundedTransport
from ryecore.providers.certificates import authorities

__all__ = ["MAX_ANSWER_BYTES", "MAX_TEXT_BYTES", "make_transport"]

MAX_ANSWER_BYTES: Final = 24 * 1024 * 1024
"""How large an answer may be that comes whole, or one event of a stream, by default."""

MAX_TEXT_BYTES: Final = 16 * 1024 * 1024
"""The same for models that make no media."""

_EVENTS_A_STREAM: Final = 4
_MAX_JSON_VALUES: Final = 1_000_000
_MAX_COPIED_BYTES: Final = 2**32


def make_transport(
    proxy: str | None, max_answer_bytes: int, limits: httpx2.Limits
) -> BoundedTransport:
    """A pool of connections that reads nothing of the environment and follows no redirect.

    Args:
        proxy: A proxy's address; None for none.
        max_answer_bytes: How large an answer may be that comes whole, or one event of a stream, in
            bytes. A whole stream may have four times as much.
        limits: How many connections there may be.
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
