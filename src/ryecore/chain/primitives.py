"""The primitives at the end of every chain. They are built in: no file, nothing shadows them.

Source: docs/design/chain.md#primitives; decision 14.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from ryecore.chain.builder import EXECUTE_ID
from ryecore.chain.model import ExecutionPlan
from ryecore.items.refs import ItemRef
from ryecore.lillux.processes import ProcessResult, ProcessSpec, run_process
from ryecore.lillux.warm import WarmPool, WarmStart
from ryecore.policy.context import CallContext

__all__ = ["PRIMITIVE_MAP", "ExecutePrimitive", "KeptProcesses", "OwnProcesses", "process_spec"]


class KeptProcesses(Protocol):
    """Serves calls in processes that are kept for the next call."""

    async def run(self, spec: ProcessSpec, key: str) -> ProcessResult:
        """Serve a call, in a process of the same key that runs already if there is one.

        Args:
            spec: The process, with the call's arguments and standard input.
            key: `ExecutionPlan.keep`.

        Raises:
            RyeError: Nothing ran.
        """
        ...

    async def aclose(self) -> None:
        """End every kept process, and wait until none is left."""
        ...


class OwnProcesses(Protocol):
    """Carries out plans in processes that are no tools but ryecore itself."""

    async def run(self, plan: ExecutionPlan, ref: ItemRef, ctx: CallContext) -> ProcessResult:
        """Carry out a plan, to its end.

        Args:
            plan: What to run. Its standard input says the item's digest and its parameters.
            ref: The item.
            ctx: On whose behalf, within what.

        Raises:
            RyeError: Nothing ran.
        """
        ...


def process_spec(plan: ExecutionPlan, warm: WarmStart | None = None) -> ProcessSpec:
    """Return the process that carries out a plan.

    Args:
        plan: What to run.
        warm: How a template serves it; None starts it cold.
    """
    return ProcessSpec(
        command=plan.command,
        args=plan.args,
        cwd=plan.cwd,
        env=plan.env,
        call_env=plan.call_env,
        stdin=plan.stdin,
        timeout_s=plan.timeout_s,
        max_output_bytes=plan.max_output_bytes,
        log_path=plan.output_log,
        warm=warm,
    )


class ExecutePrimitive:
    """Runs a plan as a process of its own group, under lillux.

    Args:
        pool: The templates that a plan's process may be forked from; None starts it cold.
    """

    def __init__(self, pool: WarmPool | None = None) -> None:
        self._pool = pool

    async def run(self, plan: ExecutionPlan) -> ProcessResult:
        """Run the process and wait for it.

        Args:
            plan: What to run.

        Returns:
            How it ended and what it printed.

        Raises:
            SpawnFailed: It can't be started.
        """
        return await run_process(process_spec(plan, self._warm_start(plan)))

    def _warm_start(self, plan: ExecutionPlan) -> WarmStart | None:
        warm = plan.warm
        if warm is None or self._pool is None:
            return None
        template = warm.template
        return WarmStart(
            self._pool,
            warm.arg_index,
            warm.arg,
            template.program,
            template.settings,
            template.sealed,
        )


PRIMITIVE_MAP: Final[Mapping[str, Callable[[WarmPool | None], ExecutePrimitive]]] = {
    EXECUTE_ID: ExecutePrimitive
}
"""The primitives by id."""
