"""MCP servers that want a person to log in: tokens are had once, kept privately, and renewed."""

import base64
import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from ryecore.errors import ConfigError, InputError, McpError
from ryecore.mcp_client.tokens import may_authorize
from ryecore.results import AuthorizationRequest
from tests.forking import ROOT, SERVERS, Forked
from tests.mcp_items import HTTP, mcp_tool, server_item
from tests.mcp_oauth_server import OAuthServer, oauth_server
from tests.workspace import Workspace

pytestmark = pytest.mark.usefixtures("forked_connectors")

SERVER = "mcp/servers/test"
ECHO = {"name": "echo", "inputSchema": {"type": "object"}}


@pytest.fixture
def server() -> Iterator[OAuthServer]:
    with oauth_server() as own:
        yield own


@pytest.fixture
def ref(workspace: Workspace, server: OAuthServer) -> str:
    """A pinned tool of the server."""
    server_item(workspace, transport="http", url=server.url)
    return mcp_tool(workspace, "echo", runtime=HTTP, declared=ECHO)


class Person:
    """A person who follows where the page leads."""

    redirect_uri = "http://127.0.0.1:9/callback"

    def __init__(self) -> None:
        self.asked: list[AuthorizationRequest] = []

    async def __call__(self, request: AuthorizationRequest, /) -> str:
        self.asked.append(request)
        return visit(request.url)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def visit(url: str) -> str:
    """Open a page, and return where it redirects to."""
    try:
        urllib.request.build_opener(_NoRedirects).open(url, timeout=10)
    except urllib.error.HTTPError as redirect:
        return str(redirect.headers["location"])
    raise AssertionError("it redirects")


def token_file(workspace: Workspace) -> Path:
    (found,) = (workspace.user / ".ai/state/mcp/tokens").iterdir()
    return found


def test_without_a_token_nothing_is_registered_and_the_error_says_to_log_in(
    workspace: Workspace, server: OAuthServer, ref: str
) -> None:
    with workspace.sync() as rye, pytest.raises(McpError) as refused:
        rye.execute(ref)
    assert f"rye mcp login {SERVER}" in refused.value.next_step
    assert "/register" not in server.seen


def test_a_hosts_own_handler_is_asked_once_and_the_token_is_kept_privately(
    workspace: Workspace, server: OAuthServer, ref: str
) -> None:
    person = Person()
    with workspace.sync(authorize=person) as rye:
        done = rye.execute(ref, trace=True)
        assert done.success
    assert [one.server for one in person.asked] == [SERVER]
    with workspace.sync() as rye:  # in another process, without anybody to ask
        assert rye.execute(ref).success
    kept = token_file(workspace)
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.parent.stat().st_mode & 0o777 == 0o700
    (token,) = server.tokens
    assert token in kept.read_text()
    assert token not in done.to_json()
    assert not [path for path in workspace.project.rglob("*") if path.is_file()
                and token.encode() in path.read_bytes()]  # fmt: skip


def test_an_expired_token_is_renewed_at_the_servers_own_endpoint_and_kept(
    workspace: Workspace, server: OAuthServer, ref: str
) -> None:
    server.lasts_s = 1
    with workspace.sync(authorize=Person()) as rye:
        assert rye.execute(ref).success
    (first,) = server.refresh_tokens
    server.seen.clear()
    server.forms.clear()
    server.tokens.clear()
    server.lasts_s = 3600
    with workspace.sync() as rye:
        assert rye.execute(ref).success
        assert rye.execute(ref).success
    assert [form["grant_type"] for form in server.forms] == ["refresh_token"]
    assert server.forms[0]["refresh_token"] == first
    assert "/register" not in server.seen
    (second,) = server.refresh_tokens
    assert json.loads(token_file(workspace).read_text())["tokens"]["refresh_token"] == second


def test_of_two_processes_one_renews_a_token_and_both_use_it(
    workspace: Workspace, server: OAuthServer, ref: str
) -> None:
    server.lasts_s = 1
    with workspace.sync(authorize=Person()) as rye:
        assert rye.execute(ref).success
    server.lasts_s = 3600
    server.forms.clear()
    # The first refresh waits so long for a second one, which would fail: a token counts once.
    server.meeting = threading.Barrier(2, timeout=0.5)

    def call(_: int) -> bool:
        with workspace.sync() as rye:  # with a connector of its own
            return rye.execute(ref).success

    with ThreadPoolExecutor(2) as threads:
        assert [*threads.map(call, range(2))] == [True, True]
    assert [form["grant_type"] for form in server.forms] == ["refresh_token"]


