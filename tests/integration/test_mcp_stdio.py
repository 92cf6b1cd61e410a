"""Tools of MCP servers that are started here: through the chain, pinned, and however bad they are.

Each bad server is met twice: by a connector of one call, and by one that is kept.
"""

import os

import pytest

from ryecore import CallContext
from ryecore.display.text import StyledText
from ryecore.errors import (
    ChainError,
    ContentChanged,
    InputError,
    InvalidParameters,
    ItemNotFound,
    McpError,
    McpToolChanged,
    MissingExtra,
    RyeError,
    UnsignedItem,
)
from tests.interpreter import PYTHON
from tests.matrix import in_turn
from tests.mcp_items import (
    BOTH_WAYS,
    SERVER,
    mcp_tool,
    nothing_left,
    server_item,
    stdio_server,
    why,
)
from tests.npm import npm_set
from tests.pypi import pypi_program
from tests.workspace import Workspace, events

pytestmark = pytest.mark.usefixtures("forked_connectors")

MODEL = CallContext(capabilities=frozenset({"rye.execute.*"}))


# How a connector's process ends is tried on fresh ones.
FRESH = pytest.mark.fresh_processes


@pytest.fixture
def warm() -> bool:
    return True


def told(workspace: Workspace, ref: str) -> str:
    """What a person reads of a call that comes to nothing, whichever leaf the error is."""
    try:
        return why(workspace, ref)
    except RyeError as error:
        return str(error)


def shown(workspace: Workspace, ref: str) -> str:
    """What a terminal shows of a call that fails."""
    try:
        return workspace.execute(ref, {"text": "hi"}).render().plain()
    except RyeError as error:
        text = StyledText()
        text.failure(ref, error)
        return text.plain()


# published servers


def test_a_server_from_npm_is_called(workspace: Workspace):
    package = npm_set("mcp") / "node_modules/@modelcontextprotocol/server-everything"
    main = str(package / "dist/index.js")
    server_item(workspace, transport="stdio", command="node", args=[main])
    with workspace.sync() as rye:
        listed = {one["name"]: one for one in rye.execute("tool:mcp/servers/test").data["tools"]}
        for name in ("get-sum", "get-structured-content", "get-tiny-image"):
            mcp_tool(workspace, name, declared=listed[name])
        added = rye.execute("tool:mcp/test/get-sum", {"a": 2, "b": 40})
        weather = rye.execute("tool:mcp/test/get-structured-content", {"location": "New York"})
        image = rye.execute("tool:mcp/test/get-tiny-image")
    assert "42" in added.data["content"][0]["text"]
    assert added.metadata["pinned"] is True
    assert set(weather.data["structured_content"]) == {"temperature", "conditions", "humidity"}
    assert any(part["type"] == "image" and part["data"] for part in image.data["content"])


def test_a_server_from_pypi_is_called(workspace: Workspace):
    program = pypi_program("mcp-server-time")
    server_item(
        workspace,
        transport="stdio",
        command=str(program),
        args=["--local-timezone", "Europe/Paris"],
    )
    with workspace.sync() as rye:
        listed = {one["name"]: one for one in rye.execute("tool:mcp/servers/test").data["tools"]}
        ref = mcp_tool(workspace, "convert_time", declared=listed["convert_time"])
        asked = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        done = rye.execute(ref, asked)
    assert "21:00" in done.data["content"][0]["text"]


# a call


@FRESH
@BOTH_WAYS
def test_a_call_leaves_nothing_behind(workspace: Workspace, warm: bool):
    stdio_server(workspace)
    ref = mcp_tool(workspace, warm=warm)
    with nothing_left(workspace):
        done = workspace.execute(ref, {"text": "hello"})
    assert done.data == {"success": True, "content": [{"type": "text", "text": "hello"}]}


def test_a_tools_own_failure_is_a_failed_result(workspace: Workspace, warm: bool):
    stdio_server(workspace)
    done = workspace.execute(mcp_tool(workspace, "fail", warm=warm))
    assert (done.status, done.error) == ("error", "it would not")


def test_what_is_no_text_comes_as_it_is(workspace: Workspace):
    stdio_server(workspace)
    done = workspace.execute(mcp_tool(workspace, "image"))
    assert done.data["content"] == [{"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"}]


def test_a_servers_own_item_lists_its_tools_page_by_page(workspace: Workspace):
    stdio_server(workspace, "pages")
    listed = [one["name"] for one in workspace.execute("tool:mcp/servers/test").data["tools"]]
    assert listed == ["echo", "env", "fail", "image", "where", "hang", "a b/ü"]
    assert workspace.execute(mcp_tool(workspace, "where")).success


