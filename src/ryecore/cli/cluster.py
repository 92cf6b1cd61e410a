"""The commands of `rye cluster`: the queues of a shared state, and their workers.

Source: docs/design/queues.md.
"""

import click

from ryecore.cli.groups import HintedGroup
from ryecore.cli.opening import with_project
from ryecore.cli.options import json_option, project_option
from ryecore.cli.output import errors_shown, show, show_json, show_piece

__all__ = ["cluster"]


@click.group(cls=HintedGroup, short_help="See the queues of shared state, and their workers.")
def cluster() -> None:
    """See the queues of the state that machines share, and the workers that run them.

    The state is the one that RYE_STATE names. A worker begins with: rye node work
    """


@cluster.command(short_help="Show queues, workers, leases and rates.")
@project_option
@json_option
def status(project_path: str, as_json: bool) -> None:
    """Show each queue with its load and bounds, and each worker with its runs and its lease."""
    found = with_project(project_path, lambda rye: rye.cluster.status())
    if as_json:
        show_json({"status": "success", **found.to_dict()})
    else:
        show(found.render())


@cluster.command(short_help="Print the same as Prometheus metrics.")
@project_option
def metrics(project_path: str) -> None:
    """Print what `rye cluster status` shows, in the text format of Prometheus."""
    with errors_shown(as_json=False):
        show_piece(with_project(project_path, lambda rye: rye.cluster.status()).metrics())
