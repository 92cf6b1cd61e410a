"""Groups of commands: they hint at the right command, and import a command when it is called."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple

import click
from click.shell_completion import CompletionItem

__all__ = ["HintedGroup", "LazyCommand", "LazyGroup"]

_INSTEAD: Final = {
    "revoke": "rye keys trust FILE --revoke",
    "version": "rye --version",
}
"""The right spelling of commands that people expect, but that are options."""


class HintedGroup(click.Group):
    """A group that names the right option, or the command of another group, for a wrong command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command as click does, and name what to write where there is none."""
        name = args[0]
        if not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            # This imports every command, among which click then looks for similar names.
            elsewhere = _commands_called(name, ctx)
            instead = [_INSTEAD[name]] if name in _INSTEAD else elsewhere
            if instead:
                raise click.UsageError(
                    f"There is no command {name!r} here. Write: {' or '.join(instead)}", ctx
                )
        return super().resolve_command(ctx, args)


def _commands_called(name: str, ctx: click.Context) -> list[str]:
    """Return the full names of all commands of a name, in any group."""
    found: list[str] = []
    waiting: list[tuple[str, click.Command | None]] = [("rye", ctx.find_root().command)]
    for path, command in waiting:  # grows in the loop
        if path.endswith(f" {name}"):
            found.append(path)
        if isinstance(command, click.Group):
            waiting += [
                (f"{path} {one}", command.get_command(ctx, one))
                for one in command.list_commands(ctx)
            ]
    return found


class LazyCommand(NamedTuple):
    """A command that isn't imported yet: its module, and what a list of commands shows of it."""

    module: str
    short_help: str


class LazyGroup(HintedGroup):
    """A group whose commands are each imported when called: a list of them imports none.

    Args:
        lazy: The commands by name. A command is the attribute of its module with that name, with
            `_` for `-`.
        options: The options of `click.Group`.
    """

    def __init__(self, *, lazy: Mapping[str, LazyCommand], **options: Any) -> None:
        super().__init__(**options)
        self.lazy: Final = dict(sorted(lazy.items()))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        del ctx
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if there is none of this name."""
        del ctx
        if cmd_name in self.lazy and cmd_name not in self.commands:
            module = import_module(self.lazy[cmd_name].module)
            self.commands[cmd_name] = getattr(module, cmd_name.replace("-", "_"))
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of the commands, with their short helps."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.short_help) for name, one in self.lazy.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands, and then the options, that begin with a text."""
        commands = [
            CompletionItem(name, help=one.short_help)
            for name, one in self.lazy.items()
            if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]
