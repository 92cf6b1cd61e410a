"""What a tool's arguments may name: commands, domains, paths."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

from attrs import field, frozen, validators

from ryecore.errors import HostCapabilityMissing, ToolPolicyError
from ryecore.tools import commands, domains
from ryecore.tools.context import ToolContext
from ryecore.tools.failures import quoted
from ryecore.tools.paths import resolve_path

__all__ = ["ToolPolicy", "apply_policy"]


def _names(value: Iterable[str]) -> tuple[str, ...]:
    if isinstance(value, str):
        raise TypeError(f"Write a tuple of names, not the text {value!r}.")
    return tuple(value)


def _domains(value: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(domains.check_domain, _names(value)))


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
        """The arguments that it looks at."""
        return (*self.command_args, *self.url_args, *self.path_args, *self.write_path_args)


def apply_policy(
    tool_name: str, policy: ToolPolicy, arguments: Mapping[str, Any], ctx: ToolContext
) -> tuple[Mapping[str, Any], str]:
    """Check arguments against a tool's policy.

    Returns:
        The arguments, with each path as the one that it stands for; and why a person is to be
        asked, empty where nobody is.

    Raises:
        ToolPolicyError: One names what it may not.
        HostCapabilityMissing: One is a path, and the host gives no folder for it.

    Source: docs/design/agent-node.md#what-the-host-injects; decision 13.
    """
    checked = dict(arguments)
    asks: list[str] = []

    def require(name: str, what: str, is_listed: bool) -> None:
        if is_listed:
            return
        if policy.unlisted == "deny":
            raise _denied(tool_name, name, f"{what} is not allowed")
        asks.append(f"{name}: {what} is not listed.")

    for name, value in _given(policy.command_args, arguments):
        words = _read(tool_name, name, commands.words_of, value)
        is_listed = commands.is_listed(words, policy.allow_commands)
        require(name, f"the command {quoted(words[0])}", is_listed)
    for name, value in _given(policy.url_args, arguments):
        for url in value if isinstance(value, list) else [value]:
            target = _read(tool_name, name, domains.target_of, url)
            at = target.host if target.port is None else f"{target.host}:{target.port}"
            require(name, f"the host {at}", domains.is_listed(target, policy.allow_domains))
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
            f"The tool {tool_name} takes a path, and the host gives no folder for it.",
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
