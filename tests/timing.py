"""How much processor time a piece of work takes."""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["at_most_cpu"]


@contextmanager
def at_most_cpu(most_s: float) -> Iterator[None]:
    """Assert that a block takes less than so many seconds of a processor, in this thread.

    Other threads don't count, and nor does a search for garbage, which looks through all that the
    tests before have left.
    """
    is_collecting = gc.isenabled()
    gc.disable()
    begun_s = time.thread_time()
    try:
        yield
        assert time.thread_time() - begun_s < most_s
    finally:
        if is_collecting:
            gc.enable()
