"""The wait before a retry."""

import math
from typing import Final

__all__ = ["backoff_s"]

_MAX_DOUBLINGS: Final = 64


def backoff_s(tried: int, base_s: float, cap_s: float, jitter: float = 1.0) -> float:
    """Return the seconds before the next attempt: exponential, with full jitter.

    Args:
        tried: The number of attempts so far, at least 1.
        base_s: The bound of the first wait, in seconds; each next one's is twice as long.
        cap_s: The bound of every wait, in seconds.
        jitter: A random number from 0 to 1, the waited share of the bound; 1 where not finite.

    Source: decision 50.
    """
    bound_s = min(base_s * 2.0 ** min(tried - 1, _MAX_DOUBLINGS), cap_s)
    return bound_s * (min(max(jitter, 0.0), 1.0) if math.isfinite(jitter) else 1.0)
