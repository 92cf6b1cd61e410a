"""The life of one thread, from its parent to its end: the fifteen steps, in their order.

Source: docs/design/threads.md#steps; decisions 35 to 48.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
from attrs import evolve

from ryecore.chain.trace import Trace
from ryecore.errors import RyeError, StateError
from ryecore.llm.parts import Message
from ryecore.policy import CallContext, CancelToken
from ryecore.policy.cancelling import bounded_by, is_cancelled, run_to_end
from ryecore.policy.hooks import Hook
from ryecore.policy.limits import Limits
from ryecore.policy.permissions import attenuate
from ryecore.runs.bounds import (
    RunBounds,
    count_child,
    depth_used_up,
    find_parent,
    within_bounds,
)
from ryecore.runs.children import stop_children, wait_for_children
from ryecore.runs.hooks import HookRunner
from ryecore.runs.naming import register_thread
from ryecore.runs.programs import check_actions
from ryecore.runs.supervisor import pass_on_requests
from ryecore.state.model import Cost
from ryecore.state.thread_file import ThreadFile
from ryecore.threads.calls.guard import ResultGuard
from ryecore.threads.calls.palette import Palette
from ryecore.threads.harness import SafetyHarness, limits_until
from ryecore.threads.host import ThreadHost
from ryecore.threads.lifecycle.budgeting import limits_along_chain, open_account
from ryecore.threads.lifecycle.closing import (
    leave_files,
    made_result,
    record_end,
    report_cost,
    run_after_complete,
    settle_failed,
    stopped_ending,
)
from ryecore.threads.lifecycle.continuing import continued_record, handoff_of
from ryecore.threads.lifecycle.leaving import (
    make_files,
    started_payload,
    thread_file,
)
from ryecore.threads.lifecycle.reading import DirectiveToRun, read_directive
from ryecore.threads.loop.ending import Ending, ending_of_error
from ryecore.threads.loop.loop import LoopInputs, ThreadLoop
from ryecore.threads.loop.recorder import Recorder
from ryecore.threads.planner.plan import Composed, LayeredLimits
from ryecore.threads.planner.risk import check_risks
from ryecore.threads.result import ThreadResult
from ryecore.threads.wish import ThreadWish

__all__ = ["ThreadLifecycle"]


class ThreadLifecycle:
    """One thread's life: `begin` takes steps 1 to 13, `finish` the last two.

    Args:
        host: What all threads of the Rye have in common.
        wish: The request to start the thread.
        ctx: On whose behalf, within what.

    Attributes:
        thread_id: Its id, from step 2 on.
        cancellation: Stops it.
        recorder: Where it tells what happens, from step 12 on; None before.
        continuation: The thread that continues this one, once this one is `continued`.
    """

    thread_id: str
    _directive: DirectiveToRun
    _composed: Composed
    _layered: LayeredLimits
    _limits: Limits
    _harness: SafetyHarness
    _hooks: HookRunner
    _palette: Palette
    _guard: ResultGuard
    _file: ThreadFile
    _warnings: tuple[str, ...]
    _configured_hooks: tuple[Hook, ...]
    _call: CallContext
    _carried: tuple[Message, ...]

    def __init__(self, host: ThreadHost, wish: ThreadWish, ctx: CallContext) -> None:
        self._host = host
        self._wish = wish
        self._ctx = ctx
        self._log = Trace(ctx.event_sink)
        self._started = time.monotonic()
        self._parent: RunBounds | None = None
        self.thread_id = wish.registered.thread_id if wish.registered else ""
        self._fence = wish.registered.fence if wish.registered else None
        self._loop: ThreadLoop | None = None
        self._wants_handoff = False
        self.recorder: Recorder | None = None
        self.cancellation = CancelToken()
        self.continuation: ThreadLifecycle | None = None

    def check(self) -> None:
        """Check whether its directive verifies and its model is known. Nothing is changed.

        Raises:
            RyeError: The thread can't begin.
        """
        self._load_directive()

    async def begin(self) -> None:
        """Take steps 1 to 13.

        Raises:
            RyeError: Nothing runs. A thread that was registered by then has ended as an error.
        """
        await self._host.open_store()
        try:
            self._resolve_parent()  # 1
            await self._register()  # 2
            self._load_directive()  # 3
            extends = self._resolve_extends()  # 4
            self._compose(extends)  # 5
            self._reconstruct_messages()  # 6
            self._build_limits()  # 7
            self._check_depth()  # 8
            self._check_spawns()  # 9
            await self._build_harness()  # 10
            await self._reserve_budget()  # 11
            await self._write_thread_file()  # 12
            self._name_itself_as_parent()  # 13
        except BaseException as error:
            if self.thread_id:
                self._host.store.free_start_key(self.thread_id)
                self._abandon(error)
            raise

    # Steps 1 to 6: what is to run

    def _resolve_parent(self) -> None:
        """Step 1."""
        self._parent = find_parent(self._host, self._ctx.budget_account, self._wish.registered)

    async def _register(self) -> None:
        """Step 2."""
        if self._wish.registered is not None:
            return
        goes_on = self._wish.continues
        await self._host.ledger.until_free()
        self.thread_id = register_thread(
            self._host.registry,
            self._wish.ref,
            self._ctx.budget_account,
            goes_on.follows if goes_on else None,
            self._wish.start_key,
        )

    def _load_directive(self) -> None:
        """Step 3."""
        self._directive = read_directive(self._host.planner, self._wish, self._log)

    def _resolve_extends(self) -> str | None:
        """Step 4."""
        self._configured_hooks = self._host.planner.hooks(self._log)
        read = self._directive
        return self._host.planner.extends(
            read.loaded, read.inputs, read.model, self._configured_hooks
        )

    def _compose(self, extends: str | None) -> None:
        """Step 5."""
        self._composed = self._host.planner.compose(self._directive.loaded, extends, self._log)

    def _reconstruct_messages(self) -> None:
        """Step 6. The caller has read the messages of the thread that is continued."""
        self._carried = self._wish.continues.messages if self._wish.continues else ()

    # Steps 7 to 11: within what

    def _build_limits(self) -> None:
        """Step 7. A thread that continues another one has what that one has left."""
        self._layered = self._host.planner.limits(
            self._directive.loaded.directive.limits, self._wish.overrides, self._log
        )
        self._limits = limits_along_chain(
            self._host.store, self.thread_id, self._layered.limits, self._wish, self._ctx
        )
        if self._parent is not None:
            self._limits = self._limits.capped_by(self._parent.limits)

    def _check_depth(self) -> None:
        """Step 8."""
        if self._limits.depth is not None and self._limits.depth < 0:
            raise depth_used_up(self._ctx.budget_account)

    def _check_spawns(self) -> None:
        """Step 9. One that another process has registered was counted there.

        A thread that is handed another one's work takes that one's place among the children.
        """
        continues = self._wish.continues
        if self._wish.registered is None and not (continues and continues.kind == "handoff"):
            count_child(self._host.store, self._parent)

    async def _build_harness(self) -> None:
        """Step 10."""
        permissions, host = self._composed.permissions, self._host
        bounds = (one.capabilities for one in (self._parent, self._wish.continues) if one)
        granted = attenuate(
            permissions.capabilities, within_bounds(self._ctx.capabilities, *bounds)
        )
        risks = check_risks(granted, permissions.risks, host.planner.risks(self._log), self._log)
        self._warnings = risks.warnings
        self._limits = limits_until(self._limits, self._ctx.deadline)
        self._harness = SafetyHarness(
            self._limits, granted, cancellation=self.cancellation, started=self._started
        )
        self._call = self._harness.acting_as(self.thread_id, self._ctx)
        self._hooks = HookRunner(
            (*self._composed.hooks, *self._configured_hooks),
            host.dispatcher,
            self._tell,
            directive_ctx=self._call,
            host_ctx=evolve(self._call, capabilities=None),
            muted=self._wish.muted_hooks,
            suppress=frozenset(self._composed.context.suppress),
        )
        await self._hooks.check()
        await check_actions(self._wish.ref, self._directive.loaded.directive, host.dispatcher.chain)
        self._guard = ResultGuard(host.artifacts(self.thread_id, self._wish.continues))
        self._palette = await host.palettes.build(
            tuple(sorted(self._harness.capabilities)),
            host.deps.registry if host.deps.tools is None else host.deps.tools,
            host.own_tools(self._harness, self._guard, self._directive.loaded.directive.outputs),
        )

    async def _reserve_budget(self) -> None:
        """Step 11. What the ledger grants is what the thread has."""
        self._limits = await open_account(
            self._host.store,
            self.thread_id,
            self._ctx.budget_account,
            self._limits,
            self._layered,
            self._wish.continues,
        )
        self._harness = evolve(self._harness, limits=self._limits)

    # Steps 12 and 13: from here on others see it

    async def _write_thread_file(self) -> None:
        """Step 12. The thread runs from here on."""
        host, thread_id = self._host, self.thread_id
        host.registry.set_limits(thread_id, self._limits.to_dict(), model=self._directive.model)
        folder = host.store.make_folder(thread_id)
        if self._fence is None:
            owns = self._wish.owns_process
            self._fence = host.registry.claim(thread_id, owns_process=owns)
        host.supervisor.add(thread_id, self._fence, self)
        row = host.registry.get_thread(thread_id)
        pass_on_requests(row, self)  # a stop or a handoff that was asked for before that
        self._file = thread_file(
            row,
            self._directive.loaded,
            model=self._directive.model,
            limits=self._limits.to_dict(),
            capabilities=self._harness.capabilities,
            continues=self._wish.continues,
        )
        transcript = await host.write(make_files, host, folder, self._file, self._palette)
        self.recorder = Recorder(thread_id, transcript, self._ctx.event_sink)
        began = started_payload(
            self._file, self._directive.inputs, self._palette, self._wish.muted_hooks
        )
        self.recorder.append("thread_started", began)
        if self._wish.continues is not None:
            # In one write: from its first line on, the thread can be resumed with its history.
            self.recorder.append(*continued_record(self._wish.continues))
        transcript.commit()
        await self.recorder.synced()
        await host.store.synced()

    def _name_itself_as_parent(self) -> None:
        """Step 13. What acts on its behalf says so: `CallContext.budget_account` names it.

        A child's own process is told by its environment. This one is not: others run in it too.
        """
        self._host.running[self.thread_id] = self

    # Step 14

    async def finish(self) -> ThreadResult:
        """Take steps 14 and 15. Only a cancellation of its own task is raised, once it has ended.

        Returns:
            Its result. A thread that continues it is begun, and is `continuation`.
        """
        try:
            ending = await self._run()
            if ending.status == "completed":
                ending = await self._wait_for_children(ending)
        except anyio.get_cancelled_exc_class():
            with suppress(Exception):  # no failure of the end takes the cancellation's place
                await self._finalize(stopped_ending(self._host, self.thread_id))
            raise
        except Exception as error:
            ending = ending_of_error(error)
        except BaseException as error:  # such as KeyboardInterrupt: nothing more may be awaited
            self._abandon(error)
            raise
        return await self._finalize(ending)

    async def _run(self) -> Ending:
        """Step 14."""
        loop = ThreadLoop(
            self._host,
            LoopInputs(
                thread_id=self.thread_id,
                loaded=self._directive.loaded,
                composed=self._composed,
                inputs=self._directive.inputs,
                model=self._directive.model,
                fallback=self._directive.fallback,
                palette=self._palette,
                guard=self._guard,
                config=self._directive.config,
                continues=self._wish.continues,
                messages=self._carried,
            ),
            self._harness,
            self._hooks,
            self._recorder,
            self._call,
        )
        self._loop = loop
        if self._wants_handoff:
            loop.want_handoff()
        tokens, deadline = (self.cancellation, self._ctx.cancellation), self._harness.deadline
        ending: Ending | None = None
        try:
            with bounded_by(*tokens, deadline=deadline):
                if not is_cancelled(*tokens):
                    ending = await loop.run()
        except Exception as error:
            if not is_cancelled(*tokens, deadline=deadline):
                return ending_of_error(error)
        if is_cancelled(*tokens):
            return stopped_ending(self._host, self.thread_id)
        if ending is not None:
            return ending
        hit = self._harness.time_is_up()
        with anyio.CancelScope(shield=True):
            await loop.tell_time_is_up(hit)
        return Ending("error", error=hit.message, code=hit.code)

    async def _wait_for_children(self, ending: Ending) -> Ending:
        """Wait for the children of a thread that has done its own work, as long as it may."""
        tokens = (self.cancellation, self._ctx.cancellation)
        with bounded_by(*tokens, deadline=self._harness.deadline):
            await wait_for_children(self._host.store, self.thread_id)
        return stopped_ending(self._host, self.thread_id) if is_cancelled(*tokens) else ending

    def want_handoff(self) -> None:
        """Hand the work to another thread, at the next turn."""
        self._wants_handoff = True
        if self._loop is not None:
            self._loop.want_handoff()

    # Step 15

    async def _finalize(self, ending: Ending) -> ThreadResult:
        """Step 15. Whatever fails on the way, nothing of the thread stays open here."""
        try:
            return await run_to_end(partial(self._close, ending))
        except BaseException as error:
            self._end_badly(error)
            if self.continuation is not None:  # nobody is left to run it
                self.continuation._abandon(error)
            raise
        finally:
            self._forget()

    async def _close(self, ending: Ending) -> ThreadResult:
        host, thread_id, cost = self._host, self.thread_id, self._cost
        are_wanted = ending.status == "completed"
        await stop_children(host.store, thread_id)
        if self._loop is not None:
            self._loop.spending.settle_unwritten()
        hooks = self._hooks.past_the_end(self._harness.deadline if are_wanted else None)
        await run_after_complete(host, hooks, self._recorder, self._file, ending, cost)
        if ending.hands_off:
            ending = await self._hand_off(ending)
        account, following = await report_cost(host, thread_id, cost), self.continuation
        result = made_result(
            self._file,
            ending,
            cost,
            total=account.total + account.held,  # what is held still will be charged
            duration_ms=(time.monotonic() - self._started) * 1000,
            continuation_id=following.thread_id if following else None,
            warnings=self._warnings,
        )
        record_end(self._recorder, ending, cost)
        await self._recorder.synced()
        size = self._recorder.transcript.offset
        await host.write(leave_files, host, self._file, ending, cost, reads_bytes=size)
        head = self._recorder.head
        # Releases the account, and sets status, result and head, in one transaction.
        settle = partial(
            host.store.settle,
            head=None if head is None else (head.offset, head.digest),
            snapshot=cost,
        )
        await host.write(settle, thread_id, ending.status, result.to_dict(), self._fence or 0)
        return result

    async def _hand_off(self, ending: Ending) -> Ending:
        """Begin the thread that continues this one. Where that fails, this one fails."""
        host, loop = self._host, self._loop
        host.registry.update_cost_snapshot(self.thread_id, self._cost, fence=self._fence)
        continues = handoff_of(
            host.registry.get_thread(self.thread_id),
            loop.messages if loop else [],
            self._harness.capabilities,
            loop.most_handed_on if loop else 0,
            self._limits,
        )
        inputs = self._directive.inputs
        # The key stays with this one: a repeated start follows the chain from it.
        request = evolve(
            self._wish, inputs=inputs, registered=None, continues=continues, start_key=None
        )
        ctx = evolve(self._ctx, deadline=self._harness.deadline)
        following = ThreadLifecycle(host, request, ctx)
        try:
            await following.begin()
        except RyeError as error:
            message = f"It could not be handed off: {error}"
            code = ending.code or str(error.facts.get("code") or "handoff")
            return evolve(ending, status="error", error=message, code=code, hands_off=False)
        self.continuation = following
        if self.cancellation.cancelled:  # asked to stop while it was handed on
            following.cancellation.cancel()
        self._recorder.append("thread_handoff", {"to": following.thread_id})
        host.registry.link_continuation(self.thread_id, following.thread_id)
        return evolve(ending, status="continued", code="")

    @property
    def _cost(self) -> Cost:
        return self._loop.spending.cost if self._loop else Cost()

    @property
    def _recorder(self) -> Recorder:
        if self.recorder is None:
            raise RuntimeError("Step 12 makes the recorder.")
        return self.recorder

    def _tell(self, kind: str, payload: Mapping[str, Any]) -> None:
        if self.recorder is not None:  # a hook of an earlier step has nowhere to tell
            self.recorder.tell(kind, payload)

    def _abandon(self, error: BaseException) -> None:
        """End a thread that takes no further turn."""
        self._end_badly(error)
        self._forget()

    def _end_badly(self, error: BaseException) -> None:
        unwritten = self._loop.spending.unwritten() if self._loop else None
        ref, fence = str(self._wish.ref), self._fence or 0
        settle_failed(self._host, self.thread_id, ref, fence, error, self.recorder, unwritten)

    def _forget(self) -> None:
        self._host.supervisor.remove(self.thread_id)
        self._host.running.pop(self.thread_id, None)
        if self.recorder is not None:
            with suppress(StateError):  # who ends it says so already
                self.recorder.close()
