"""The project of a command: opened, with models if it needs them, and closed at the end."""

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Final, TypeVar

import click

from ryecore.actions.settings import OpenOptions
from ryecore.errors import RyeError
from ryecore.lillux.event_loop import EventLoopNeeded, run_without_loop
from ryecore.rye import Rye

if TYPE_CHECKING:
    from ryecore.actions.threads import Threads

__all__ = [
    "deps_option",
    "missing_models",
    "models_of",
    "opened_with_models",
    "run_shortly",
    "run_until_stopped",
    "serve_until_signalled",
    "with_project",
    "with_threads",
]

T = TypeVar("T")

_END_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def with_project(
    project_path: str,
    use: Callable[[Rye], Awaitable[T]],
    options: OpenOptions | None = None,
    *,
    is_short: bool = False,
) -> T:
    """Open a project, use it, and close it; signals stop this as Ctrl-C does.

    What `is_short` only reads, and begins without an event loop, as `run_shortly` does.
    """

    async def run() -> T:
        async with Rye.open(project_path, **(options or {})) as rye:
            return await use(rye)

    return run_shortly(run) if is_short else run_until_stopped(run)


def with_threads(project_path: str, use: "Callable[[Threads], Awaitable[T]]") -> T:
    """Open a project, use its threads, and close it."""
    return with_project(project_path, lambda rye: use(rye.threads))


# Signals


def run_until_stopped(run: Callable[[], Awaitable[T]]) -> T:
    """Run the work of a command on an event loop; signals stop it as Ctrl-C does."""
    import anyio  # noqa: PLC0415 - `run_shortly` does without

    async def run_awake() -> T:
        with _woken_by_signals():
            return await run()

    with _stopped_by_signals():
        return anyio.run(run_awake)


def run_shortly(run: Callable[[], Awaitable[T]]) -> T:
    """Run work that is most often short: without an event loop, as far as it needs none.

    An event loop takes longer to import than most tools take to run. Where one is needed, which is
    known before the work has had any effect, it begins anew on one.
    """
    with suppress(EventLoopNeeded), _stopped_by_signals():
        return run_without_loop(run)
    return run_until_stopped(run)


async def serve_until_signalled(
    serve: Callable[[], Awaitable[None]], at_signal: Callable[[signal.Signals], Awaitable[bool]]
) -> None:
    """Serve until that ends by itself, or is cancelled by a signal.

    A signal that was ignored stays so, such as that of a closed terminal behind nohup.

    Args:
        serve: Serves.
        at_signal: Awaited with each signal, so that running calls can be answered; returns whether
            to cancel then.
    """
    import anyio  # noqa: PLC0415 - `run_shortly` does without

    refusal: RyeError | None = None
    wanted = [one for one in _END_SIGNALS if signal.getsignal(one) is not signal.SIG_IGN]
    with anyio.open_signal_receiver(*wanted) as signals:
        async with anyio.create_task_group() as tasks:

            async def wait_for_signal() -> None:
                async for number in signals:
                    if await at_signal(number):
                        tasks.cancel_scope.cancel()

            tasks.start_soon(wait_for_signal)
            try:
                await serve()
            except RyeError as error:  # which the group would wrap
                refusal = error
            except ExceptionGroup as group:  # of tasks that it has started
                refusal = _first_refusal(group)
                if refusal is None:
                    raise
            tasks.cancel_scope.cancel()
    if refusal is not None:
        raise refusal


def _first_refusal(group: ExceptionGroup[Exception]) -> RyeError | None:
    """Return the first error of a group of RyeErrors; None where another error is among them."""
    refusals, others = group.split(RyeError)
    if refusals is None or others is not None:
        return None
    first: Exception = refusals
    while isinstance(first, ExceptionGroup):
        first = first.exceptions[0]
    return first if isinstance(first, RyeError) else None


@contextmanager
def _woken_by_signals() -> Iterator[None]:
    """Have each signal wake the running event loop.

    Python handles a signal between two of its instructions. One that arrives behind the last of
    them before the loop waits would be handled only when something else wakes it.
    """
    import asyncio  # noqa: PLC0415 - where it runs already
    import socket  # noqa: PLC0415 - which asyncio imports

    loop = asyncio.get_running_loop()
    reader, writer = socket.socketpair()
    with reader, writer:
        reader.setblocking(False)
        writer.setblocking(False)
        loop.add_reader(reader, reader.recv, 4096)
        before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            loop.remove_reader(reader)


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Have TERM, HUP and QUIT stop a run as Ctrl-C does, unless they are ignored."""
    numbers = [
        number
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
        if signal.getsignal(number) is signal.SIG_DFL
    ]
    for number in numbers:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's job in the background
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)  # the event loop cancels what runs


# Models


deps_option = click.option(
    "--deps",
    metavar="MODULE:FUNCTION",
    help="A factory of models; by default models come from the API keys in the environment.",
)


def models_of(deps: str | None, *, are_wanted: bool) -> OpenOptions:
    """Return the arguments of `Rye.open` for models; empty where there are none.

    `deps` is `module:function`; without it, models come from the keys in the environment, if
    `are_wanted`: if the command asks models.
    """
    if deps is None and not are_wanted:
        return {}
    from ryecore.host_factory import host_options  # noqa: PLC0415 - only for threads

    return host_options(deps, os.environ)


@asynccontextmanager
async def opened_with_models(project_path: str, deps: str | None) -> AsyncIterator[Rye]:
    """Open a project for a command that asks models, of `deps` or the environment's keys."""
    options = models_of(deps, are_wanted=True)
    if not options:
        raise missing_models()
    async with Rye.open(project_path, **options) as rye:
        yield rye


def missing_models() -> RyeError:
    """Return the error that says why there are no models."""
    from ryecore.agent.environment import missing_models_error  # noqa: PLC0415 - only for threads

    return missing_models_error()
