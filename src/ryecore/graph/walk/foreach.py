"""The calls of an item for each member of a list, in order or several at once."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import anyio

from ryecore.agent.outcome import NodeOutcome
from ryecore.frozen import frozen

__all__ = ["Member", "Members", "for_each"]

Member: TypeAlias = Callable[[int, object], Awaitable[NodeOutcome]]
"""Calls the item for one member: its index, the member."""

_MAX_ERRORS: Final = 100


@frozen
class Members:
    """The results of the members, in the list's order: None for one that failed.

    `errors` are the first ones, as `{index, error, code}`, with `effect_unknown` where a tool was
    interrupted; `failed` counts all.
    """

    items: Sequence[object]
    errors: tuple[Mapping[str, object], ...]
    failed: int

    def to_dict(self) -> dict[str, object]:
        """Return the value of `${result}`."""
        return {
            "items": list(self.items),
            "count": len(self.items),
            "failed": self.failed,
            "errors": [dict(one) for one in self.errors],
        }


async def for_each(
    members: Sequence[object],
    call: Member,
    *,
    at_once: int,
    stops_at_error: bool,
    known: Mapping[int, NodeOutcome] | None = None,
) -> Members:
    """Call an item for each member, `at_once` of them, but for those whose outcome is known.

    What a call raises is raised by itself, once the others ended. `stops_at_error`: the first
    failure ends the other calls, and begins none.
    """
    work = _Work(members, call, stops_at_error, known or {})
    workers = min(at_once, len(members))
    if workers <= 1:
        await work.go_on()
    else:
        async with anyio.create_task_group() as group:
            work.scope = group.cancel_scope
            for _ in range(workers):
                group.start_soon(work.go_on)
    if work.broken is not None:
        raise work.broken
    return Members(work.items, tuple(work.errors), work.failed)


class _Work:
    """A list of members that workers share."""

    def __init__(
        self,
        members: Sequence[object],
        call: Member,
        stops_at_error: bool,
        known: Mapping[int, NodeOutcome],
    ) -> None:
        self._left: Iterator[tuple[int, object]] = iter(enumerate(members))
        self._call = call
        self._stops_at_error = stops_at_error
        self._known = known
        self._is_over = False
        self.scope: anyio.CancelScope | None = None
        self.broken: Exception | None = None
        self.items: list[object] = [None] * len(members)
        self.errors: list[Mapping[str, object]] = []
        self.failed = 0

    async def go_on(self) -> None:
        """Call one member after the other, until none is left."""
        for index, member in self._left:
            try:
                outcome = self._known.get(index) or await self._call(index, member)
            except Exception as error:  # stored, since a task group would wrap it
                self.broken = self.broken or error
                self._stop()
                return
            if outcome.failure is None:
                self.items[index] = outcome.output
                continue
            self.failed += 1
            if len(self.errors) < _MAX_ERRORS:
                failure = outcome.failure
                kept: dict[str, object] = {"error": failure.message, "code": failure.code}
                if failure.effect_unknown:
                    kept["effect_unknown"] = True
                self.errors.append({"index": index, **kept})
            if self._stops_at_error:
                self._stop()
                return

    def _stop(self) -> None:
        """Stop taking members, and cancel the calls in progress."""
        self._left = iter(())
        if self.scope is not None:
            self.scope.cancel()
