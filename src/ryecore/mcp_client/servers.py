"""What a server's signed item says of how it is reached. Pure.

Source: docs/design/runtimes.md#mcp; decisions 11 and 20.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from attrs import field, frozen

from ryecore.errors import ConfigError
from ryecore.lillux.schema import SchemaValidator
from ryecore.policy.command_lines import read_command_line
from ryecore.policy.environment import looks_like_credential

__all__ = ["HttpServer", "Server", "StdioServer", "fill_in", "read_server"]

_STARTUP_TIMEOUT_S: Final = 30.0
_IDLE_TIMEOUT_S: Final = 300.0


@frozen
class StdioServer:
    """A server that is started as a process, and talks on its standard streams.

    Attributes:
        command: A program on the PATH, or an absolute path.
        args: What follows it.
        cwd: Its working folder, below the project where it is relative; by default the folder of
            the space that its item comes from.
        timeout_s: How long one call may take; None leaves it to the chain's timeout.
        startup_timeout_s: How long it may take to say that it is ready.
        idle_timeout_s: How long it is kept without a call.
    """

    command: str
    args: tuple[str, ...] = ()
    cwd: str | None = None
    timeout_s: float | None = None
    startup_timeout_s: float = _STARTUP_TIMEOUT_S
    idle_timeout_s: float = _IDLE_TIMEOUT_S

    @property
    def transport(self) -> str:
        """The transport's name in the signed item."""
        return "stdio"


@frozen
class HttpServer:
    """A server that runs elsewhere.

    Attributes:
        transport: Streamable HTTP (`http`), or the older server-sent events (`sse`).
        url: Its endpoint.
        headers: What every request carries; it may hold secrets.
    """

    transport: Literal["http", "sse"]
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(factory=dict, repr=False)
    timeout_s: float | None = None
    startup_timeout_s: float = _STARTUP_TIMEOUT_S
    idle_timeout_s: float = _IDLE_TIMEOUT_S


Server = StdioServer | HttpServer

_TEXT: Final = {"type": "string", "minLength": 1}
_SECONDS: Final = {"type": "number", "exclusiveMinimum": 0, "maximum": 86400}
_TIMEOUTS: Final = {"timeout": _SECONDS, "startup_timeout": _SECONDS, "idle_timeout": _SECONDS}
_SCHEMAS: Final[Mapping[str, object]] = {
    "stdio": {
        "type": "object",
        "properties": {
            "transport": {"const": "stdio"},
            "command": _TEXT,
            "args": {"type": "array", "items": {"type": "string"}},
            "cwd": _TEXT,
            **_TIMEOUTS,
        },
        "required": ["transport", "command"],
        "additionalProperties": False,
    },
    "http": {
        "type": "object",
        "properties": {
            "transport": {"enum": ["http", "sse"]},
            "url": _TEXT,
            "headers": {
                "type": "object",
                "propertyNames": {"pattern": r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"},
                "additionalProperties": {"type": "string", "pattern": r"^[^\r\n\x00]*$"},
            },
            **_TIMEOUTS,
        },
        "required": ["transport", "url"],
        "additionalProperties": False,
    },
}
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


@cache
def _validator(form: str) -> SchemaValidator:
    return SchemaValidator(json.dumps(_SCHEMAS[form]))


def read_server(document: Mapping[str, Any], path: Path) -> Server:
    """Read a server's item.

    Args:
        document: What the item declares.
        path: Where it stands, for the error's text.

    Returns:
        How the server is reached, variables not yet filled in.

    Raises:
        ConfigError: It is no server, or says what can't be used; every problem is listed.
    """
    if document.get("tool_type") != "mcp_server":
        raise _unusable(path, ["its tool_type is not mcp_server"])
    config = document.get("config")
    if not isinstance(config, Mapping):
        raise _unusable(path, ["it has no config"])
    transport = config.get("transport")
    if transport not in ("stdio", "http", "sse"):
        raise _unusable(path, ["its config.transport is none of stdio, http and sse"])
    failures = _validator("stdio" if transport == "stdio" else "http").failures(json.dumps(config))
    if failures:
        where = [f"config.{one.path}".rstrip(".") for one in failures]
        problems = [f"{at}: {one.message}" for at, one in zip(where, failures, strict=True)]
        raise _unusable(path, problems)
    times = {
        f"{name}_s": float(config[name])
        for name in ("timeout", "startup_timeout", "idle_timeout")
        if name in config
    }
    if transport == "stdio":
        command, args = config["command"], tuple(config.get("args", ()))
        secrets = [
            name
            for text in (command, *args)
            for name, _ in _VARIABLE.findall(text)
            if looks_like_credential(name)
        ]
        if secrets:
            raise _unusable(
                path,
                [f"every process can read arguments, and ${{{secrets[0]}}} looks like a secret"],
                "Name the variable in env_config.env instead, which the server inherits.",
            )
        _check_programs(command, args, path)
        return StdioServer(command, args, config.get("cwd"), **times)
    return HttpServer(transport, config["url"], dict(config.get("headers", {})), **times)


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
    """Fill in `${VAR}` and `${VAR:-default}`; a value is never looked at again.

    Args:
        server: The server.
        environ: The environment of its process.
        path: Where its item stands, for the error's text.

    Raises:
        ConfigError: A variable is not set, or the URL is none that may be used.
    """
    fill = _filler(environ, path)
    if isinstance(server, StdioServer):
        return StdioServer(
            fill(server.command),
            tuple(map(fill, server.args)),
            fill(server.cwd) if server.cwd is not None else None,
            server.timeout_s,
            server.startup_timeout_s,
            server.idle_timeout_s,
        )
    url = fill(server.url)
    _check_url(url, path)
    return HttpServer(
        server.transport,
        url,
        {name: fill(value) for name, value in server.headers.items()},
        server.timeout_s,
        server.startup_timeout_s,
        server.idle_timeout_s,
    )


def _filler(environ: Mapping[str, str], path: Path) -> Callable[[str], str]:
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
        if "\n" in value or "\r" in value or "\0" in value:
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
