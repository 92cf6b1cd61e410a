"""The policy for commands, domains and paths in a tool's arguments."""

import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from attrs import field, validators

from ryecore.errors import HostCapabilityMissing, ToolPolicyError
from ryecore.frozen import frozen
from ryecore.tools.context import ToolContext
from ryecore.tools.failures import quoted

__all__ = [
    "Target",
    "ToolPolicy",
    "apply_policy",
    "check_domain",
    "is_listed",
    "is_listed_command",
    "resolve_path",
    "target_of",
    "words_of",
]

_ENDS_OR_JOINS = frozenset(";&|<>()`$\n\r#")


def words_of(command: object) -> tuple[str, ...]:
    """Return the words of exactly one command: a text as for a shell, or a list of words.

    A ValueError says that a shell would read more than one in it.
    """
    if isinstance(command, list | tuple):
        if not command or not all(isinstance(word, str) for word in command):
            raise ValueError("it has to be a list of words, at least one")
        return tuple(command)
    if not isinstance(command, str):
        raise ValueError("it isn't text")
    _refuse_shell_syntax(command)
    try:
        words = shlex.split(command)
    except ValueError:
        raise ValueError("its quotes don't match") from None
    if not words:
        raise ValueError("it is empty")
    return tuple(words)


def is_listed_command(words: tuple[str, ...], listed: Iterable[str]) -> bool:
    """Return whether a command begins with the words of a listed one."""
    return any(
        words[: len(one)] == one for one in (tuple(entry.split()) for entry in listed) if one
    )


def _refuse_shell_syntax(command: str) -> None:
    """Refuse syntax that a shell reads as more than one plain command."""
    if "\0" in command:
        raise ValueError("it holds a NUL character")
    quote, is_escaped = "", False
    for character in command:
        if is_escaped:
            is_escaped = False
            if character in "\n\r":
                raise ValueError("it is continued on another line")
        elif character == "\\" and quote != "'":
            is_escaped = True
        elif quote:
            if character == quote:
                quote = ""
            elif quote == '"' and character in "$`":
                raise ValueError(f"it holds {character!r}, which a shell would expand")
        elif character in "'\"":
            quote = character
        elif character in _ENDS_OR_JOINS:
            raise ValueError(f"it holds {character!r}, which a shell would not take as text")


_LABELS: Final = re.compile(
    r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*"
)
_NUMBER: Final = re.compile(r"\d+|0x[0-9a-f]*")
_PORTS: Final = {"http": 80, "https": 443}
_ENTRY: Final = re.compile(r"(?:(\*)\.)?(\[[0-9A-Fa-f:.]+\]|[^\[\]:*/@]+)(?::(\d{1,5}))?")


@frozen
class Target:
    """The target of a URL.

    Its host is a name in lower case without a final dot, or an address in its one usual form.
    `port` is None for the scheme's own.
    """

    host: str
    port: int | None
    is_address: bool


def target_of(url: object) -> Target:
    """Return the target of a URL of http or https that can't be read in two ways."""
    if not isinstance(url, str):
        raise ValueError("it isn't text")
    if not url.isascii():
        raise ValueError("it holds other characters than ASCII; write them percent-encoded, xn--")
    if any(character <= " " or character in "\\\x7f" for character in url):
        raise ValueError("it holds a space, a control character or a backslash")
    parts = urlsplit(url)  # its ValueErrors name no more than parts of the URL
    if parts.scheme not in _PORTS or not url[len(parts.scheme) :].startswith("://"):
        raise ValueError("it isn't a URL of http or https")
    if "@" in parts.netloc:
        raise ValueError("it holds a user's name")
    host, is_address = _host(parts.hostname or "")
    if parts.netloc.startswith("[") and ":" not in host:
        raise ValueError("its address isn't valid")
    port = parts.port
    if parts.netloc.endswith(":"):
        raise ValueError("its port is empty")
    return Target(host, None if port == _PORTS[parts.scheme] else port, is_address)


def check_domain(entry: str) -> str:
    """Check and return an entry of a list of domains: a name, `*.` and a name, or an address."""
    _split(entry)
    return entry


