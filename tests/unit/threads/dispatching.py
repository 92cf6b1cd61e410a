"""A dispatcher over an open Rye, as hooks are handed one; it notes what was asked of it."""

from typing import Any

from attrs import define, field, frozen

from ryecore import CallContext, Rye


@frozen
class Forked:
    """What came of a directive that a hook ran."""

    response: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return self.response


@define
class Actions:
    """Tools and knowledge are the Rye's own; a directive's thread is only noted.

    Attributes:
        rye: The open Rye.
        forked: Each directive that was to be run: its id, its inputs, its options, the context.
        response: What the next thread answers.
    """

    rye: Rye
    forked: list[tuple[str, dict[str, Any], dict[str, Any], Any]] = field(factory=list)
    response: dict[str, Any] = field(factory=lambda: {"status": "success"})

    async def execute(self, ref: Any, parameters: Any = None, *, ctx: Any = None) -> Any:
        return await self.rye.execute(ref, parameters, ctx=ctx)

    async def chain(self, ref: Any, *, ctx: Any = None) -> Any:
        return await self.rye._parts.execute.chain(ref, ctx or CallContext())

    async def fetch(self, ref: Any, *, ctx: Any) -> Any:
        return await self.rye.fetch(ref, ctx=ctx)

    async def fork(self, ref: Any, inputs: Any, *, ctx: Any, **options: Any) -> Forked:
        self.forked.append((ref.id, dict(inputs), options, ctx))
        return Forked(self.response)
