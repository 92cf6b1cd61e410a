"""`rye map`: call a directive or a tool for each row of a file."""

import csv
import io
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ryecore.cli.live import to_its_end
from ryecore.cli.opening import deps_option, models_of, with_project
from ryecore.cli.options import (
    json_option,
    label_option,
    limit_option,
    project_option,
    read_labels,
    read_overrides,
)
from ryecore.cli.output import EXIT_FAILED, show, show_json
from ryecore.errors import InputError
from ryecore.policy import CallContext, CancelToken
from ryecore.rye import Rye
from ryecore.strict_json import read_json

if TYPE_CHECKING:
    from ryecore.actions.maps import MapResult

__all__ = ["map"]

Work = Callable[[Rye, CallContext], Any]
_MOST_BYTES = 256 * 1024 * 1024
_EXAMPLE = 'Write an object a line, such as {"text": "one"}; or pass a .csv or a .json file.'


@click.command("map", short_help="Call an item for each row of a file.")
@click.argument("ref", required=False, metavar="[REF]")
@click.argument("file", required=False, metavar="[FILE|-]")
@click.option(
    "--concurrency", default=10, show_default=True, metavar="N", help="The most rows at once."
)
@click.option("--model", metavar="MODEL", help="For a directive: provider/model, or a tier.")
@limit_option("A limit of the whole map, such as spend=0.5; repeatable.")
@label_option("What the map is for, such as tenant=acme; repeatable.")
@click.option("--resume", metavar="RUN", help="Continue a map that was killed or stopped.")
@click.option("--rerun", is_flag=True, help="With --resume: repeat rows that were interrupted.")
@click.option("--retry-failed", metavar="RUN", help="Run the failed rows of an ended map again.")
@click.option("--show", "shown", metavar="RUN", help="Show a map, as far as it has come.")
@click.option("--out", metavar="FILE", help="Write a JSON line for each row there.")
@click.option("--svg", metavar="FILE", help="Write a picture of what it cost there.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
@deps_option
@project_option
@json_option
def map(  # noqa: A001 - the command's name
    ref: str | None,
    file: str | None,
    concurrency: int,
    model: str | None,
    limits: Sequence[str],
    labels: Sequence[str],
    resume: str | None,
    rerun: bool,
    retry_failed: str | None,
    shown: str | None,
    out: str | None,
    svg: str | None,
    quiet: bool,
    deps: str | None,
    project_path: str,
    as_json: bool,
) -> None:
    """Call a directive or a tool for each row of a file, several at once.

    FILE holds the inputs of each call: JSON Lines, a JSON list of objects (.json), or CSV with a
    header (.csv); - reads JSON Lines from standard input. Rows that fail don't end the others.

    Ctrl-C ends it. --resume continues it, also after a kill: rows that are done don't run again.

    Exits with 1 where a row failed or did not run.
    """
    earlier = {"--resume": resume, "--retry-failed": retry_failed, "--show": shown}
    runs = [one for one in earlier.values() if one is not None]
    if len(runs) > 1 or (runs and (ref or file)):
        raise InputError(
            f"{', '.join(one for one, run in earlier.items() if run)} names a map that has begun "
            "already.",
            next_step="Pass it alone; its item and its rows are known.",
        )
    if not runs and (ref is None or file is None):
        raise InputError(
            "A map needs an item and a file of rows.",
            next_step="Write such as: rye map directive:ds/label rows.jsonl",
        )
    if rerun and resume is None:
        raise InputError("--rerun goes with --resume.", next_step="Leave it out.")
    rows = [] if runs or file is None else read_rows(file)
    overrides, named = read_overrides(limits), read_labels(labels)
    progress = not quiet

    async def work(rye: Rye, ctx: CallContext) -> "MapResult":
        if shown is not None:
            return await rye.map.show(shown)
        if resume is not None:
            return await rye.map.resume(
                resume, rerun=rerun, limits=overrides, progress=progress, ctx=ctx
            )
        if retry_failed is not None:
            return await rye.map.retry_failed(
                retry_failed, limits=overrides, progress=progress, ctx=ctx
            )
        return await rye.map(
            ref or "", rows, concurrency=concurrency, model=model, limits=overrides,
            labels=named, progress=progress, ctx=ctx,
        )  # fmt: skip

    async def use(rye: Rye) -> "MapResult":
        return await to_its_end(_Stoppable(rye, work), None)

    done = with_project(project_path, use, models_of(deps, are_wanted=shown is None))
    if out is not None:
        lines = (json.dumps(one.to_dict(), ensure_ascii=False) for one in done.results)
        _write(out, "".join(f"{line}\n" for line in lines))
    if svg is not None:
        _write(svg, done.to_svg())
    if as_json:
        show_json(done.to_dict())
    else:
        show(done.render())
    if any(one.status != "completed" for one in done.results) and shown is None:
        sys.exit(EXIT_FAILED)


class _Stoppable:
    """A map that a signal stops: what is done stays done, and its result is still returned."""

    def __init__(self, rye: Rye, work: Work) -> None:
        self._rye = rye
        self._work = work
        self._token = CancelToken()

    async def result(self) -> "MapResult":
        """Run it to its end."""
        done: MapResult = await self._work(self._rye, CallContext(cancellation=self._token))
        return done

    async def cancel(self) -> None:
        """Ask it, and all below it, to stop."""
        self._token.cancel()


def read_rows(name: str) -> list[Any]:
    """Read the rows of a file, by its extension, or JSON Lines of the standard input."""
    text = _read(name)
    if name.endswith(".csv"):
        return _csv_rows(name, text)
    if name.endswith(".json"):
        rows = _parsed(name, text, "")
        if isinstance(rows, list):
            return rows
        raise InputError(
            f"{name} holds no list of objects.", next_step='Write such as [{"text": "one"}].'
        )
    return [
        _parsed(name, line, f", line {number}")
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip()
    ]


def _read(name: str) -> str:
    try:
        if name == "-":
            return sys.stdin.read()
        path = Path(name)
        if path.stat().st_size > _MOST_BYTES:
            raise InputError(
                f"{name} has more than {_MOST_BYTES >> 20} MiB.", next_step="Split it."
            )
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{name} isn't UTF-8 text.", next_step=_EXAMPLE) from None
    except OSError as problem:
        raise InputError(
            f"{name} can't be read: {problem.strerror}.", next_step="Name a file of rows, or -."
        ) from None


def _parsed(name: str, text: str, place: str) -> Any:
    try:
        return read_json(text)
    except ValueError as problem:
        raise InputError(f"{name}{place} isn't JSON: {problem}.", next_step=_EXAMPLE) from None


def _csv_rows(name: str, text: str) -> list[dict[str, str]]:
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        rows = list(reader)
    except csv.Error as problem:
        raise InputError(f"{name} isn't CSV: {problem}.", next_step=_EXAMPLE) from None
    for number, row in enumerate(rows):
        if None in row or None in row.values():
            raise InputError(
                f"{name}: row {number} has not as many fields as the header.",
                next_step="Write a field for each name of the header.",
            )
    return rows


def _write(name: str, text: str) -> None:
    try:
        Path(name).write_text(text, "utf-8")
    except OSError as problem:
        raise InputError(
            f"{name} can't be written: {problem.strerror}.",
            next_step="The map has ended: see it with rye map --show RUN.",
        ) from None