def is_listed(target: Target, listed: Iterable[str]) -> bool:
    """Return whether a host is listed: exactly, or below `*.name`, which is never an address."""
    return any(_matches(target, *_split(entry)) for entry in listed)


def _matches(target: Target, is_suffix: bool, host: str, port: int | None) -> bool:
    if target.port != port:
        return False
    if is_suffix:
        return not target.is_address and target.host.endswith(f".{host}")
    return target.host == host


def _split(entry: str) -> tuple[bool, str, int | None]:
    found = _ENTRY.fullmatch(entry) if entry.isascii() else None
    if found is None:
        raise ValueError(
            f"{entry!r} isn't a host: write example.org, *.example.org or example.org:8443, "
            "and other characters than ASCII as xn--."
        )
    try:
        host, is_address = _host(found[2].strip("[]").lower())
    except ValueError as error:
        raise ValueError(f"{entry!r} isn't a host: {error}.") from None
    if found[1] and is_address:
        raise ValueError(f"{entry!r} isn't a host: an address has no subdomains.")
    return bool(found[1]), host, int(found[3]) if found[3] else None


def _host(host: str) -> tuple[str, bool]:
    """Return the one usual form of a host, and whether it is an address.

    An address in a form that readers take differently is refused.
    """
    if ":" in host:
        if "%" in host:
            raise ValueError("its address names a network interface")
        try:
            return str(ip_address(host)), True
        except ValueError:
            raise ValueError("its address isn't valid") from None
    name = host[:-1] if host.endswith(".") else host
    if _LABELS.fullmatch(name) is None or len(name) > 253:
        raise ValueError("its host isn't a valid name")
    if _NUMBER.fullmatch(name.rpartition(".")[2]):
        try:
            return str(ip_address(host)), True
        except ValueError:
            raise ValueError("its host is an address in an unusual form") from None
    return name, False


_PROTECTED: Final = frozenset({".ai", ".git", ".venv", "venv", "node_modules", "__pycache__"})


def resolve_path(path: object, root: Path | None, *, confined: bool, writing: bool) -> str:
    """Return the absolute path of a path argument, relative to the root or the working folder.

    `confined` paths stay below the root. The text of a ValueError names no folder of the host.
    """
    if not isinstance(path, str) or not path or "\0" in path:
        raise ValueError("it must be text that isn't empty and has no NUL character")
    base = os.path.realpath(root or ".")
    try:
        real = os.path.realpath(os.path.join(base, path))
        again = os.path.realpath(real)
    except (OSError, ValueError):
        raise ValueError("it has characters that a file name can't have, or is too long") from None
    if again != real:  # behind a link that leads to itself, realpath follows no other
        raise ValueError("it leads in a circle")
    if confined and not _is_below(base, real):
        raise ValueError("it leads outside the folder that may be used")
    if writing:
        _refuse_protected(base if confined else "/", real)
    return real


def _is_below(root: str, real: str) -> bool:
    above, parts = _parts(root), _parts(real)
    return parts[: len(above)] == above


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _refuse_protected(root: str, real: str) -> None:
    folder = root
    for name in _parts(real)[len(_parts(root)) :]:
        # A virtual environment by whichever name: its interpreter runs what is written there.
        if os.path.lexists(f"{folder}/pyvenv.cfg"):
            raise ValueError("it lies in a virtual environment, which is protected from writing")
        folder = f"{folder}/{name}"
        folded = name.casefold()
        if folded in _PROTECTED or folded.startswith(".env"):
            raise ValueError(f"{name[:60]!r} is protected from writing")


def _names(value: Iterable[str]) -> tuple[str, ...]:
    if isinstance(value, str):
        raise TypeError(f"Write a tuple of names, not the text {value!r}.")
    return tuple(value)


def _domains(value: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(check_domain, _names(value)))


