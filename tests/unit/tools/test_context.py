"""The context of a tool call, and that of one call in it."""

from pathlib import Path
from typing import Any

from attrs import evolve, fields

from ryecore.policy import CallContext
from ryecore.tools import ToolContext


def test_the_context_of_one_call_keeps_all_else() -> None:
    def host() -> None: ...

    call = CallContext(budget_account="run")
    values: Any = [
        *(call, frozenset({"add"}), "workspace", Path("/project"), frozenset({"net"})),
        *(host,) * (len(fields(ToolContext)) - 5),
    ]
    ctx = ToolContext(*values)

    assert all(getattr(ctx, one.name) != one.default for one in fields(ToolContext))
    assert ctx.as_call("c-1") == evolve(ctx, call=call.as_call("c-1"))
