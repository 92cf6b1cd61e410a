"""`rye execute --thread fork`: a directive in a thread of its own, in view while it runs."""

from collections.abc import Mapping
from typing import Any

from ryecore.chain.model import ExecutionResult
from ryecore.cli.live import run_to_end
from ryecore.cli.models import missing_models
from ryecore.rye import Rye

__all__ = ["execute_fork"]


async def execute_fork(
    rye: Rye,
    ref: str,
    inputs: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    has_models: bool,
    is_shown: bool,
) -> ExecutionResult:
    """Run a directive in a thread, and wait for it unless it is asynchronous.

    Args:
        rye: The project.
        ref: The directive.
        inputs: Its inputs.
        options: Those of `Rye.execute`.
        has_models: Whether the project was opened with models.
        is_shown: Whether its tree is drawn on the standard error while it runs.

    Raises:
        RyeError: Nothing ran.
    """
    if not has_models:
        # Whatever else is wrong with the call is said first.
        await rye.execute(
            ref, inputs, **{**options, "dry_run": True, "async_": False, "idempotency_key": None}
        )
        raise missing_models()
    is_plain = options["target"] == "local" and options["timeout_s"] is None
    if options["async_"] or not is_plain or ref.startswith("tool:"):
        return await rye.execute(ref, inputs, **options)
    return await run_to_end(
        rye,
        lambda ctx: rye.start(
            ref,
            inputs,
            model=options["model"],
            limits=options["limits"],
            idempotency_key=options["idempotency_key"],
            ctx=ctx,
        ),
        is_shown=is_shown,
    )