@frozen
class ToolPolicy:
    """What a tool's arguments may name. An argument that isn't there is not looked at.

    Attributes:
        command_args: Arguments that are one command: text as for a shell, or a list of words.
        allow_commands: How they may begin: `git` for all that git does, `git status` for that.
        url_args: Arguments that are URLs of http or https, or lists of them.
        allow_domains: The hosts that they may lead to: `example.org` with the scheme's own port,
            `example.org:8443`, `*.example.org` for all names below it, or an address.
        path_args: Arguments that are paths, or lists of them, and are read.
        write_path_args: The same, and are written.
        unlisted: What becomes of a command or host that isn't listed: it is denied, or a person is
            asked. What can't be read for certain is denied in any case.

    Raises:
        ValueError: A domain is none.
        TypeError: A text stands where names are listed.
    """

    command_args: tuple[str, ...] = field(default=(), converter=_names)
    allow_commands: tuple[str, ...] = field(default=(), converter=_names)
    url_args: tuple[str, ...] = field(default=(), converter=_names)
    allow_domains: tuple[str, ...] = field(default=(), converter=_domains)
    path_args: tuple[str, ...] = field(default=(), converter=_names)
    write_path_args: tuple[str, ...] = field(default=(), converter=_names)
    unlisted: Literal["deny", "ask"] = field(
        default="deny", validator=validators.in_(("deny", "ask"))
    )

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments that it checks."""
        return (*self.command_args, *self.url_args, *self.path_args, *self.write_path_args)


def apply_policy(
    tool_name: str, policy: ToolPolicy, arguments: Mapping[str, Any], ctx: ToolContext
) -> tuple[Mapping[str, Any], str]:
    """Check arguments against a tool's policy.

    Return them with their paths resolved, and the reason to ask a person, empty for none.

    Source: docs/design/agent-node.md#what-the-host-injects; decision 13.
    """
    checked = dict(arguments)
    asks: list[str] = []

    def require(name: str, what: str, is_allowed: bool) -> None:
        if is_allowed:
            return
        if policy.unlisted == "deny":
            raise _denied(tool_name, name, f"{what} is not allowed")
        asks.append(f"{name}: {what} is not listed.")

    for name, value in _given(policy.command_args, arguments):
        words = _read(tool_name, name, words_of, value)
        is_allowed = is_listed_command(words, policy.allow_commands)
        require(name, f"the command {quoted(words[0])}", is_allowed)
    for name, value in _given(policy.url_args, arguments):
        for url in value if isinstance(value, list) else [value]:
            target = _read(tool_name, name, target_of, url)
            at = target.host if target.port is None else f"{target.host}:{target.port}"
            require(name, f"the host {at}", is_listed(target, policy.allow_domains))
    for names, writing in ((policy.path_args, False), (policy.write_path_args, True)):
        for name, value in _given(names, arguments):
            checked[name] = _resolved(tool_name, name, value, ctx, writing=writing)
    return checked, " ".join(asks)


def _given(names: Iterable[str], arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((name, arguments[name]) for name in names if arguments.get(name) is not None)


def _read(tool_name: str, name: str, read: Callable[[object], Any], value: object) -> Any:
    problem = ""
    try:
        return read(value)
    except ValueError as error:
        problem = str(error)
    raise _denied(tool_name, name, problem)


def _resolved(
    tool_name: str, name: str, value: object, ctx: ToolContext, *, writing: bool
) -> object:
    confined = ctx.fs_scope != "unrestricted"
    if confined and ctx.fs_root is None:
        raise HostCapabilityMissing(
            f"The tool {tool_name} takes a path, but the host has set no folder for paths.",
            tool_name=tool_name,
            capability="fs",
        )

    def resolve(path: object) -> str:
        return resolve_path(path, ctx.fs_root, confined=confined, writing=writing)

    if isinstance(value, list):
        return [_read(tool_name, name, resolve, path) for path in value]
    return _read(tool_name, name, resolve, value)


def _denied(tool_name: str, argument: str, why: str) -> ToolPolicyError:
    return ToolPolicyError(
        f"The tool {tool_name} may not be called with this {argument}: {why}.",
        tool_name=tool_name,
        argument=argument,
    )
