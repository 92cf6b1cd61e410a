"""`rye costs`: what the threads of a project have cost."""

import csv
import io
from collections.abc import Sequence

import click

from ryecore.actions.costs import CostRow, CostRows
from ryecore.cli.opening import with_project
from ryecore.cli.options import json_option, label_option, project_option, read_labels
from ryecore.cli.output import show, show_json, show_piece

__all__ = ["costs"]


@click.command(short_help="Show what threads have cost.")
@click.option(
    "--by",
    default="directive",
    show_default=True,
    metavar="GROUP",
    help="directive, model, day, label; or label:NAME, such as label:tenant.",
)
@click.option("--since", metavar="AGE|DATE", help="From when on, such as 30d or 2026-11-01.")
@label_option("Only threads with this label, such as tenant=acme; repeatable.")
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")
@project_option
@json_option
def costs(
    by: str,
    since: str | None,
    labels: Sequence[str],
    as_csv: bool,
    project_path: str,
    as_json: bool,
) -> None:
    """Show what threads and graphs have cost, each without its children.

    Threads that were pruned don't count any more. Days are those on which threads began, in UTC.
    """
    wanted = read_labels(labels)
    found = with_project(project_path, lambda rye: rye.costs(by=by, since=since, labels=wanted))
    if as_json:
        show_json({"status": "success", **found.to_dict()})
    elif as_csv:
        show_piece(_csv(found))
    else:
        show(found.render())


def _csv(rows: CostRows) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CostRow._fields)
    for one in rows:
        writer.writerow((*_plain(one),))
    return text.getvalue()


def _plain(row: CostRow) -> list[object]:
    return [f"{value:f}" if name == "spend_usd" else value for name, value in row._asdict().items()]
