"""Short ways that the tests of items share."""

import contextlib
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner, Result
from hypothesis import HealthCheck, settings

from ryecore.cli.commands import rye
from ryecore.items.spaces import Spaces
from ryecore.items.trust import TrustStore
from ryecore.items.verification import VerifiedItem, verify_item
from ryecore.lillux.keys import PublicKey
from tests.house import House

# A fixture that is made once for all examples is what these tests want.
with_fixtures = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100
)

PYTHON_TOOL = b'__version__ = "1.0.0"\n\nprint("hello")\n'


def verify(spaces: Spaces, path: Path, *host_keys: PublicKey) -> VerifiedItem:
    """Verify a file as a fresh process would."""
    return verify_item(path, TrustStore(spaces, host_keys))


def run_rye(house: House, *arguments: str) -> Result:
    """Run the `rye` command as a person would, in the project's folder."""
    alone = {**house.environ, "USER_SPACE": None, "RYE_SIGNING_KEY_DIR": None}
    with contextlib.chdir(house.project):
        return CliRunner().invoke(rye, arguments, env=alone)


def follow(house: House, next_step: str) -> None:
    """Do what an error says: run the `rye` or `chmod` command that ends its next step."""
    start = min(at for word in ("rye ", "chmod ") if (at := next_step.find(word)) >= 0)
    words = shlex.split(next_step[start:].partition("), or")[0].removesuffix("."))
    if words[0] == "chmod":
        subprocess.run(words, check=True)
        return
    done = run_rye(house, *words[1:])
    assert done.exit_code == 0, done.output


def change(content: bytes, at: int, to: Callable[[int], int]) -> bytes:
    """The content with one byte changed."""
    return content[:at] + bytes([to(content[at])]) + content[at + 1 :]
