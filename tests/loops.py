"""For modules of tests that run on asyncio alone, where most of them ask nothing of the loop."""

from typing import Final

import pytest

__all__ = ["ON_BOTH_LOOPS"]

ON_BOTH_LOOPS: Final = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
"""A test that is to run on both all the same. The module says `asyncio` by its own fixture."""
