"""How a command ends that is told to stop: with all that it has started."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["stopped_by_signals"]


@contextmanager
def stopped_by_signals() -> Iterator[None]:
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
