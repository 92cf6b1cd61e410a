"""Whose certificates vouch for a provider's server: the machine's own authorities."""

import ssl
from functools import lru_cache

import httpx2

__all__ = ["authorities"]


@lru_cache(maxsize=1)
def authorities() -> ssl.SSLContext:
    """The machine's authorities; read once, since that takes longer than to open a connection.

    They hold nothing of a call, and any number of pools, loops and threads may share them.
    """
    return httpx2.create_ssl_context(trust_env=False)
