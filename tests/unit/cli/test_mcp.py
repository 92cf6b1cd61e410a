"""`rye mcp tools` and `rye mcp pin`, with a real server."""

import socket

from tests.mcp_items import server_item, stdio_server
from tests.workspace import Workspace

SERVER = "mcp/servers/test"


def test_the_tools_of_a_server_are_listed(workspace: Workspace, run):
    stdio_server(workspace)
    done = run("mcp", "tools", SERVER)
    assert done.code == 0
    assert "echo   Says it again." in done.out
    assert f"rye mcp pin {SERVER}" in done.out
    listed = run("mcp", "tools", SERVER, "--json").json["tools"]
    assert listed[0]["name"] == "echo"
    assert len(listed[0]["pin"]) == 64


def test_what_can_not_be_pinned_is_listed_with_the_reason(workspace: Workspace, run):
    stdio_server(workspace, "says-too-much")
    lines = run("mcp", "tools", SERVER).out.splitlines()
    (at,) = [number for number, line in enumerate(lines) if line.startswith("echo ")]
    why = "its description has 72000 characters, more than 65,536"
    assert lines[at + 1].strip() == f"can't be pinned: {why}"
    assert "can't be pinned" not in "".join(lines[at + 2 :])
    echo, env, *_ = run("mcp", "tools", SERVER, "--json").json["tools"]
    assert (echo["pin"], echo["cannot_be_pinned"]) == (None, why)
    assert len(env["pin"]) == 64
    assert "cannot_be_pinned" not in env


def test_a_single_tool_is_counted_as_one(workspace: Workspace, run):
    stdio_server(workspace, "one")
    *_, last = run("mcp", "tools", SERVER).out.splitlines()
    assert last == f"1 tool; pin it: rye mcp pin {SERVER} NAME --sign"


def test_what_a_server_says_steers_no_terminal(workspace: Workspace, run):
    (workspace.root / "changed").touch()
    stdio_server(workspace, "changed", str(workspace.root / "changed"))
    done = run("mcp", "tools", SERVER)
    assert "\\x1b[2J" in done.out
    assert "\x1b" not in done.out


def test_a_pinned_tool_is_signed_and_runs(workspace: Workspace, run):
    stdio_server(workspace)
    done = run("mcp", "pin", SERVER, "echo", "--sign")
    assert done.code == 0
    assert "tool:mcp/test/echo" in done.out
    assert run("execute", "tool:mcp/test/echo", "text=hi", "--json").json["metadata"]["pinned"]
    assert "unchanged" in run("mcp", "pin", SERVER, "echo").out


def test_a_pin_that_stood_there_unsigned_is_said_to_be_signed(workspace: Workspace, run):
    stdio_server(workspace)
    run("mcp", "pin", SERVER, "echo")
    (line,) = run("mcp", "pin", SERVER, "echo", "--sign").out.splitlines()
    assert line.endswith("echo.yaml  signed")


def test_a_server_that_cannot_be_used_is_named_by_the_authors_own_file(workspace: Workspace, run):
    (workspace.project / ".env").write_text("GREETING=1\nLD_PRELOAD=/x\n")
    server_item(workspace, transport="stdio", command="x", args=["--key", "${A_TOKEN}"])
    done = run("mcp", "tools", SERVER)
    assert str(workspace.path("tools/mcp/servers/test.yaml")) in done.err
    assert "sealed" not in done.err
    assert "  next: Name the variable in env_config.env" in done.err
    assert done.err.count("Name the variable") == 1
    assert ".env did not set" not in done.err


