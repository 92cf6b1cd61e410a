"""`rye trace`: show a tool's verified chain."""

import click

from ryecore.chain.rendering import render_result
from ryecore.cli.opening import with_project
from ryecore.cli.options import json_option, project_option
from ryecore.cli.output import show, show_json
from ryecore.cli.pictures import Drawing, drawing_options

__all__ = ["trace"]


@click.command(short_help="Show a tool's chain and what leads to it.")
@click.argument("ref")
@drawing_options
@project_option
@json_option
def trace(ref: str, project_path: str, drawing: Drawing, as_json: bool) -> None:
    """Show a tool's chain and every decision that leads to it; run nothing."""
    done = with_project(project_path, lambda rye: rye.trace(ref), is_short=True)
    if drawing.is_wanted:
        drawing.show_chain(done)
    elif as_json:
        show_json(done.to_dict())
    else:
        show(render_result(done.to_dict()))