def test_no_code_and_no_secret_goes_over_plain_http(
    workspace: Workspace, server: OAuthServer, ref: str
) -> None:
    server.token_url = "http://tokens.example/token"
    with workspace.sync(authorize=Person()) as rye, pytest.raises(McpError) as refused:
        rye.execute(ref)
    assert "leads to http://tokens.example/token" in str(refused.value)
    assert "over https alone" in str(refused.value)


@pytest.mark.parametrize(
    ("url", "server_url", "may"),
    [
        ("https://auth.example/token", "https://notes.example/mcp", True),
        ("http://auth.example/token", "https://notes.example/mcp", False),
        ("http://127.0.0.1:8500/secrets", "https://notes.example/mcp", False),
        ("https://localhost/token", "https://notes.example/mcp", False),
        ("http://[::1]:9/token", "http://127.0.0.1:8/mcp", True),
        ("file:///etc/passwd", "https://notes.example/mcp", False),
    ],
)
def test_a_server_elsewhere_leads_to_nothing_within_this_machine(
    url: str, server_url: str, may: bool
) -> None:
    assert may_authorize(url, server_url) is may


def test_a_person_who_says_no_is_quoted(
    workspace: Workspace, server: OAuthServer, ref: str
) -> None:
    server.denies = True
    with workspace.sync(authorize=Person()) as rye, pytest.raises(McpError, match="access_denied"):
        rye.execute(ref)


def test_a_host_that_refuses_to_ask_gives_the_reason(
    workspace: Workspace, server: OAuthServer, ref: str
) -> None:
    class Nobody(Person):
        async def __call__(self, request: AuthorizationRequest, /) -> str:
            raise InputError("Nobody is at home.", next_step="Come back later.")

    with workspace.sync(authorize=Nobody()) as rye, pytest.raises(McpError, match="at home"):
        rye.execute(ref)


def test_a_token_file_that_others_may_read_is_refused(
    workspace: Workspace, server: OAuthServer, ref: str
) -> None:
    with workspace.sync(authorize=Person()) as rye:
        assert rye.execute(ref).success
    token_file(workspace).chmod(0o644)
    with workspace.sync() as rye, pytest.raises(ConfigError, match="others may read it"):
        rye.execute(ref)


def test_a_folder_of_tokens_is_closed_to_readers_and_of_no_use_where_others_write(
    workspace: Workspace, server: OAuthServer, ref: str
) -> None:
    with workspace.sync(authorize=Person()) as rye:
        assert rye.execute(ref).success
    folder = token_file(workspace).parent
    folder.chmod(0o755)
    with workspace.sync() as rye:
        assert rye.execute(ref).success
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o770)
    with workspace.sync() as rye, pytest.raises(ConfigError, match="others may write") as refused:
        rye.execute(ref)
    assert f"chmod 700 {folder}" in refused.value.next_step
    folder.chmod(0o700)
    elsewhere = folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to(elsewhere)
    with workspace.sync() as rye, pytest.raises(ConfigError, match="is a link") as refused:
        rye.execute(ref)
    assert f"rm {folder}. " in refused.value.next_step
    assert f"mv {elsewhere} {folder}. " in refused.value.next_step
    folder.unlink()
    elsewhere.rename(folder)
    with workspace.sync() as rye:
        assert rye.execute(ref).success