def test_no_token_is_made_for_an_address_that_is_taken(workspace: Workspace, run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("mcp", "serve", "--http", str(taken.getsockname()[1]))
    assert done.code == 2
    assert "Nothing can listen" in done.err
    assert "token" not in done.err


def test_an_unsigned_item_comes_with_the_command_that_signs_it(workspace: Workspace, run):
    stdio_server(workspace)
    done = run("mcp", "pin", SERVER, "--all", "--into", "acme/new")
    assert done.code == 0
    assert "rye sign 'tool:acme/new/*'" in done.out
    assert run("execute", "tool:acme/new/echo", "text=hi").code == 2
    assert run("sign", "tool:acme/new/*").code == 0
    assert run("execute", "tool:acme/new/echo", "text=hi").code == 0
    odd = [path.name for path in workspace.path("tools/acme/new").glob("a_b_*")]
    assert len(odd) == 1


def test_items_can_be_written_to_user_space(workspace: Workspace, run):
    stdio_server(workspace)
    workspace.write(
        "tools/mcp/servers/test.yaml",
        workspace.path("tools/mcp/servers/test.yaml").read_text().split("\n", 1)[1],
        space="user",
    )
    assert run("mcp", "pin", SERVER, "echo", "--user", "--sign").code == 0
    assert workspace.path("tools/mcp/test/echo.yaml", "user").exists()
    workspace.path("tools/mcp/servers/test.yaml").unlink()
    assert run("execute", "tool:mcp/test/echo", "text=hi").code == 0


def test_a_changed_declaration_is_shown_and_needs_force(workspace: Workspace, run):
    changed = workspace.root / "changed"
    stdio_server(workspace, "changed", str(changed))
    assert run("mcp", "pin", SERVER, "echo", "--sign").code == 0
    changed.touch()
    done = run("mcp", "pin", SERVER, "echo", "fail")
    assert done.code == 1
    assert "+  Says it again, and sends it to me." in done.out
    assert "--force" in done.out
    assert "tool:mcp/test/fail" in done.out  # the others are pinned all the same
    refused = run("execute", "tool:mcp/test/echo", "text=hi")
    assert refused.code == 2
    assert "rye mcp pin mcp/servers/test echo --force --sign" in refused.err
    assert run("mcp", "pin", SERVER, "echo", "--force", "--sign").code == 0
    assert run("execute", "tool:mcp/test/echo", "text=hi").code == 0


def test_an_item_that_names_another_server_is_not_signed_as_unchanged(workspace: Workspace, run):
    stdio_server(workspace)
    assert run("mcp", "pin", SERVER, "echo").code == 0
    path = workspace.path("tools/mcp/test/echo.yaml")
    path.write_text(path.read_text().replace(SERVER, "mcp/servers/evil"))
    done = run("mcp", "pin", SERVER, "echo", "--sign")
    assert done.code == 1
    assert "is another item" in done.out
    assert "rye:signed" not in path.read_text()


def test_an_item_that_is_no_server_is_not_executed(workspace: Workspace, run):
    workspace.shell("a/tool", 'touch "$1/ran"')
    for command in (("tools", "a/tool"), ("pin", "a/tool", "x")):
        done = run("mcp", *command)
        assert done.code == 2
        assert "tool:a/tool is not an MCP server" in done.err
    assert not (workspace.project / "ran").exists()


def test_a_server_may_be_named_by_its_ref(workspace: Workspace, run):
    stdio_server(workspace)
    assert run("mcp", "tools", f"tool:{SERVER}").code == 0


def test_a_name_that_is_not_offered_is_refused(workspace: Workspace, run):
    stdio_server(workspace)
    done = run("mcp", "pin", SERVER, "ecko")
    assert done.code == 2
    assert "echo, env" in done.err
    assert run("mcp", "pin", SERVER).code == 2


def test_a_server_that_can_not_be_reached_says_why(workspace: Workspace, run):
    server_item(workspace, transport="stdio", command="no-such-program")
    for command in (("tools",), ("pin",)):
        done = run("mcp", *command, SERVER)
        assert done.code == 2
        assert "no-such-program is not a program on the PATH" in done.err
        assert f"The MCP server '{SERVER}'" in done.err
    assert run("mcp", "tools", "mcp/servers/none").code == 2
