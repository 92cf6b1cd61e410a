"""What every test may use."""

from pathlib import Path

import pytest

from tests.house import House


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Both event loops that the library promises."""
    return str(request.param)


@pytest.fixture
def house(tmp_path: Path) -> House:
    """A temporary project and user space with a key."""
    return House(tmp_path)
