"""The `rye` command: its root, and the commands below it."""

import warnings

import click

from ryecore import __version__
from ryecore.cli.env import env
from ryecore.cli.execute import execute, trace
from ryecore.cli.graphs import graph
from ryecore.cli.items import fetch, search, sign, verify
from ryecore.cli.keys import keys, trust_project
from ryecore.cli.mcp import mcp
from ryecore.cli.options import HintedGroup
from ryecore.cli.output import show_warning
from ryecore.cli.projects import doctor, init, new
from ryecore.cli.threads import threads

__all__ = ["rye"]


@click.group(cls=HintedGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rye")
def rye() -> None:
    """Sign, verify and execute the tools and directives of a project.

    Start a project with: rye init

    Exits with 0 when all went well, 1 when a tool ran and failed, 2 when something was refused
    and nothing ran.
    """
    warnings.showwarning = show_warning


for _command in (
    *(execute, trace, sign, verify, fetch, search, graph, threads, mcp),
    *(init, new, doctor, keys, trust_project, env),
):
    rye.add_command(_command)
