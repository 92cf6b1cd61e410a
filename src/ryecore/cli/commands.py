"""The `rye` command: its root, and the table of the commands below it."""

import warnings
from typing import Final

import click

from ryecore import __version__
from ryecore.cli.groups import LazyCommand, LazyGroup

__all__ = ["rye"]

_COMMANDS: Final = {
    "cluster": LazyCommand(
        "ryecore.cli.cluster", "See the queues of shared state, and their workers."
    ),
    "costs": LazyCommand("ryecore.cli.costs", "Show what threads have cost."),
    "doctor": LazyCommand(
        "ryecore.cli.projects", "Examine a project's state, keys, locks and disk."
    ),
    "env": LazyCommand("ryecore.cli.env", "Show and choose which names of .env are set for tools."),
    "execute": LazyCommand(
        "ryecore.cli.execute", "Execute a tool, or print a directive's directions."
    ),
    "fetch": LazyCommand("ryecore.cli.items", "Show an item, or copy it to another space."),
    "graph": LazyCommand("ryecore.cli.graphs", "Check, run, resume and show graphs."),
    "init": LazyCommand("ryecore.cli.projects", "Make a folder a project."),
    "keys": LazyCommand(
        "ryecore.cli.keys", "Make your signing key, and choose whose keys you trust."
    ),
    "map": LazyCommand("ryecore.cli.maps", "Call an item for each row of a file."),
    "mcp": LazyCommand("ryecore.cli.mcp", "Offer a project to MCP clients, and use MCP servers."),
    "new": LazyCommand(
        "ryecore.cli.projects", "Make a tool, directive, graph or piece of knowledge."
    ),
    "node": LazyCommand("ryecore.cli.node", "Let other machines run their projects here."),
    "remote": LazyCommand(
        "ryecore.cli.remote", "Name nodes, queues and Ray clusters that run items elsewhere."
    ),
    "search": LazyCommand("ryecore.cli.items", "Find items by their names and contents."),
    "sign": LazyCommand("ryecore.cli.items", "Sign an item, or all that a glob matches."),
    "threads": LazyCommand(
        "ryecore.cli.threads", "List, stop and continue threads and detached tools."
    ),
    "trace": LazyCommand("ryecore.cli.trace", "Show a tool's chain and what leads to it."),
    "trust-project": LazyCommand("ryecore.cli.keys", "Trust a project's own interpreters."),
    "verify": LazyCommand("ryecore.cli.items", "Verify an item, or all that a glob matches."),
}


@click.group(
    cls=LazyGroup, lazy=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="rye")
def rye() -> None:
    """Sign, verify and execute the tools and directives of a project.

    Start a project with: rye init

    Exits with 0 when all went well, 1 when a tool ran and failed, 2 when something was refused
    and nothing ran.
    """
    from ryecore.cli.output import show_warning  # noqa: PLC0415 - not for --help and --version

    warnings.showwarning = show_warning