def test_a_secret_goes_to_the_authorization_server_alone_that_it_is_for(
    workspace: Workspace, server: OAuthServer
) -> None:
    oauth = {"client_id": "me", "client_secret": "a-secret-of-mine"}
    declared = {"transport": "http", "url": server.url}
    server_item(workspace, oauth=oauth, **declared)
    ref = mcp_tool(workspace, "echo", runtime=HTTP, declared=ECHO)
    with (
        workspace.sync(authorize=Person()) as rye,
        pytest.raises(ConfigError, match="holds a secret and no issuer") as refused,
    ):
        rye.execute(ref)
    assert "issuer: https://" in refused.value.next_step
    for grant in ("authorization_code", "client_credentials"):
        mine = {**oauth, "issuer": "https://auth.notes.example", "grant": grant}
        server_item(workspace, oauth=mine, **declared)
        with workspace.sync(authorize=Person()) as rye, suppress(McpError):
            rye.execute(ref)
    assert not any("a-secret-of-mine" in one for one in server.secrets)
    assert not any(base64.b64encode(b"me:a-secret-of-mine").decode() in one
                   for one in server.secrets)  # fmt: skip
    server_item(workspace, oauth={**oauth, "issuer": server.origin}, **declared)
    with workspace.sync(authorize=Person()) as rye:
        rye.execute(ref)
    assert base64.b64encode(b"me:a-secret-of-mine").decode() in server.secrets[-1]


def test_a_workload_presents_the_token_that_its_platform_keeps_in_a_file(
    workspace: Workspace, server: OAuthServer
) -> None:
    file = workspace.root / "token"
    oauth = {
        "grant": "jwt_bearer", "client_id": "workload", "issuer": server.origin,
        "assertion_file": str(file),
    }  # fmt: skip
    server_item(workspace, transport="http", url=server.url, oauth=oauth)
    ref = mcp_tool(workspace, "echo", runtime=HTTP, declared=ECHO)
    with workspace.sync() as rye, pytest.raises(McpError, match="can't be read"):
        rye.execute(ref)
    file.write_text("first-token\n")
    server.assertions = {"first-token"}
    with workspace.sync() as rye:
        assert rye.execute(ref).success
        file.write_text("second-token")  # the platform renews it
        server.assertions = {"second-token"}
        server.tokens.clear()
        server.refresh_tokens.clear()
        assert rye.execute(ref).success
    assert [form["assertion"] for form in server.forms] == ["first-token", "second-token"]
    assert {form["client_id"] for form in server.forms} == {"workload"}
    assert "/register" not in server.seen


def test_an_enterprises_identity_provider_vouches_for_a_person(
    workspace: Workspace, server: OAuthServer
) -> None:
    workspace.environ |= {"ID_TOKEN": "id-token-of-ada", "SECRET": "a-secret-of-mine"}
    identity = {
        "token_endpoint": f"{server.origin}/idp/token", "client_id": "at-idp",
        "id_token": "${ID_TOKEN}",
    }  # fmt: skip
    oauth = {
        "grant": "jwt_bearer", "client_id": "me", "client_secret": "${SECRET}",
        "issuer": server.origin, "identity": identity,
    }  # fmt: skip
    env = {"ID_TOKEN": "${ID_TOKEN}", "SECRET": "${SECRET}"}
    server_item(workspace, env=env, transport="http", url=server.url, oauth=oauth)
    ref = mcp_tool(workspace, "echo", runtime=HTTP, declared=ECHO)
    with workspace.sync() as rye:
        assert rye.execute(ref).success
    exchange, grant = server.forms
    assert (exchange["subject_token"], exchange["client_id"]) == ("id-token-of-ada", "at-idp")
    assert (exchange["audience"], exchange["resource"]) == (server.origin, server.url)
    assert grant["assertion"] in server.assertions
    assert "id-token-of-ada" not in json.dumps(grant)
    server_item(workspace, env=env, transport="http", url=server.url,
                oauth={**oauth, "assertion": "${SECRET}"})  # fmt: skip
    with workspace.sync() as rye, pytest.raises(ConfigError, match="not one assertion"):
        rye.execute(ref)


