"""How a server's item is read, and its variables filled in."""

from pathlib import Path

import pytest

from ryecore.errors import ConfigError
from ryecore.mcp_client.servers import HttpServer, StdioServer, fill_in, read_server

HERE = Path("/here/server.yaml")


def item(**config: object) -> dict[str, object]:
    return {"tool_type": "mcp_server", "config": config}


def test_a_stdio_server_is_read():
    found = read_server(
        item(transport="stdio", command="npx", args=["-y", "x"], timeout=5, startup_timeout=9), HERE
    )
    assert found == StdioServer("npx", ("-y", "x"), None, 5.0, 9.0)


def test_a_http_server_is_read():
    found = read_server(item(transport="http", url="https://a.b/mcp", headers={"X": "y"}), HERE)
    assert found == HttpServer("http", "https://a.b/mcp", {"X": "y"})
    assert read_server(item(transport="sse", url="https://a.b/sse"), HERE).transport == "sse"


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"config": {}}, "tool_type is not mcp_server"),
        ({"tool_type": "mcp_server"}, "no config"),
        (item(command="x"), "transport must be"),
        (item(transport="stdio", command=""), "config.command must be text"),
        (item(transport="stdio", command="x", url="https://a.b"), "url"),
        (item(transport="http", url="https://a.b", command="x"), "command"),
        (item(transport="http", url="https://a.b", headers={"a b": "c"}), "headers"),
        (item(transport="http", url="https://a.b", headers={"a": "b\r\nc: d"}), "headers"),
        (item(transport="stdio", command="x", timeout=0), "timeout"),
        (item(transport="stdio", comand="x"), "Did you mean 'command'"),
        (item(transport="stdio", command="x", yyy=1), r"Known: [\w, ]*\.( |$)"),
        (item(transport="stdio", command="x", args=["${A_KEY}", "${B_TOKEN}"]), "A_KEY"),
    ],
)
def test_what_can_not_be_used_says_why(broken: dict[str, object], said: str):
    with pytest.raises(ConfigError, match=said):
        read_server(broken, HERE)


@pytest.mark.parametrize(
    ("command", "args"),
    [("bash", ["-c", "run ${A}"]), ("npx", ["-y", "bash", "-c", "x ${A:-y}"]),
     ("python3", ["-cprint('${A}')"]), ("env", ["node", "--eval=f('${A}')"])],
)  # fmt: skip
def test_a_variable_within_a_program_is_refused(command: str, args: list[str]):
    with pytest.raises(ConfigError, match="stands in a program") as refusal:
        read_server(item(transport="stdio", command=command, args=args), HERE)
    assert "env_config" in refusal.value.next_step


def test_a_program_may_read_its_own_environment():
    server = item(transport="stdio", command="bash", args=["-c", 'run "$A"', "x", "--at=${A}"])
    assert read_server(server, HERE) == StdioServer("bash", ("-c", 'run "$A"', "x", "--at=${A}"))


def test_variables_are_filled_in_once():
    server = StdioServer("${DIR}/x", ("${A}", "${B:-none}", "$C", "{d}"), "${DIR}")
    filled = fill_in(server, {"DIR": "/bin", "A": "${DIR}"}, HERE)
    assert filled == StdioServer("/bin/x", ("${DIR}", "none", "$C", "{d}"), "/bin")


def test_a_variable_that_is_not_set_is_named_with_what_to_write():
    server = HttpServer("http", "https://a.b", {"Authorization": "Bearer ${A_TOKEN}"})
    with pytest.raises(ConfigError, match="A_TOKEN") as refusal:
        fill_in(server, {}, HERE)
    assert 'env_config: {env: {A_TOKEN: "${A_TOKEN}"}}' in refusal.value.next_step


def test_a_value_can_not_end_a_header():
    server = HttpServer("http", "https://a.b", {"X": "${A}"})
    with pytest.raises(ConfigError, match="line end"):
        fill_in(server, {"A": "b\r\nEvil: yes"}, HERE)


@pytest.mark.parametrize(
    "url", ["a.b/mcp", "file:///etc/passwd", "https://x:y@a.b/", "http://[::1"]
)
def test_a_url_that_is_none_is_refused(url: str):
    with pytest.raises(ConfigError):
        fill_in(HttpServer("http", "${URL}"), {"URL": url}, HERE)


@pytest.mark.parametrize("headers", ["hidden", {"a": "hidden\n"}, {"hid den": "hidden"}])
def test_an_error_does_not_show_the_values_of_headers(headers: object):
    with pytest.raises(ConfigError, match="headers") as refusal:
        read_server(item(transport="http", url="https://a.b", headers=headers), HERE)
    assert "hidden" not in str(refusal.value)


def test_secrets_are_not_shown():
    server = HttpServer("http", "https://a.b/mcp?key=hidden", {"Authorization": "hidden"})
    assert "hidden" not in repr(server)
