"""The process of one graph run, which the state-graph runtime starts.

It reads a payload on its standard input, claims the run, walks the graph in a Rye of its own,
reports progress on the standard error, and prints the result as one JSON document.

Source: docs/design/runtimes.md#state-graphs; decisions 30 and 41.
"""

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Final, cast

import anyio
from attrs import evolve

from ryecore.actions.payload import Payload
from ryecore.errors import RyeError, StateError, ThreadConflict
from ryecore.graph.live import ProgressLines
from ryecore.graph.result import failure_result
from ryecore.graph.run import GraphRun
from ryecore.policy import CallContext, CancelToken
from ryecore.policy.execution import Execution
from ryecore.runs.request import Claimed
from ryecore.rye import Rye
from ryecore.state.store import ThreadStore
from ryecore.worker import (
    cancel_on_signal,
    catch_stop_signals,
    claim_run,
    environ_without,
    open_rye,
)

__all__ = ["main", "walk_claimed"]

_INTERPRETER: Final = "RYE_WORKER_PYTHON"
_QUIET: Final = "RYE_GRAPH_QUIET"


def main() -> int:
    """Run the graph that the payload on the standard input names, and return the exit code."""
    received = catch_stop_signals()
    # What a host's module prints as it is imported must not stand beside the result.
    answer = os.dup(1)
    os.dup2(2, 1)
    payload = Payload.from_bytes(sys.stdin.buffer.read())
    document = anyio.run(_walk, payload, received)
    with contextlib.suppress(BrokenPipeError), open(answer, "wb") as out:
        text = json.dumps(document, ensure_ascii=False)
        out.write(f"{text}\n".encode(errors="backslashreplace"))
    return 0 if document.get("success") is True else 1


async def _walk(payload: Payload, received: Sequence[int]) -> Mapping[str, object]:
    try:
        threads, fence = await claim_run(payload)
    except ThreadConflict as error:  # it was stopped before it began
        return _failed(payload, error, "cancelled")
    except RyeError as error:
        return _failed(payload, error)
    # The process that waits for it records its end.
    return await walk_claimed(payload, threads, fence, received, Execution.elsewhere())


async def walk_claimed(
    payload: Payload,
    threads: ThreadStore,
    fence: int,
    received: Sequence[int],
    execution: Execution | None = None,
) -> Mapping[str, object]:
    """Run a graph that this process has claimed, settle it in any case, and return its result.

    `execution` is the execute that it is part of; by default it is one by itself.
    """
    threads.announce(payload.run_id)
    try:
        try:
            opened = open_rye(payload.settings, environ_without([_INTERPRETER]))
        except RyeError:
            await threads.free_start_key(payload.run_id)
            raise
        return await _run(opened, payload, fence, received, execution)
    except RyeError as error:
        document = _failed(payload, error)
    except Exception as error:  # whatever it is, the run has to end with it
        traceback.print_exc()
        document = _failed(payload, f"ryecore itself failed: {type(error).__name__}: {error}")
    with contextlib.suppress(StateError):  # its row says so already
        result = failure_result(payload.item_id, document)
        await threads.settle(payload.run_id, "error", result, fence)
    return document


async def _run(
    opened: Rye,
    payload: Payload,
    fence: int,
    received: Sequence[int],
    execution: Execution | None,
) -> Mapping[str, object]:
    stop = CancelToken()
    failed: Exception | None = None
    async with opened as rye, anyio.create_task_group() as helpers:
        await helpers.start(cancel_on_signal, stop, received)
        try:
            ctx = evolve(payload.ctx, cancellation=stop, execution=execution)
            return await _run_graph(rye, payload, fence, ctx)
        except Exception as error:  # which the group would wrap
            failed = error
        finally:
            helpers.cancel_scope.cancel()
    raise failed or AssertionError("the task group is left by one of the ways above")


async def _run_graph(
    rye: Rye, payload: Payload, fence: int, ctx: CallContext
) -> Mapping[str, object]:
    request = evolve(payload.request, registered=Claimed(payload.run_id, fence=fence))
    run = await rye.graphs.carry_out(request, ctx)
    if os.environ.get(_QUIET) != "1":
        graph = await rye.graphs.load(request.ref, ctx=ctx)
        await _write_progress(run, ProgressLines(len(graph.nodes)))
    result = await run.result()
    return cast("Mapping[str, object]", result.data)


async def _write_progress(run: GraphRun, lines: ProgressLines) -> None:
    """Write a line to stderr for each step, until the run has ended."""
    async for event in run.events():
        line = lines.line(event)
        if line is not None:
            with contextlib.suppress(OSError):  # its reader is gone
                os.write(2, f"{line}\n".encode())


def _failed(payload: Payload, error: RyeError | str, status: str = "error") -> Mapping[str, object]:
    facts = {"error": error} if isinstance(error, str) else error.during(payload.item_id).to_dict()
    return {**facts, "success": False, "status": status, "graph_run_id": payload.run_id}
