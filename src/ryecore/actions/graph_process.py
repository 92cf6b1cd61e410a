"""Graph runs in processes of their own, on the interpreter that ryecore runs on.

The run is registered before its process starts, which claims it with a single-use token. However
the process ends, the run ends with it.

Source: docs/design/runtimes.md#state-graphs; decisions 20, 30 and 41.
"""

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from attrs import evolve

from ryecore.actions.launch import graph_request, parent_variable, register_for_process
from ryecore.actions.settings import Settings
from ryecore.chain.model import ExecutionPlan
from ryecore.errors import StateError
from ryecore.graph.result import failure_document, failure_result
from ryecore.items.refs import ItemRef
from ryecore.lillux.processes import ProcessResult, ProcessSpec, run_process
from ryecore.policy import CallContext
from ryecore.policy.cancelling import run_to_end
from ryecore.policy.context import thread_variables
from ryecore.runs.request import RunRequest, parse_limits
from ryecore.state.waiting import run_in_thread

if TYPE_CHECKING:
    from ryecore.policy.execution import Execution
    from ryecore.state.store import ThreadStore

__all__ = ["GraphProcesses"]

_END_S: Final = 2.0
"""How long past its deadline a run may take to write its end."""
_GRACE_S: Final = 10.0
"""The seconds between TERM and KILL: two for the run's own children, the rest for its end."""
_MAX_OUTPUT: Final = 2000


class GraphProcesses:
    """The runner of graphs in processes of their own."""

    def __init__(
        self,
        threads: "Callable[[], ThreadStore]",
        settings: Settings,
        environ: Mapping[str, str],
    ) -> None:
        self._threads = threads
        self._settings = settings
        self._environ = environ

    async def run(self, plan: ExecutionPlan, ref: ItemRef, ctx: CallContext) -> ProcessResult:
        """Run a graph, and wait for its end. The caller's event sink receives no events of the run.

        The plan's standard input holds the graph's digest and its parameters. Where the process
        left no document, one that says so is added to its result.
        """
        store = await run_in_thread(self._threads)
        # From the registration to the `try` nothing is awaited. The process syncs what is written
        # here with its claim.
        request = graph_request(plan, RunRequest(ref, limits=parse_limits(plan.limits)))
        deadline = time.monotonic() + plan.timeout_s
        payload = await register_for_process(
            store, self._settings, self._environ, request, ctx, deadline
        )
        run_id = payload.run_id
        why = "It was stopped before it began."
        document: Mapping[str, object] = {}
        try:
            done = await run_process(
                ProcessSpec(
                    plan.command,
                    plan.args,
                    cwd=plan.cwd,
                    env={**plan.env, **parent_variable(ctx)},
                    call_env=thread_variables(store.project, run_id),
                    stdin=payload.to_bytes(),
                    timeout_s=plan.timeout_s + _END_S,
                    kill_grace_s=_GRACE_S,
                    max_output_bytes=plan.max_output_bytes,
                    log_path=plan.output_log,
                )
            )
            why = _how_it_ended(done)
        except Exception as problem:
            why = str(problem)
            raise
        finally:
            end = partial(_end, store, run_id, str(ref), why, ctx.execution)
            try:
                document = await run_to_end(end)
            except BaseException:  # such as a closed event loop
                store.run_now(end())
                raise
        return _with_document(done, document, why)


async def _end(
    store: "ThreadStore", run_id: str, item_id: str, why: str, execution: "Execution | None"
) -> Mapping[str, object]:
    """End the run of a process that has ended, where it hasn't, and return its document."""
    document = failure_document(run_id, why)
    with suppress(StateError):
        record = await store.look(run_id)  # ends a run that a process had claimed
        if record.status == "created":
            with suppress(StateError):  # another process was faster
                result = failure_result(item_id, document)
                await store.settle(run_id, "error", result, record.fence)
            record = await store.registry.get_thread(run_id)
        if execution is not None:
            execution.thread_id = run_id
            execution.spends(record.cost.spend_microcents, record.cost.unpriced)
        stored = await store.registry.get_result(run_id)
        data = stored.get("data") if isinstance(stored, Mapping) else None
        return data if isinstance(data, Mapping) else {**document, "status": record.status}
    return document


def _how_it_ended(done: ProcessResult) -> str:
    if done.signal is not None:
        return f"The graph's process was ended by signal {done.signal}."
    if done.status == "timed_out":
        return "The graph's process did not end in time and was stopped."
    return f"The graph's process ended with code {done.exit_code} and left no result."


def _with_document(done: ProcessResult, document: Mapping[str, object], why: str) -> ProcessResult:
    """Return the result with the run's document, which counts however the process ended."""
    if done.status == "exited" and done.stdout.strip():
        return done
    if document.get("success") is True:
        done = evolve(done, status="exited", exit_code=0, signal=None)
    elif document.get("error") == why and done.stderr.strip():
        output = done.stderr.decode(errors="backslashreplace").strip()[-_MAX_OUTPUT:]
        document = {**document, "error": f"{why} Its output: {output}"}
    written = json.dumps(document).encode()
    return evolve(done, stdout=written, stdout_total_bytes=len(written))
