"""A node behind TLS, and a caller without the extra."""

import subprocess
import sys
from pathlib import Path

import pytest

from ryecore.errors import RemoteUntrusted
from tests.certificates import make_certificates
from tests.remotes import connect
from tests.served_node import served_node
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio


async def test_a_tool_runs_over_tls_and_not_where_the_certificate_is_untrusted(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = workspace.shell("acme/a", "echo 1")
    tls = make_certificates(tmp_path)
    arguments = ["--tls-certificate", str(tls.certificate), "--tls-key", str(tls.key)]
    with served_node(tmp_path / "node", *arguments) as node:
        connect(workspace, node)
        async with workspace.open() as rye:
            with pytest.raises(RemoteUntrusted, match="certificate"):
                await rye.execute(ref, target="remote")
            with pytest.raises(RemoteUntrusted, match="certificate"):
                await rye.remotes.identify(node.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        async with workspace.open() as rye:
            assert (await rye.execute(ref, target="remote")).success


def test_without_the_extra_a_remote_says_what_to_install(workspace: Workspace) -> None:
    program = (
        "import sys; sys.modules['httpx2'] = None\n"
        "from ryecore.cli import main\n"
        "sys.argv = ['rye', 'remote', 'add', 'gpu', 'https://gpu.example']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**workspace.environ, "USER_SPACE": str(workspace.user)},
        cwd=workspace.project,
    )
    assert done.returncode == 2, done.stderr
    assert "pip install 'ryecore[remote]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_of_the_client_is_imported_before_it_is_used() -> None:
    program = (
        "import sys, ryecore, ryecore.cli.execute\n"
        "from ryecore import Rye\n"
        "Rye.open('.')\n"
        "print([name for name in sys.modules if name.startswith(('httpx2', 'ryecore.remote'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "[]", done.stderr
