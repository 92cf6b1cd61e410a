"""What the tests of items share."""

import pytest

from ryecore.items.spaces import Space, Spaces, built_in_space
from ryecore.lillux.keys import SigningKey
from tests.workspace import Workspace


@pytest.fixture
def spaces(workspace: Workspace) -> Spaces:
    """The spaces of the workspace, with a third-party bundle beside the built-in one."""
    return Spaces(
        Space("project", workspace.project / ".ai"),
        Space("user", workspace.user / ".ai"),
        (built_in_space(), Space("system", workspace.root / "bundle" / ".ai", "acme")),
    )


@pytest.fixture
def stranger() -> SigningKey:
    """A key that nobody knows."""
    return SigningKey.generate()
