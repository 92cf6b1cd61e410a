"""Warm starts: a template of a program that forks a child ahead of each call.

A call that finds such a child is served by it, as if the program had just been started. Where there
is a problem with a template, the call starts cold; no call fails because of a template.
"""

from typing import Literal

from attrs import field, frozen

from ryecore import _native
from ryecore.lillux.witness import Witness

__all__ = ["TemplateStats", "WarmPool", "WarmStart"]


@frozen
class TemplateStats:
    """The state of one template.

    Attributes:
        state: `failed` is tried again after a while, `refused` is not.
        pid: The number of its process; 0 where there is none.
        spares: How many children wait for a call.
        forks: How many children it has forked.
        memory_bytes: The memory of it and its spares, when last measured.
        failures: How many times in a row it has failed.
        reason: Why it failed the last time.
    """

    state: Literal["starting", "ready", "failed", "refused"]
    pid: int
    spares: int
    forks: int
    memory_bytes: int
    failures: int
    reason: str


class WarmPool:
    """The templates of one host, within one bound of memory.

    Args:
        memory_bytes: The bound of the templates and their spares; 0 starts everything cold.
    """

    def __init__(self, memory_bytes: int) -> None:
        self._native = _native.Pool(memory_bytes)

    def __repr__(self) -> str:
        return f"WarmPool({', '.join(f'{one.pid} {one.state}' for one in self.stats())})"

    def close(self) -> bool:
        """End every template and spare, and wait until they are gone. Later calls start cold.

        Returns:
            Whether all of them ended within five seconds.
        """
        return self._native.close()

    def stats(self) -> tuple[TemplateStats, ...]:
        """Return the state of each template."""
        return tuple(TemplateStats(**stats) for stats in self._native.stats())


@frozen
class WarmStart:
    """A program's template. Its `repr` leaves out attributes that hold content.

    Attributes:
        pool: The pool of the template.
        arg_index: The index of the argument that differs in the template.
        arg: That argument, with a mark at the place where the template stops and forks.
        program: The code that the template runs at that place.
        settings: The settings of `program`.
        sealed: The files and folders that the template may read before it is ready. If one of them
            has changed by then, the template serves no call.
    """

    pool: WarmPool
    arg_index: int
    arg: str = field(repr=False)
    program: bytes = field(repr=False)
    settings: bytes = field(repr=False)
    sealed: Witness | None = field(default=None, repr=False)