def test_tools_without_an_end_are_refused(workspace: Workspace, warm: bool):
    stdio_server(workspace, "endless-pages")
    assert "lists tools without an end" in why(workspace, mcp_tool(workspace, warm=warm))


@pytest.mark.parametrize(
    ("mode", "said"),
    [("refuses-to-list", "doesn't list its tools: not today"), ("lists-nonsense", "tools: ")],
)
def test_a_server_that_lists_no_tools_is_an_error_that_says_so(workspace, mode, said, warm):
    stdio_server(workspace, mode)
    error = why(workspace, mcp_tool(workspace, warm=warm))
    assert said in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("mode", "warm"),
    in_turn(["refuses-at-length", "fails-at-length", "errs-at-length"], [False, True]),
)
def test_the_error_of_a_server_is_bounded_where_it_is_shown(workspace, mode, warm):
    stdio_server(workspace, mode)
    ref = mcp_tool(workspace, warm=warm, max_output_bytes=64 << 20)
    outcome = shown(workspace, ref)
    assert len(outcome) < 40_000
    assert "more characters" in outcome


@pytest.mark.parametrize(
    ("mode", "warm"),
    in_turn(["endless-pages", "refuses-to-list", "lists-nonsense", "floods-line"], [True, False]),
)
def test_each_error_of_a_server_names_a_next_step(workspace, mode, warm):
    stdio_server(workspace, mode)
    outcome = shown(workspace, mcp_tool(workspace, warm=warm))
    assert "Update the server, or tell whoever maintains it." in outcome
    assert not any(line.strip() == "next:" for line in outcome.splitlines())


def test_a_dry_run_starts_nothing(workspace: Workspace):
    stdio_server(workspace)
    done = workspace.execute(mcp_tool(workspace), {"text": "hi"}, dry_run=True)
    assert done.status == "validation_passed"
    assert not (workspace.root / "pids").exists()


def test_parameters_are_checked_before_anything_is_started(workspace: Workspace):
    stdio_server(workspace)
    with pytest.raises(InvalidParameters):
        workspace.execute(mcp_tool(workspace), {"text": 7})
    assert not (workspace.root / "pids").exists()


# what is signed


def test_the_servers_item_is_verified_with_the_chain_and_shown(workspace: Workspace):
    server = stdio_server(workspace)
    done = workspace.execute(mcp_tool(workspace), {"text": "hi"}, trace=True)
    linked = done.to_dict()["linked_items"]
    assert [(one["item_id"], one["space"]) for one in linked] == [(server, "project")]
    assert server in [event["item_id"] for event in events(done.trace, "verify_integrity")]


def test_a_changed_server_is_noticed_between_two_calls(workspace: Workspace):
    stdio_server(workspace)
    ref = mcp_tool(workspace)
    with workspace.sync() as rye:
        assert rye.execute(ref, {"text": "hi"}).success
        path = workspace.path("tools/mcp/servers/test.yaml")
        path.write_text(path.read_text().replace('"good"', '"evil"'))
        with pytest.raises(ContentChanged):
            rye.execute(ref, {"text": "hi"})


def test_a_server_that_newly_shadows_another_is_noticed(workspace: Workspace):
    stdio_server(workspace)
    path = workspace.path("tools/mcp/servers/test.yaml")
    workspace.write("tools/mcp/servers/test.yaml", path.read_text().split("\n", 1)[1], space="user")
    path.unlink()
    ref = mcp_tool(workspace)
    with workspace.sync() as rye:
        assert rye.execute(ref, {"text": "hi"}).success
        workspace.write("tools/mcp/servers/test.yaml", "tool_type: mcp_server\n", sign=False)
        with pytest.raises(UnsignedItem):
            rye.execute(ref, {"text": "hi"})


def test_a_user_tool_does_not_use_a_projects_server(workspace: Workspace):
    stdio_server(workspace)
    mcp_tool(workspace)
    tool = workspace.path("tools/mcp/test/echo.yaml").read_text().split("\n", 1)[1]
    workspace.write("tools/acme/own.yaml", tool, space="user")
    with pytest.raises((ItemNotFound, ChainError)):
        workspace.execute("tool:acme/own", {"text": "hi"})


def test_a_tool_that_names_no_server_says_so(workspace: Workspace):
    workspace.yaml(
        "acme/none", executor_id="rye/core/runtimes/mcp/stdio", config={"tool_name": "x"}
    )
    with pytest.raises(ChainError, match="'server'"):
        workspace.execute("tool:acme/none", {"server": "mcp/servers/test"})


def test_parameters_do_not_choose_server_or_tool(workspace: Workspace):
    stdio_server(workspace)
    ref = mcp_tool(workspace, declared={"name": "echo"}, pinned=False)
    asked = {"text": "hi", "server": "x", "tool_name": "fail", "pin": "y"}
    assert workspace.execute(ref, asked).data["content"][0]["text"] == "hi"


