"""Without the extra, one clear error says what to install."""

import subprocess
import sys

from tests.mcp_clients import environ

WITHOUT = (
    "import sys; sys.modules['mcp'] = None; sys.modules['uvicorn'] = None\n"
    "from ryecore.cli import main; sys.argv = ['rye', 'mcp', 'serve']; main()"
)


def test_serving_without_the_extra_says_what_to_install(workspace):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        cwd=workspace.project,
        env=environ(workspace),
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'ryecore[mcp]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_of_the_sdk_is_imported_before_it_is_used():
    program = (
        "import sys, ryecore.mcp_server, ryecore.cli.mcp\n"
        "print([name for name in ('mcp', 'mcp_types', 'pydantic', 'uvicorn', 'starlette')"
        " if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]"