@pytest.mark.parametrize("nonce", ["", "a-nonce"])
def test_tokens_are_bound_to_a_key_that_is_kept_and_that_each_request_proves(
    workspace: Workspace, server: OAuthServer, ref: str, nonce: str
) -> None:
    server.binds, server.nonce, server.lasts_s = True, nonce, 1
    with workspace.sync(authorize=Person()) as rye:
        assert rye.execute(ref).success
    (first,) = {*server.keys.values()}
    kept = json.loads(token_file(workspace).read_text())
    assert "PRIVATE KEY" in kept["dpop_key"]
    with workspace.sync() as rye:  # by another process, which has to renew it
        server.nonce = nonce and "another-nonce"
        server.lasts_s = 3600
        assert rye.execute(ref).success
        assert rye.execute(ref).success
    assert {*server.keys.values()} == {first}
    assert len(server.keys) == 2
    assert len(server.proofs) == len({*server.proofs}) > 3
    request = urllib.request.Request(server.url, b'{"method": "tools/list", "id": 1}')
    (token,) = [one for one in server.tokens if one in token_file(workspace).read_text()]
    request.add_header("Authorization", f"DPoP {token}")  # without the key
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(request, timeout=10)
    kept = json.loads(token_file(workspace).read_text())
    token_file(workspace).write_text(json.dumps({**kept, "dpop_key": "not a key"}))
    with workspace.sync() as rye, pytest.raises(McpError, match="401") as refused:
        rye.execute(ref)
    assert f"rye mcp login {SERVER}" in refused.value.next_step


def command(workspace: Workspace, *words: str) -> Forked:
    pipe, environ = subprocess.PIPE, {**workspace.environ, "USER_SPACE": str(workspace.user)}
    words = ("ryecore.cli", "mcp", *words, "--project", str(workspace.project))
    streams = {"stdout": pipe, "stderr": pipe}
    return Forked(
        [*words], imported=SERVERS, executable=sys.executable, cwd=ROOT, env=environ, **streams
    )


def log_in(workspace: Workspace, *options: str) -> bytes:
    """Log in by the command, as a person with a browser; return what it says."""
    with command(workspace, "login", SERVER, "--no-browser", *options) as login:
        assert b"browser" in login.stderr.readline()
        back = visit(login.stderr.readline().decode().strip())
        urllib.request.urlopen(back, timeout=10).close()
        out, err = login.communicate(timeout=60)
    assert login.returncode == 0, err
    return bytes(out)


def test_the_command_logs_in_where_a_call_alone_asks_and_for_more_scopes(
    workspace: Workspace, server: OAuthServer, ref: str
) -> None:
    server.is_open = True
    with workspace.sync() as rye, pytest.raises(McpError) as refused:
        rye.execute(ref)
    assert f"rye mcp login {SERVER}. " in refused.value.next_step
    assert b"logged in; 1 tool" in log_in(workspace)
    with workspace.sync() as rye:
        assert rye.execute(ref).success
    server.call_scope = "notes:write"
    with workspace.sync() as rye, pytest.raises(McpError, match="403") as refused:
        rye.execute(ref)
    assert f"rye mcp login {SERVER} --scope notes:write" in refused.value.next_step
    assert b"logged in" in log_in(workspace, "--scope", "notes:write")
    with workspace.sync() as rye:
        assert rye.execute(ref).success
    with command(workspace, "login", SERVER, "--scope", 'a"b') as wrong:
        assert b"no scope has" in wrong.communicate(timeout=60)[1]


def test_no_login_is_needed_where_a_server_has_none(workspace: Workspace) -> None:
    with oauth_server() as plain:
        plain.metadata = lambda path: None  # type: ignore[method-assign]
        plain.is_open = True
        server_item(workspace, transport="http", url=plain.url)
        with command(workspace, "login", SERVER, "--no-browser") as login:
            out, err = login.communicate(timeout=60)
        assert login.returncode == 0, err
        assert b"no login was needed; 1 tool" in out
        assert "/register" not in plain.seen


def test_the_command_logs_in_by_the_loopback_address_and_logs_out(
    workspace: Workspace, server: OAuthServer, ref: str
) -> None:
    with command(workspace, "login", SERVER, "--no-browser") as login:
        assert b"browser" in login.stderr.readline()
        back = visit(login.stderr.readline().decode().strip())
        with urllib.request.urlopen(back, timeout=10) as page:
            assert "close this window" in page.read().decode()
        out, err = login.communicate(timeout=60)
    assert login.returncode == 0, err
    assert b"logged in; 1 tool" in out
    (token,) = server.tokens
    assert token.encode() not in out + err
    with workspace.sync() as rye:
        assert rye.execute(ref).success
    with command(workspace, "logout", SERVER) as logout:
        assert b"logged out" in logout.communicate(timeout=60)[0]
    with workspace.sync() as rye, pytest.raises(McpError, match="401"):
        rye.execute(ref)
