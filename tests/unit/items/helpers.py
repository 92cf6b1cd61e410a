"""Short ways that the tests of items share."""

import contextlib
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner, Result
from hypothesis import HealthCheck, settings

from ryecore.cli.commands import rye
from ryecore.items.signing import sign_content
from ryecore.items.spaces import Spaces
from ryecore.items.trust import TrustStore, render_trusted_key
from ryecore.items.verification import VerifiedItem, verify_item
from ryecore.lillux.keys import PublicKey, SigningKey
from tests.workspace import Workspace

# A fixture that is made once for all examples is what these tests want.
with_fixtures = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100
)

LONG_AGO, FAR_AHEAD = "2001-01-01T00:00:00Z", "2101-01-01T00:00:00Z"
PYTHON_TOOL = b'__version__ = "1.0.0"\n\nprint("hello")\n'


def verify(spaces: Spaces, path: Path, *host_keys: PublicKey) -> VerifiedItem:
    """Verify a file as a fresh process would."""
    return verify_item(path, TrustStore(spaces, host_keys))


def tool(workspace: Workspace, key: SigningKey, space: str = "project") -> Path:
    """Write a tool that this key has signed."""
    return workspace.write("tools/acme/x.py", PYTHON_TOOL, key=key, space=space)  # type: ignore[arg-type]


def key_file(
    workspace: Workspace,
    key: PublicKey,
    signer: SigningKey | None,
    space: str = "user",
    content: bytes | None = None,
    **options: str | bool,
) -> Path:
    """Write a trusted-key file, signed by `signer`, or by nobody."""
    name = f"keys/trusted/{key.fingerprint}.toml"
    label = "system:acme" if space == "system" else space
    content = content or render_trusted_key(key, "owner", **{"space": label, **options})  # type: ignore[arg-type]
    if signer is not None:
        content = sign_content(content, ".toml", "config", name, signer)[0]
    return workspace.write(f"config/{name}", content, space=space, sign=False)  # type: ignore[arg-type]


def run_rye(workspace: Workspace, *arguments: str) -> Result:
    """Run the `rye` command as a person would, in the project's folder."""
    alone = {**workspace.environ, "USER_SPACE": None, "RYE_SIGNING_KEY_DIR": None}
    with contextlib.chdir(workspace.project):
        return CliRunner().invoke(rye, arguments, env=alone)


def follow(workspace: Workspace, next_step: str) -> None:
    """Do what an error says: run the `rye` or `chmod` command that ends its next step."""
    start = min(at for word in ("rye ", "chmod ") if (at := next_step.find(word)) >= 0)
    words = shlex.split(next_step[start:].partition("), or")[0].removesuffix("."))
    if words[0] == "chmod":
        subprocess.run(words, check=True)
        return
    done = run_rye(workspace, *words[1:])
    assert done.exit_code == 0, done.output


def change(content: bytes, at: int, to: Callable[[int], int]) -> bytes:
    """The content with one byte changed."""
    return content[:at] + bytes([to(content[at])]) + content[at + 1 :]
