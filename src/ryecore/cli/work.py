"""The command `rye node work`: a worker of a queue.

Source: docs/design/queues.md.
"""

import logging
import os
import re
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio
import click
from typing_extensions import override

from ryecore.actions.settings import STATE, OpenOptions, check_state
from ryecore.cli.opening import deps_option, missing_models, models_of, serve_until_signalled
from ryecore.cli.options import project_option
from ryecore.cli.output import errors_shown
from ryecore.display.sanitize import escape_controls
from ryecore.display.text import counted
from ryecore.errors import ConfigError, InputError, MissingExtra
from ryecore.remote.queue_address import is_queue_name
from ryecore.rye import Rye

__all__ = ["LogFormatter", "log_to_stderr", "read_place", "read_rate", "work"]

_MAX_PORT: Final = 65_535
_RATE: Final = re.compile(r"([1-9][0-9]{0,8})/([0-9]+(?:\.[0-9]+)?)s", re.ASCII)


@click.command(short_help="Run what a queue holds, until a signal comes.")
@click.option("--queue", default="default", show_default=True, help="The queue's name.")
@click.option(
    "--concurrency", default=8, show_default=True, type=click.IntRange(1, 10_000),
    help="The most runs of one worker at once.",
)  # fmt: skip
@click.option("--total", type=click.IntRange(1), help="The most runs of all workers at once.")
@click.option(
    "--rate", metavar="RUNS/TIME", help="The most runs that begin in a time, such as 100/60s."
)
@click.option(
    "--grace", "grace_s", default=30.0, show_default=True, metavar="SECONDS",
    type=click.FloatRange(0, 86_400),
    help="How long runs may take to end at a signal; other workers resume the rest.",
)  # fmt: skip
@click.option(
    "--spaces", type=click.Path(file_okay=False), metavar="PATH",
    help="Where projects that travel are put; by default .ai/cache/travelled of your user space.",
)  # fmt: skip
@click.option(
    "--metrics", metavar="HOST:PORT",
    help="Serve the metrics of queues and workers for Prometheus, such as 127.0.0.1:9464.",
)  # fmt: skip
@click.option("--state", metavar="ADDRESS", help=f"The shared state; by default {STATE}.")
@deps_option
@project_option
def work(
    queue: str,
    concurrency: int,
    total: int | None,
    rate: str | None,
    grace_s: float,
    spaces: str | None,
    metrics: str | None,
    state: str | None,
    deps: str | None,
    project_path: str,
) -> None:
    """Run what callers put into a queue of the shared state, with the project's folder here.

    On the standard error, a line says which run begins, resumes a dead worker's, or has ended, and
    how.

    The bounds are those of the queue: the worker that began last sets them for all. At a signal
    the worker takes no more runs, and those that it has may end; a second signal ends it at once.

    Models come from --deps, or from the API keys in the environment.
    """
    with errors_shown(as_json=False):
        address = check_state(state, os.environ)
        if address is None:
            raise ConfigError(
                "A worker needs the state that its callers share, and none is named.",
                next_step=f"Pass --state postgresql://USER@HOST/DATABASE, or set {STATE}.",
            )
        if not is_queue_name(queue):
            raise InputError(
                f"--queue {queue[:80]!r} can't be the name of a queue.",
                next_step="Write at most 64 letters, digits, _ and -, such as batch.",
            )
        bound, period_s = read_rate(rate)
        models = models_of(deps, are_wanted=True)
        if not models:
            raise missing_models()
        from ryecore.remote.queued import missing_dbos  # noqa: PLC0415 - its package is an extra

        try:
            from ryecore.actions.targets.run_log import LOG  # noqa: PLC0415
            from ryecore.node.hosts import HostOptions  # noqa: PLC0415
            from ryecore.node.work import QueueWorker  # noqa: PLC0415
            from ryecore.remote.dbos_queue import QueueBounds  # noqa: PLC0415
            from ryecore.remote.travelled import TRAVELLED  # noqa: PLC0415
        except ModuleNotFoundError as problem:
            raise missing_dbos(problem) from None
        from ryecore.state.postgres.address import PostgresAddress  # noqa: PLC0415

        place = read_place(metrics)
        serve_metrics = _metrics_server() if metrics is not None else None
        options: OpenOptions = {**models, "state": address}
        log_to_stderr(LOG, "ryecore.node")

        async def serve(stop: anyio.Event) -> None:
            def open_rye(project: Path) -> Rye:
                return Rye.open(project, **options)

            async with open_rye(Path(project_path)) as rye:
                worker = QueueWorker(
                    rye,
                    open_rye,
                    Path(spaces or rye.spaces.user.root / TRAVELLED),
                    PostgresAddress.parse(address),
                    queue,
                    QueueBounds(concurrency, total, bound, period_s),
                    HostOptions(models.get("agent"), deps, state=address),
                )
                async with anyio.create_task_group() as tasks:
                    if serve_metrics is not None:
                        tasks.start_soon(serve_metrics, rye, *place, _say_metrics)
                    left = await worker.serve(stop, grace_s=grace_s, announce=_announce)
                    if left:
                        _end_now(left)
                    tasks.cancel_scope.cancel()

        anyio.run(_serve_until_told, serve)


