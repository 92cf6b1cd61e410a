"""Warm starts: a program is started once, as a template that forks a child ahead of each call.

A call that finds such a child is served by it, as if it had been started then. Whatever is amiss
with a template, the call starts cold; nobody's call fails because of one.
"""

from typing import Literal

from attrs import field, frozen

from ryecore import _native
from ryecore.lillux.witness import Witness

__all__ = ["TemplateStats", "WarmPool", "WarmStart"]


@frozen
class TemplateStats:
    """How one template stands.

    Attributes:
        state: `failed` is tried again after a while, `refused` is not.
        pid: 0 where no process is.
        spares: Children that wait for a call.
        forks: How many children it has made.
        memory_bytes: What it and its spares take, when it was last looked at.
        failures: How often in a row it has failed.
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
        memory_bytes: What the templates and their spares may take; 0 starts everything cold.
    """

    def __init__(self, memory_bytes: int) -> None:
        self._native = _native.Pool(memory_bytes)

    def __repr__(self) -> str:
        return f"WarmPool({', '.join(f'{one.pid} {one.state}' for one in self.stats())})"

    def close(self) -> bool:
        """End every template and spare, and wait until they are gone. Calls start cold then.

        Returns:
            Whether all of them ended within five seconds.
        """
        return self._native.close()

    def stats(self) -> tuple[TemplateStats, ...]:
        """How each template stands."""
        return tuple(TemplateStats(**stats) for stats in self._native.stats())


@frozen
class WarmStart:
    """How a program's template is started. Attributes with content stand in no repr.

    Attributes:
        pool: Where the template lives.
        arg_index: Which of the args is another one in the template.
        arg: What it is there: the place where it stops and forks is marked in it.
        program: What the template runs there; it is sent to it.
        settings: For `program`.
        sealed: Files and folders that the template may read before it is ready. If any of them has
            changed by then, the template serves no call.
    """

    pool: WarmPool
    arg_index: int
    arg: str = field(repr=False)
    program: bytes = field(repr=False)
    settings: bytes = field(repr=False)
    sealed: Witness | None = field(default=None, repr=False)
