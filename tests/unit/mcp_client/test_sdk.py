"""The SDK's client is imported alone, or else whole."""

import subprocess
import sys
from pathlib import Path

IMPORTS = """\
import sys
sys.path[:0] = sys.argv[1:]
from ryecore.mcp_client.sdk import import_client
import_client()
roots = ("mcp", "starlette", "httpx2")
print(*sorted(name for name in sys.modules if name.partition(".")[0] in roots))
import mcp.client.session
print(mcp.client.session.ClientSession.__module__)
"""


def imported(*paths: Path) -> tuple[set[str], str]:
    """What a process has imported, and where it finds the session."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, *map(str, paths)],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    modules, found = done.stdout.splitlines()
    return set(modules.split()), found


def test_what_calls_servers_imports_no_server() -> None:
    modules, found = imported()
    assert "mcp.client.session" in modules
    assert not {"mcp.server", "starlette", "httpx2"} & modules
    assert found == "mcp.client.session"


def test_an_sdk_whose_client_needs_more_is_imported_whole(tmp_path: Path) -> None:
    for name, said in {
        "mcp/__init__.py": "NAME = 1",
        "mcp/client/__init__.py": "",
        "mcp/client/session.py": "from mcp import NAME\nclass ClientSession: pass",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(said)
    modules, found = imported(tmp_path)
    assert modules == set()
    assert found == "mcp.client.session"


BUILT = """\
from ryecore.mcp_client.sdk import import_client
import_client()
import mcp_types
from pydantic import BaseModel
class Own(BaseModel):
    x: int
print(mcp_types.CreateMessageRequest.__pydantic_complete__, Own.__pydantic_complete__)
params = {"messages": [], "maxTokens": 1}
asked = mcp_types.CreateMessageRequest.model_validate({"method": "sampling/createMessage",
                                                       "params": params})
print(asked.params.max_tokens)
from mcp.client.session import ClientResponse
from pydantic import TypeAdapter
print(ClientResponse.pydantic_complete, TypeAdapter(int | Own).pydantic_complete)
print(ClientResponse.validate_python({"roots": []}).roots)
"""


def test_the_sdks_models_are_built_when_they_are_used_and_no_others() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BUILT], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["False", "True", "1", "False", "True", "[]"]