async def _serve_until_told(serve: Callable[[anyio.Event], Awaitable[None]]) -> None:
    """Serve until a signal comes, which sets the event; a second one ends the process at once."""
    stop = anyio.Event()

    async def end(number: signal.Signals) -> bool:
        if stop.is_set():
            _end_now(0)
        _say(f"ryecore ends the worker: {number.name} came")
        stop.set()
        return False

    await serve_until_signalled(partial(serve, stop), end)


def read_rate(text: str | None) -> tuple[int | None, float]:
    """Return a rate such as `100/60s` as a number of runs and a period in seconds.

    Raises:
        InputError: It isn't one.
    """
    if text is None:
        return None, 1.0
    found = _RATE.fullmatch(text)
    if found is None or not float(found[2]):
        raise InputError(
            f"--rate {text[:40]!r} isn't a rate.", next_step="Write such as 100/60s, or 5/1s."
        )
    return int(found[1]), float(found[2])


def read_place(text: str | None) -> tuple[str, int]:
    """Return an address to listen at, such as `127.0.0.1:9464`, as a host and a port.

    Raises:
        InputError: It isn't one.
    """
    host, _, port = (text or "127.0.0.1:0").rpartition(":")
    if not host or not port.isascii() or not port.isdecimal() or int(port) > _MAX_PORT:
        raise InputError(
            f"--metrics {(text or '')[:80]!r} isn't an address to listen at.",
            next_step="Write such as 127.0.0.1:9464, or 0.0.0.0:9464 for other machines.",
        )
    return host.strip("[]"), int(port)


_ServeMetrics: TypeAlias = Callable[
    [Rye, str, int, Callable[[str], None]], Coroutine[Any, Any, None]
]


def _metrics_server() -> _ServeMetrics:
    """Return what serves metrics; without its extra, that is an error."""
    try:
        from ryecore.node.work_metrics import serve_metrics  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as problem:
        if (problem.name or "").partition(".")[0] not in ("starlette", "uvicorn", "httptools"):
            raise
        raise MissingExtra(
            f"--metrics needs the package {problem.name}, which is not installed.",
            next_step="pip install 'ryecore[server]'",
            extra="server",
        ) from None
    return serve_metrics


class LogFormatter(logging.Formatter):
    """Writes each message as one line, in which names and errors of others steer nothing."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    @override
    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = escape_controls(record.message, keep="")
        return super().formatMessage(record)

    @override
    def formatException(self, ei: Any) -> str:
        return escape_controls(super().formatException(ei), keep="\n\t")


def log_to_stderr(*names: str) -> None:
    """Show logs on the standard error, from the level INFO on; without this they aren't shown.

    Args:
        names: Their names.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter())
    for name in names:
        log = logging.getLogger(name)
        log.addHandler(handler)
        log.setLevel(logging.INFO)


def _end_now(left: int) -> None:
    """End this process as it is, so that what it runs isn't ended but resumed elsewhere."""
    if left:
        _say(f"ryecore leaves {counted(left, 'run')} to other workers")
    os._exit(0)


def _say_metrics(url: str) -> None:
    _say(f"ryecore serves metrics at {url}")


def _announce(worker_id: str) -> None:
    _say(f"ryecore works as {worker_id}")


def _say(line: str) -> None:
    with suppress(OSError):  # who would read it may have gone
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