@BOTH_WAYS
def test_a_server_gets_the_secret_that_its_item_names_and_no_other(
    workspace: Workspace, warm: bool
):
    workspace.environ |= {"A_TOKEN": "for-the-server", "OTHER_TOKEN": "for-nobody"}
    stdio_server(workspace, env={"A_TOKEN": "${A_TOKEN}"})
    ref = mcp_tool(workspace, "env", warm=warm)
    with workspace.sync() as rye:
        seen = [
            rye.execute(ref, {"name": name}).data["content"][0]["text"]
            for name in ("A_TOKEN", "OTHER_TOKEN")
        ]
    assert seen == ["for-the-server", "(unset)"]


def test_a_server_runs_in_the_project_unless_it_says_otherwise(workspace: Workspace):
    stdio_server(workspace)
    ref = mcp_tool(workspace, "where")
    assert workspace.execute(ref).data["content"][0]["text"] == str(workspace.project)
    (workspace.project / "below").mkdir()
    stdio_server(workspace, cwd="below")
    assert workspace.execute(ref).data["content"][0]["text"] == str(workspace.project / "below")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"transport": "carrier-pigeon"}, "must be stdio, http or sse"),
        ({"transport": "stdio"}, "command"),
        ({"transport": "stdio", "command": "x", "comand": "y"}, "comand"),
        ({"transport": "stdio", "command": "x", "timeout": -1}, "timeout"),
        ({"transport": "stdio", "command": "x", "args": ["${A_TOKEN}"]}, "looks like a secret"),
        ({"transport": "stdio", "command": "no-such-program"}, "not a program on the PATH"),
        ({"transport": "stdio", "command": "${NOT_SET}"}, "${NOT_SET}, which is not set"),
        ({"transport": "http", "url": "http://127.0.0.1:1/"}, "executor_id be rye/core"),
    ],
)
def test_a_server_that_says_nonsense_is_an_error_that_helps(workspace, config, said, warm):
    server_item(workspace, **config)
    assert said in told(workspace, mcp_tool(workspace, warm=warm))


def test_a_refusal_names_the_server(workspace: Workspace):
    server_item(workspace, transport="stdio", command="no-such-program")
    with pytest.raises(McpError) as refusal:
        workspace.execute(mcp_tool(workspace), {"text": "hi"})
    assert refusal.value.server == "mcp/servers/test"
    assert refusal.value.next_step


def test_a_program_inside_the_project_runs_when_it_is_trusted(workspace: Workspace, warm: bool):
    program = workspace.project / "server"
    program.write_text(f'#!/bin/sh\nexec {PYTHON} "$@"\n')
    program.chmod(0o755)
    stdio_server(workspace, command=str(program), args=[str(SERVER), "good"])
    ref = mcp_tool(workspace, warm=warm)
    assert "rye trust-project" in why(workspace, ref)
    trusting = {"trust_project_interpreters": True}
    assert workspace.execute(ref, {"text": "hi"}, opened=trusting).success


def test_it_is_said_when_the_sdk_is_missing(workspace: Workspace):
    interpreter = {"type": "own", "var": "X", "modules": {"no_such_module": "mcp"}}
    workspace.yaml(
        "acme/runtime",
        config={"command": "${X}"},
        env_config={"interpreter": interpreter},
    )
    workspace.yaml("acme/tool", executor_id="acme/runtime")
    with pytest.raises(MissingExtra, match=r"pip install 'ryecore\[mcp\]'") as refusal:
        workspace.execute("tool:acme/tool")
    assert refusal.value.extra == "mcp"


# pins


def test_a_tool_without_a_pin_runs_for_the_host_alone(workspace: Workspace):
    stdio_server(workspace)
    ref = mcp_tool(workspace, pinned=False)
    with workspace.sync() as rye:
        assert rye.execute(ref, {"text": "hi"}).metadata["pinned"] is False
        with pytest.raises(InputError, match="rye mcp pin mcp/servers/test echo"):
            rye.execute(ref, {"text": "hi"}, ctx=MODEL)
        mcp_tool(workspace)
        assert rye.execute(ref, {"text": "hi"}, ctx=MODEL).metadata["pinned"] is True


@BOTH_WAYS
def test_a_tool_that_changed_since_is_refused_with_the_difference(workspace: Workspace, warm: bool):
    stdio_server(workspace, "changed", str(workspace.root / "changed"))
    ref = mcp_tool(workspace, warm=warm)
    assert workspace.execute(ref, {"text": "hi"}).success
    (workspace.root / "changed").touch()
    if warm:
        with pytest.raises(McpToolChanged) as refusal:
            workspace.execute(ref, {"text": "hi"})
        document, error = refusal.value.to_dict(), str(refusal.value)
    else:
        done = workspace.execute(ref, {"text": "hi"})
        document, error = done.data, str(done.error)
    assert document["error_type"] == "mcp_tool_changed"
    assert "-  Says it again." in document["difference"]
    assert "+  Says it again, and sends it to me.\\u001b[2J" in document["difference"]
    assert "sends it to me" in error


