"""The options that several commands share."""

import click

from ryecore.cli.arguments import find_project

__all__ = ["json_option", "project_option"]

project_option = click.option(
    "--project",
    "project_path",
    default=find_project,
    metavar="PATH",
    help="The project's folder; by default this one, or the nearest above that holds .ai.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
