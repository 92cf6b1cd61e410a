"""What a server's signed item says of how it is reached. Pure.

Source: docs/design/runtimes.md#mcp; decisions 11 and 20.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, cast
from urllib.parse import urlsplit

from attrs import evolve, field

from ryecore.convert.config import Check, ConfigProblem, Configuration, Reader
from ryecore.convert.fields import key
from ryecore.errors import ConfigError
from ryecore.frozen import frozen
from ryecore.policy.command_lines import read_command_line
from ryecore.policy.environment import looks_like_credential

__all__ = [
    "HttpServer",
    "IdentitySetting",
    "OAuthSetting",
    "Server",
    "StdioServer",
    "fill_in",
    "read_server",
    "url_of",
]

_STARTUP_TIMEOUT_S: Final = 30.0
_IDLE_TIMEOUT_S: Final = 300.0
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def _read_header(value: object) -> str:
    # Its text doesn't stand in the error: it may be a secret.
    if not isinstance(value, str) or any(character in value for character in "\r\n\0"):
        raise ValueError("must be text without a line end or a NUL")
    return value


_Text = Annotated[str, Check("text that is not empty", bool)]
_Seconds = Annotated[float, Check("above 0 and up to 86400", lambda value: 0 < value <= 86400)]
_HeaderName = Annotated[
    str, Check("the name of a header", lambda name: bool(_HEADER_NAME.fullmatch(name)))
]


@frozen
class StdioServer:
    """A server that is started as a process, and talks on its standard streams.

    `cwd` is relative to the project; by default, it is the folder of the item's space. `timeout_s`
    bounds a call (None: the chain's timeout), `startup_timeout_s` the start, `idle_timeout_s` the
    time without a call.
    """

    command: _Text
    args: tuple[str, ...] = ()
    cwd: _Text | None = None
    timeout_s: _Seconds | None = field(default=None, metadata=key("timeout"))
    startup_timeout_s: _Seconds = field(default=_STARTUP_TIMEOUT_S, metadata=key("startup_timeout"))
    idle_timeout_s: _Seconds = field(default=_IDLE_TIMEOUT_S, metadata=key("idle_timeout"))

    @property
    def transport(self) -> str:
        """The transport's name in the signed item."""
        return "stdio"


_AuthMethod = Literal["none", "client_secret_basic", "client_secret_post"]


@frozen
class IdentitySetting:
    """An enterprise's identity provider, which vouches for a person by their ID token.

    The token stands in a variable, or in a file that a login of the enterprise renews.
    """

    token_endpoint: _Text
    client_id: _Text
    client_secret: _Text | None = field(default=None, repr=False)
    id_token: _Text | None = field(default=None, repr=False)
    id_token_file: _Text | None = None
    scope: _Text | None = None


@frozen
class OAuthSetting:
    """How ryecore identifies itself at a server's authorization server.

    By default it registers itself, and a person logs in. `client_id` is one that was registered
    before, `client_metadata_url` the URL of a client's own document. The grant `client_credentials`
    takes no person: a client with a secret or a private key acts for itself. By `jwt_bearer` it
    presents an assertion: its platform's token, in a variable or a file, or what the identity
    provider of an enterprise gives for an ID token. With any of these, `issuer` names the
    authorization server that they are for, and no other one gets anything made with them.
    """

    grant: Literal["authorization_code", "client_credentials", "jwt_bearer"] = "authorization_code"
    client_id: _Text | None = None
    client_secret: _Text | None = field(default=None, repr=False)
    private_key: _Text | None = field(default=None, repr=False)
    signing_algorithm: _Text = "RS256"
    client_metadata_url: _Text | None = None
    token_endpoint_auth_method: _AuthMethod | None = None
    scope: _Text | None = None
    issuer: _Text | None = None
    assertion: _Text | None = field(default=None, repr=False)
    assertion_file: _Text | None = None
    identity: IdentitySetting | None = None

    @property
    def secrets(self) -> set[str]:
        """The values that errors leave out."""
        found = [self.client_secret, self.private_key, self.assertion]
        if self.identity is not None:
            found += [self.identity.client_secret, self.identity.id_token]
        return {one for one in found if one}


@frozen
class HttpServer:
    """A server elsewhere, over streamable HTTP (`http`) or the older server-sent events (`sse`).

    Its headers, and what it is told by OAuth, may hold secrets.
    """

    transport: Literal["http", "sse"]
    url: _Text = field(repr=False)
    headers: Mapping[_HeaderName, Annotated[str, Reader(_read_header)]] = field(
        factory=dict, repr=False
    )
    oauth: OAuthSetting | None = None
    timeout_s: _Seconds | None = field(default=None, metadata=key("timeout"))
    startup_timeout_s: _Seconds = field(default=_STARTUP_TIMEOUT_S, metadata=key("startup_timeout"))
    idle_timeout_s: _Seconds = field(default=_IDLE_TIMEOUT_S, metadata=key("idle_timeout"))


Server = StdioServer | HttpServer

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def read_server(document: Mapping[str, Any], path: Path) -> Server:
    """Read a server's item; a ConfigError lists every problem."""
    if document.get("tool_type") != "mcp_server":
        raise _unusable(path, ["its tool_type is not mcp_server"])
    config = document.get("config")
    if not isinstance(config, Mapping):
        raise _unusable(path, ["it has no config"])
    transport = config.get("transport")
    if transport not in ("stdio", "http", "sse"):
        raise _unusable(path, ["its config.transport must be stdio, http or sse"])
    try:
        if transport != "stdio":
            server: Server = Configuration.of(str(path), config).read(HttpServer)
        else:
            declared = {name: value for name, value in config.items() if name != "transport"}
            server = Configuration.of(str(path), declared).read(StdioServer)
    except ConfigError as error:
        found = cast("Sequence[ConfigProblem]", error.facts["problems"])
        # Without the values, which may be secrets.
        problems = [f"config.{one.in_file()}".partition(", not ")[0].rstrip(".") for one in found]
        raise _unusable(path, problems) from None
    if isinstance(server, HttpServer):
        _check_oauth(server.oauth, path)
        return server
    secrets = [
        name
        for text in (server.command, *server.args)
        for name, _ in _VARIABLE.findall(text)
        if looks_like_credential(name)
    ]
    if secrets:
        raise _unusable(
            path,
            [f"every process can read arguments, and ${{{secrets[0]}}} looks like a secret"],
            "Name the variable in env_config.env instead, which the server inherits.",
        )
    _check_programs(server.command, server.args, path)
    return server


def _check_oauth(oauth: OAuthSetting | None, path: Path) -> None:
    """Refuse a secret that doesn't say whose it is, and a client without what it presents.

    An MCP server names where its clients log in.

    Source: RFC 9728, section 7.6.
    """
    if oauth is None:
        return
    if oauth.grant == "jwt_bearer":
        identity = oauth.identity
        given = [oauth.assertion, oauth.assertion_file, identity]
        tokens = [identity.id_token, identity.id_token_file] if identity else [""]
        if sum(one is not None for one in given) != 1 or sum(map(bool, tokens)) != bool(identity):
            raise _unusable(
                path,
                ["its config.oauth presents not one assertion"],
                "Give one of assertion, assertion_file and identity, and to that one of id_token "
                "and id_token_file; then sign it again.",
            )
        if oauth.client_id is None:
            raise _unusable(path, ["its config.oauth has no client_id"])
    if (oauth.secrets or oauth.grant == "jwt_bearer") and oauth.issuer is None:
        raise _unusable(
            path,
            [
                "its config.oauth holds a secret and no issuer, so that it would go to whichever "
                "authorization server the MCP server names"
            ],
            "Name the authorization server that the client is registered at, such as "
            "issuer: https://auth.example, and sign it again.",
        )


def _check_programs(command: str, args: tuple[str, ...], path: Path) -> None:
    """Refuse a variable within a program that an interpreter reads: its value would become code."""
    words = [_VARIABLE.sub("\0", text) for text in (command, *args)]
    for index, program in read_command_line(words).programs.items():
        word = words[index] if index < len(words) else ""
        if "\0" in word and (program.is_attached or word.strip() != "\0"):
            found = _VARIABLE.search(args[index - 1])
            name = found[1] if found else ""
            raise _unusable(
                path,
                [f"${{{name}}} stands in a program that {program.interpreter} reads"],
                f'Let the program read its own environment, as with "${name}" in a shell, and '
                f'let the item let it through: env_config: {{env: {{{name}: "${{{name}}}"}}}}.',
            )


def fill_in(server: Server, environ: Mapping[str, str], path: Path) -> Server:
    """Fill in `${VAR}` and `${VAR:-default}`; a value is never expanded again."""
    fill = _filler(environ, path)
    if isinstance(server, StdioServer):
        return evolve(
            server,
            command=fill(server.command),
            args=tuple(map(fill, server.args)),
            cwd=fill(server.cwd) if server.cwd is not None else None,
        )
    url = fill(server.url)
    _check_url(url, path)
    headers = {name: fill(value) for name, value in server.headers.items()}
    return evolve(server, url=url, headers=headers, oauth=_filled(server.oauth, environ, path))


def url_of(document: Mapping[str, Any], environ: Mapping[str, str], path: Path) -> str | None:
    """Return the URL of a server's item, filled in; None for one that is started."""
    server = read_server(document, path)
    return None if isinstance(server, StdioServer) else _filler(environ, path)(server.url)


def _filled(
    oauth: OAuthSetting | None, environ: Mapping[str, str], path: Path
) -> OAuthSetting | None:
    if oauth is None:
        return None
    fill, fill_lines = _filler(environ, path), _filler(environ, path, may_have_lines=True)
    return evolve(
        oauth,
        client_id=fill(oauth.client_id) if oauth.client_id else None,
        client_secret=fill(oauth.client_secret) if oauth.client_secret else None,
        private_key=fill_lines(oauth.private_key) if oauth.private_key else None,
        assertion=fill(oauth.assertion) if oauth.assertion else None,
        assertion_file=fill(oauth.assertion_file) if oauth.assertion_file else None,
        identity=_filled_identity(oauth.identity, fill),
    )


def _filled_identity(
    identity: IdentitySetting | None, fill: Callable[[str], str]
) -> IdentitySetting | None:
    if identity is None:
        return None
    names = ("client_id", "client_secret", "id_token", "id_token_file")
    values = {name: getattr(identity, name) for name in names}
    return evolve(identity, **{name: fill(one) for name, one in values.items() if one})


def _filler(
    environ: Mapping[str, str], path: Path, *, may_have_lines: bool = False
) -> Callable[[str], str]:
    def value_of(match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        value = environ.get(name, default)
        if value is None:
            raise _unusable(
                path,
                [f"it needs ${{{name}}}, which is not set for it"],
                "Set it, and let the item let it through: "
                f'env_config: {{env: {{{name}: "${{{name}}}"}}}}.',
            )
        has_lines = "\n" in value or "\r" in value
        if "\0" in value or (has_lines and not may_have_lines):
            raise _unusable(path, [f"the value of ${{{name}}} holds a line end or a NUL"])
        return value

    return lambda text: _VARIABLE.sub(value_of, text)


def _check_url(url: str, path: Path) -> None:
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        has_user = parts.username is not None or parts.password is not None
        _ = parts.port
    except ValueError:
        is_usable, has_user = False, False
    if has_user:
        raise _unusable(path, ["its URL holds a user's name"], "Send a header instead.")
    if not is_usable:
        raise _unusable(path, ["its URL is not one of http or https"])


def _unusable(path: Path, problems: list[str], next_step: str = "") -> ConfigError:
    return ConfigError(
        f"The MCP server {path} can't be used: {'; '.join(problems)}.",
        next_step=next_step or "Mend it and sign it again.",
        path=path,
        problems=tuple(problems),
    )
