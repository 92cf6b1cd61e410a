"""`rye threads prune`: forget threads that ended long ago."""

import sys

import click

from ryecore.cli.opened import with_threads
from ryecore.cli.options import json_option, project_option
from ryecore.cli.output import errors_shown, show, show_json

__all__ = ["prune"]


@click.command(short_help="Forget threads that ended long ago.")
@click.option(
    "--older-than", metavar="AGE", help="How long ago they ended: 12h, 30d, 8w; 15m is minutes."
)
@click.option("--keep", type=int, metavar="N", help="Keep the latest N, whatever their age.")
@click.option(
    "--include-resumable",
    is_flag=True,
    help="Also those that failed or were killed and may be resumed; else they stay twice as long.",
)
@click.option("--dry-run", is_flag=True, help="Show what would go, and remove nothing.")
@project_option
@json_option
def prune(
    older_than: str | None,
    keep: int | None,
    include_resumable: bool,
    dry_run: bool,
    project_path: str,
    as_json: bool,
) -> None:
    """Forget threads and graph runs that ended long ago: rows, transcripts, results and exports.

    Threads that belong together (children, continuations, forks) go together, once the last of them
    has ended for so long. Without --older-than, the signed agent/retention.yaml says how long.
    """
    with errors_shown(as_json=as_json):
        is_watched = sys.stderr.isatty() and not as_json

        def on_progress(gone: int, total: int) -> None:
            click.echo(f"\r{gone} of {total} threads", nl=False, err=True)

        report = with_threads(
            project_path,
            lambda threads: threads.prune(
                older_than=older_than,
                keep=keep,
                include_resumable=include_resumable or None,
                dry_run=dry_run,
                on_progress=on_progress if is_watched else None,
            ),
        )
        if is_watched and report.thread_ids and not dry_run:
            click.echo("\r\x1b[K", nl=False, err=True)
        if as_json:
            show_json(report.to_dict())
        else:
            show(report.render())