@pytest.mark.parametrize("mode", ["changes-when-told", "changes"])
def test_a_tool_that_changes_during_a_session_is_refused(workspace: Workspace, mode: str):
    stdio_server(workspace, mode, str(workspace.root / "changed"))
    ref = mcp_tool(workspace)
    with workspace.sync() as rye:
        assert rye.execute(ref, {"text": "hi"}).success
        (workspace.root / "changed").touch()
        with pytest.raises(McpToolChanged):
            rye.execute(ref, {"text": "hi"})


def test_an_item_that_was_edited_under_its_old_pin_is_its_own_error(
    workspace: Workspace, warm: bool
):
    stdio_server(workspace)
    ref = mcp_tool(workspace, warm=warm)
    path = workspace.path("tools/mcp/test/echo.yaml")
    path.write_text(path.read_text().replace("Says it again.", "Says it better."))
    workspace.sign(path)
    said = "its pin is not that of its tool_name, description and config_schema"
    assert said in told(workspace, ref)


def test_a_tool_that_is_not_there_is_refused_with_those_that_are(workspace: Workspace, warm: bool):
    stdio_server(workspace)
    error = why(workspace, mcp_tool(workspace, "eco", warm=warm))
    assert 'offers no tool "eco"' in error
    assert '"echo"' in error


# bad servers


@pytest.mark.parametrize(
    ("server", "warm"),
    in_turn(
        [
            ("dies", "ended with exit code 7"),
            ("floods-line", "wrote a line of more than 15 MiB"),
            ("floods-notes", "sent more than 10000 messages that nobody asked for"),
        ],
        [True, False],
    ),
)
def test_a_server_that_breaks_off_in_a_call_is_a_failed_result(workspace, server, warm):
    mode, said = server
    stdio_server(workspace, mode)
    ref = mcp_tool(workspace, warm=warm)
    with nothing_left(workspace):
        done = workspace.execute(ref, {"text": "hi"})
    assert not done.success
    assert said in done.error


@pytest.mark.parametrize("mode", ["never-starts", "garbage", "wrong-id"])
def test_a_server_that_never_answers_is_given_up(workspace, mode, warm):
    stdio_server(workspace, mode, startup_timeout=1)  # what it writes first is quoted
    ref = mcp_tool(workspace, warm=warm)
    with nothing_left(workspace):
        error = why(workspace, ref)
    assert "was not ready within 1 s" in error
    if mode != "wrong-id":
        assert {"never-starts": "still thinking", "garbage": "what is this"}[mode] in error


@BOTH_WAYS
def test_a_call_that_hangs_ends_at_its_timeout(workspace: Workspace, warm: bool):
    stdio_server(workspace, "hangs", str(workspace.root / "called"))
    ref = mcp_tool(workspace, warm=warm)
    with nothing_left(workspace):
        error = why(workspace, ref, timeout_s=2)
    assert "did not end within 2 s" in error


def test_a_servers_own_timeout_bounds_its_calls(workspace: Workspace, warm: bool):
    stdio_server(workspace, "hangs", str(workspace.root / "called"), timeout=0.2)
    assert "timed out" in why(workspace, mcp_tool(workspace, warm=warm))


@FRESH
@pytest.mark.parametrize(("mode", "warm"), in_turn(["stubborn", "grandchild"], [True, False]))
def test_a_server_that_will_not_go_is_ended(workspace, mode, warm):
    stdio_server(workspace, mode)
    ref = mcp_tool(workspace, warm=warm)
    with nothing_left(workspace):
        assert workspace.execute(ref, {"text": "hi"}).success


def test_an_answer_that_is_too_large_is_a_failed_result(workspace: Workspace):
    stdio_server(workspace, "large")
    assert "1000000 are kept" in why(workspace, mcp_tool(workspace, max_output_bytes=1_000_000))
    large = workspace.execute(mcp_tool(workspace), {"text": ""}).data["content"][0]["text"]
    assert len(large) == 3_000_000


def test_a_user_program_that_lies_on_the_path_is_found(workspace: Workspace):
    folder = workspace.root / "bin"
    folder.mkdir()
    (folder / "my-server").symlink_to(PYTHON)
    workspace.environ["PATH"] += f"{os.pathsep}{folder}"
    stdio_server(workspace, command="my-server")
    assert workspace.execute(mcp_tool(workspace), {"text": "hi"}).success
