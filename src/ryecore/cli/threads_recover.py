"""`rye threads recover`: resume all that died."""

import sys
from collections.abc import Sequence

import anyio
import click
from attrs import frozen

from ryecore.actions.recovering import Recovered
from ryecore.cli.arguments import read_overrides
from ryecore.cli.live import to_its_end
from ryecore.cli.models import deps_option, models_of
from ryecore.cli.options import json_option, project_option
from ryecore.cli.output import EXIT_FAILED, errors_shown, show, show_json
from ryecore.cli.signals import stopped_by_signals
from ryecore.display.text import StyledText
from ryecore.errors import RyeError
from ryecore.rye import Rye

__all__ = ["recover"]


@click.command(short_help="Resume all threads and graphs whose process died.")
@click.option("--dry-run", is_flag=True, help="Only say what would be resumed.")
@click.option(
    "--limit", "limits", multiple=True, metavar="NAME=N", help="A limit of each: turns=8."
)
@deps_option
@project_option
@json_option
def recover(
    dry_run: bool, limits: Sequence[str], deps: str | None, project_path: str, as_json: bool
) -> None:
    """Resume all threads of directives and runs of graphs whose process died; wait for their ends.

    Not those that somebody stopped, that were resumed already, or that another one has started.
    What can't be resumed, such as a graph whose tool may have had its effect, is listed with what
    to do. Of several processes that recover at once, one resumes each.
    """
    with errors_shown(as_json=as_json):
        overrides = read_overrides(limits)

        async def run() -> list[_Shown]:
            async with Rye.open(project_path, **models_of(deps, are_wanted=True)) as rye:
                found = await rye.recover(dry_run=dry_run, limits=overrides)
                return await to_its_end(_All(found), None)

        with stopped_by_signals():
            done = anyio.run(run)
    is_well = all(one.is_well for one in done)
    if as_json:
        show_json({
            "status": "success" if is_well else "error",
            "dry_run": dry_run,
            "recovered": [one.document for one in done],
        })  # fmt: skip
    else:
        text = StyledText()
        for one in done:
            text.add(one.text)
        if not done:
            text.line(("Nothing has died that is to be resumed.", "dim"))
        show(text)
    if not is_well:
        sys.exit(EXIT_FAILED)


@frozen
class _Shown:
    """What came of one that died, as a document and as text."""

    document: dict[str, object]
    text: StyledText
    is_well: bool


class _All:
    """All that was resumed, which is waited for and stopped as one."""

    def __init__(self, found: Sequence[Recovered]) -> None:
        self._found = found

    async def result(self) -> list[_Shown]:
        return [await _ended(one) for one in self._found]

    def cancel(self) -> None:
        for one in self._found:
            if one.run is not None:
                one.run.cancel()


async def _ended(one: Recovered) -> _Shown:
    """Wait for the end of what resumes one."""
    document, text = one.to_dict(), one.render()
    if one.run is None:
        return _Shown(document, text, one.error is None)
    try:
        result = await one.run.result()
    except RyeError as error:
        text.line("  ", (str(error), "bad"))
        return _Shown({**document, "result": error.to_dict()}, text, False)
    text.add(result.render())
    return _Shown({**document, "result": result.to_dict()}, text, result.success)
