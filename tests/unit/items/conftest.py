"""What the tests of items share."""

import pytest

from ryecore.items.spaces import Space, Spaces, built_in_space
from ryecore.lillux.keys import SigningKey
from tests.house import House


@pytest.fixture
def spaces(house: House) -> Spaces:
    """The spaces of the house, with a third-party bundle beside the built-in one."""
    return Spaces(
        Space("project", house.project / ".ai"),
        Space("user", house.user / ".ai"),
        (built_in_space(), Space("system", house.root / "bundle" / ".ai", "acme")),
    )


@pytest.fixture
def stranger() -> SigningKey:
    """A key that nobody knows."""
    return SigningKey.generate()
