"""What an MCP server that is started finds around it: its environment and its working folder."""

from typing import Any

import pytest

from ryecore.errors import ConfigError
from tests.interpreter import PYTHON
from tests.matrix import in_turn
from tests.mcp_items import SERVER, mcp_tool, server_item, stdio_server
from tests.workspace import SpaceName, Workspace

pytestmark = pytest.mark.usefixtures("forked_connectors")

SHORT = {"HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "USER"}
# The interpreter of the test server sets this one itself.
OWN = {"LC_CTYPE"}


def said(
    workspace: Workspace, ref: str, parameters: dict[str, str] | None = None, **opened: object
) -> str:
    done = workspace.execute(ref, parameters or {}, opened=opened)
    return str(done.data["content"][0]["text"])


INHERITED: list[tuple[Any, set[str]]] = [
    ("safe", set()),
    ("none", set()),
    (["EDITOR"], {"EDITOR"}),
    ("all", {"EDITOR", "STRIPE_SK", "NODE_ENV", "RYE_PYTHON"}),
]


@pytest.mark.parametrize(("inherited", "warm"), in_turn(INHERITED, [True, False]))
def test_a_server_gets_a_short_list_of_variables_and_what_signed_elements_name(
    workspace: Workspace, inherited: tuple[Any, set[str]], *, warm: bool
) -> None:
    inherit, more = inherited
    workspace.environ |= dict.fromkeys(SHORT - workspace.environ.keys(), "x")
    workspace.environ |= {"STRIPE_SK": "1", "EDITOR": "vi", "NODE_ENV": "x", "ASKED": "2"}
    (workspace.project / ".env").write_text("FROM_ENV=3\nOTHER=4\nNODE_OPTIONS=--require=x\n")
    env = {"ASKED": "${ASKED}", "FROM_ENV": "${FROM_ENV}", "NODE_OPTIONS": "${NODE_OPTIONS}"}
    stdio_server(workspace, env=env)
    ref = mcp_tool(workspace, "env", warm=warm)
    with workspace.sync(inherit_env=inherit) as rye:
        names = set(rye.execute(ref, {}).data["content"][0]["text"].split())
        asked = rye.execute(ref, {"name": "FROM_ENV"}).data["content"][0]["text"]
        options = rye.execute(ref, {"name": "NODE_OPTIONS"}).data["content"][0]["text"]
    wanted = SHORT | more | {"MCP_TEST_PIDS", *env}
    assert names - OWN == wanted
    assert (asked, options) == ("3", "")


def test_a_server_whose_tools_are_listed_gets_the_same_variables(workspace: Workspace) -> None:
    workspace.environ["EDITOR"] = "vi"
    names = workspace.root / "names"
    script = f'tr "\\0" "\\n" < /proc/self/environ > {names}; exec {PYTHON} {SERVER} good'
    ref = (
        f"tool:{server_item(workspace, transport='stdio', command='/bin/sh', args=['-c', script])}"
    )
    assert workspace.execute(ref).data["success"]
    found = {line.partition("=")[0] for line in names.read_text().splitlines()}
    assert found - {"PWD", "_", "SHLVL"} == {"HOME", "LANG", "MCP_TEST_PIDS", "PATH"}


@pytest.mark.parametrize(
    ("space", "cwd", "expected"),
    [
        ("project", None, "project"),
        ("user", None, "user"),
        ("user", "{user}/below", "user/below"),
        ("user", ".", "project"),
        ("system", None, "user"),
    ],
)
def test_a_server_starts_in_the_folder_of_the_space_that_its_item_comes_from(
    workspace: Workspace, space: SpaceName, cwd: str | None, expected: str
) -> None:
    (workspace.user / "below").mkdir()
    folder = {} if cwd is None else {"cwd": cwd.format(user=workspace.user)}
    stdio_server(workspace, space=space, **folder)
    ref = mcp_tool(workspace, "where", space=space)
    assert said(workspace, ref) == str(workspace.root / expected)


def test_npx_finds_no_planted_copy_of_a_user_server(workspace: Workspace) -> None:
    """A stand-in for npx: it looks below its working folder first, as the real one does."""
    npx = workspace.root / "bin/npx"
    npx.parent.mkdir()
    npx.write_text(
        "#!/bin/sh\n"
        '[ -x "node_modules/.bin/$1" ] && exec "node_modules/.bin/$1"\n'
        f"exec {PYTHON} {SERVER} good\n"
    )
    planted = workspace.project / "node_modules/.bin/notes"
    planted.parent.mkdir(parents=True)
    planted.write_text(f"#!/bin/sh\ntouch {workspace.root}/PWNED\n")
    for program in (npx, planted):
        program.chmod(0o755)
    workspace.environ["PATH"] = f"node_modules/.bin:{planted.parent}:{npx.parent}:/usr/bin:/bin"
    stdio_server(workspace, space="user", command="npx", args=["notes"])
    assert said(workspace, mcp_tool(workspace, space="user"), {"text": "hi"}) == "hi"
    assert not (workspace.root / "PWNED").exists()
    path = said(workspace, mcp_tool(workspace, "env", space="user"), {"name": "PATH"})
    assert path == f"{npx.parent}:/usr/bin:/bin"


@pytest.mark.parametrize(
    ("config", "warm"),
    in_turn(
        [
            {"command": "${ACME_SERVER}"},
            {"command": PYTHON, "args": ["${ACME_SERVER}"]},
            {"command": "/bin/sh", "args": ["-c", "${ACME_SERVER}"]},
            {"command": "npx", "args": ["-y", "${ACME_SERVER}"]},
        ],
        [True, False],
    ),
)
def test_a_dotenv_chooses_no_server_and_the_refusal_says_so(
    workspace: Workspace, config: dict[str, object], *, warm: bool
) -> None:
    (workspace.project / ".env").write_text("ACME_SERVER=/bin/true\n")
    server_item(workspace, transport="stdio", **config)
    ref = mcp_tool(workspace, warm=warm)
    try:
        done = workspace.execute(ref, {"text": "hi"})
    except ConfigError as refused:
        text = str(refused)
    else:
        text = str(done)
    assert "${ACME_SERVER}, which is not set for it" in text
    assert "The project's .env did not set ACME_SERVER" in text
