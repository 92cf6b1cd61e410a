"""Calls of tools that report and ask: each gets a channel as soon as there is room for it."""

import os
import resource
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from attrs import evolve

from ryecore.chain.channel import CallChannel
from ryecore.chain.channel_folder import ChannelFolder
from ryecore.chain.model import Chain, ExecutionPlan
from ryecore.errors import SpawnFailed
from ryecore.items.refs import ItemRef
from ryecore.lillux.os_errors import failure_of
from ryecore.lillux.processes import ProcessResult
from ryecore.policy.context import CallContext
from ryecore.policy.reports import Ask

__all__ = ["ChannelCalls"]

_FILES_A_CHANNEL: Final = 8
"""Of so many files that may be open, one channel may have two: there is room for all else."""

_LEAST_CHANNELS: Final = 8


class ChannelCalls:
    """Runs the plans of tools that declare `reports` or `may_ask`.

    Args:
        ask: Answers their questions, where their caller doesn't.
    """

    def __init__(self, ask: Ask | None) -> None:
        self._ask = ask
        self._folder = ChannelFolder()
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        free = most - len(os.listdir("/proc/self/fd"))  # the host may have many open
        self._places = anyio.CapacityLimiter(max(_LEAST_CHANNELS, free // _FILES_A_CHANNEL))

    async def run(
        self,
        run: Callable[[ExecutionPlan], Awaitable[ProcessResult]],
        plan: ExecutionPlan,
        chain: Chain,
        ref: ItemRef,
        ctx: CallContext,
    ) -> ProcessResult:
        """Run a plan whose process may report and ask.

        Raises:
            SpawnFailed: Its process can't be started, or its channel can't be made.
        """
        async with self._places:
            await ctx.begins()
            may_ask = chain.head.spec.may_ask
            try:
                channel = CallChannel(self._folder, ref, may_ask, ctx, self._ask)
            except OSError as problem:
                raise SpawnFailed(
                    f"The channel of {ref} can't be made: {problem.strerror} ({problem.filename}).",
                    next_step=failure_of(problem.errno).next_step,
                    command=plan.command,
                    errno=problem.errno,
                ) from problem
            call_env = {**plan.call_env, **channel.variables}
            return await channel.serve(lambda: run(evolve(plan, call_env=call_env)))

    def close(self) -> None:
        """Remove the folder of the channels, which are closed once all calls have ended."""
        self._folder.close()
