"""The lifecycle of a directive's thread, an extension of that of every run.

The fifteen steps of a thread are those of `RunLifecycle`, with steps 3 to 10 here.

Source: docs/design/threads.md#steps; decisions 35 to 48.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import anyio
from attrs import evolve
from typing_extensions import override

from ryecore.agent.spending import Spending
from ryecore.chain.trace import Trace
from ryecore.errors import LinkLeavesSpace, RyeError, StateError
from ryecore.frozen import frozen
from ryecore.policy import CallContext
from ryecore.policy.budget import NOTHING, Amount
from ryecore.policy.cancelling import bounded_by, is_cancelled
from ryecore.policy.limits import LayeredLimits, Limits
from ryecore.policy.permissions import attenuate
from ryecore.runs.bounds import carried_limits, check_depth, count_child, is_host, within_bounds
from ryecore.runs.hooks import HookRunner
from ryecore.runs.host import RunHost
from ryecore.runs.lifecycle import RunLifecycle
from ryecore.runs.programs import check_actions
from ryecore.runs.request import RunRequest
from ryecore.runs.resume import Continuation
from ryecore.state.model import ContinuationLimits, Cost, Predecessor, Status, ThreadRecord
from ryecore.state.thread_file import ThreadFile
from ryecore.state.waiting import run_in_thread
from ryecore.threads.calls.guard import ArtifactStore, ResultGuard, artifact_reader
from ryecore.threads.calls.palette import PaletteBuilder
from ryecore.threads.events import ThreadRecorder
from ryecore.threads.harness import SafetyHarness, limits_until
from ryecore.threads.loop import ThreadEnding, ThreadLoop, ending_of_error, ending_of_stop
from ryecore.threads.media import ThreadMediaStore, carry_media, has_media
from ryecore.threads.planner.planning import DirectivePlanner, check_body, layered_limits
from ryecore.threads.planner.risk import check_risks, judge
from ryecore.threads.records.export import (
    export_thread,
    leave_files,
    started_payload,
    write_capabilities,
)
from ryecore.threads.result import ThreadResult
from ryecore.threads.resume import continued_record, handoff_of
from ryecore.threads.turn_policy import ResolvedDirective, ThreadPlan
from ryecore.tools.definition import ToolDef

__all__ = ["ThreadDeps", "ThreadLifecycle"]

_DEFAULT_MODEL: Final = "default"
_NO_LIMITS: Final = Limits()


@frozen
class ThreadDeps:
    """The dependencies of a Rye's threads, besides their host."""

    planner: DirectivePlanner
    palettes: PaletteBuilder
    orchestrator: ToolDef


class ThreadLifecycle(RunLifecycle[ThreadEnding, ThreadResult]):
    """The lifecycle of one thread, whose log is the `recorder` once it is opened."""

    _directive: ResolvedDirective
    _thread: ThreadPlan
    _harness: SafetyHarness
    _hooks: HookRunner
    _warnings: tuple[str, ...]
    _call: CallContext

    def __init__(
        self, host: RunHost, deps: ThreadDeps, request: RunRequest, ctx: CallContext
    ) -> None:
        super().__init__(host, request, ctx)
        self._deps = deps
        self._trace = Trace(ctx.event_sink)
        self._continues = request.thread.continues
        self._loop: ThreadLoop | None = None
        self._wants_handoff = False
        self._recorder: ThreadRecorder | None = None

    def check(self) -> None:
        """Check that the directive verifies and its model is known. Nothing is changed."""
        self._directive = self._resolve_directive()

    # Begin

    @property
    def _follows(self) -> Predecessor | None:
        return self._continues.follows if self._continues else None

    @property
    def _hands_over(self) -> str | None:
        continues = self._continues
        return continues.previous_id if continues and continues.kind == "handoff" else None

    @property
    def _model(self) -> str | None:
        return self._directive.model

    @property
    @override
    def recorder(self) -> ThreadRecorder | None:
        return self._recorder

    @property
    def _spending(self) -> Spending | None:
        return self._loop.spending if self._loop else None

    @property
    def _deadline(self) -> float | None:
        return self._harness.deadline

    async def _plan(self) -> LayeredLimits:
        """Take steps 3 to 10."""
        directive = self._directive = self._resolve_directive()  # 3
        planner, trace, request = self._deps.planner, self._trace, self._request
        settings = directive.settings
        extends = planner.extends(
            directive.loaded, directive.inputs, directive.model, settings.hooks
        )  # 4
        prepared = planner.prepare(directive.loaded, extends, settings, trace)  # 5
        composed, layered = prepared.composed, prepared.limits  # 6: `_continues.messages`
        if request.limits != _NO_LIMITS:
            declared = directive.loaded.directive.limits
            layered = layered_limits(settings.limits, declared, request.limits)  # 7
        limits = await self._along_chain(layered.limits)
        if self._parent is not None:
            limits = limits.capped_by(self._parent.limits)
        check_depth(self._parent)  # 8
        if self._parent and request.registered is None and self._hands_over is None:
            await count_child(self._store, self._parent)  # 9; another process counted its own
        bounds = (one.capabilities for one in (self._parent, self._continues) if one)
        held, risks = within_bounds(self._ctx.capabilities, *bounds), prepared.risks  # 10
        if held is not None:
            permissions = composed.permissions
            capabilities = attenuate(permissions.capabilities, held)
            risks = judge(capabilities, permissions.risks, settings.risks)
        check_risks(risks, trace)
        self._warnings = risks.warnings
        limits = limits_until(limits, self._ctx.deadline)
        self._harness = SafetyHarness(limits, risks.allowed, self.cancellation, self._started)
        self._call = self._harness.acting_as(self.run_id, self._ctx)
        self._hooks = HookRunner(
            prepared.hooks,
            self._host.dispatcher,
            directive_ctx=self._call,
            host_ctx=self._call.for_host(),
            muted=request.thread.muted_hooks,
            suppress=frozenset(composed.context.suppress),
        )
        await self._hooks.check()
        await check_actions(request.ref, directive.loaded.directive, self._host.dispatcher.chain)
        guard = ResultGuard(self._artifacts())
        injected = self._host.deps
        palette = await self._deps.palettes.build(
            tuple(sorted(self._harness.capabilities)),
            injected.registry if injected.tools is None else injected.tools,
            self._own_tools(prepared.returns),
        )
        self._thread = ThreadPlan(self.run_id, directive, composed, palette, guard, self._continues)
        if limits is layered.limits:
            return layered
        return LayeredLimits(limits, layered.declares_spend, layered.declares_tokens)

    def _resolve_directive(self) -> ResolvedDirective:
        """Read the directive, its inputs and its models. Nothing is changed.

        The inputs of a thread that continues another one were checked when that one began.
        """
        planner, trace, request = self._deps.planner, self._trace, self._request
        loaded = planner.load(request.ref, trace)
        if self.execution is not None:
            self.execution.item = loaded.item
        check_body(loaded)
        inputs: Mapping[str, object] = dict(request.inputs)
        if self._continues is None:
            inputs = planner.inputs(loaded, request.inputs, trace)
        declared = loaded.directive.model
        wanted = request.model or (declared.wanted if declared else None) or _DEFAULT_MODEL
        fallback = declared.fallback if declared else None
        return ResolvedDirective(
            loaded,
            inputs,
            planner.model(wanted, trace),
            planner.model(fallback, trace) if fallback else None,
            planner.settings(trace),
        )

    async def _along_chain(self, limits: Limits) -> Limits:
        """Return the limits of a thread, less what the thread that it continues has used.

        Limits that a person or the host resumes with are new: they count from zero.

        Source: decision 80.
        """
        continues = self._continues
        if continues is None or continues.kind == "fork":
            return limits
        is_renewed = continues.kind == "resume" and is_host(self._ctx)
        carried = ContinuationLimits(
            continues.previous_id,
            continues.limits,
            continues.ran_s,
            limits,
            self._request.limits if is_renewed else Limits(),
        )
        return await carried_limits(self._store, self.run_id, carried, needs_turns=True)

    def _artifacts(self) -> ArtifactStore:
        """Return the store of the thread's large results; it reads those of the earlier thread."""
        earlier = (self._continues.previous_id,) if self._continues else ()
        return ArtifactStore(self._store, self.run_id, earlier)

    def _own_tools(self, returns: ToolDef | None) -> list[ToolDef]:
        """Return the thread's own tools: to return outputs, read artifacts, and manage children."""
        tools = [] if returns is None else [returns]
        if self._harness.capabilities:
            tools.append(artifact_reader())
        own = self._deps.orchestrator
        if own.capability and self._harness.check_permission(own.capability):
            tools.append(own)
        return tools

    async def _open_account(self) -> None:
        await super()._open_account()
        if self._limits is not self._harness.limits:
            self._harness = self._harness.within(self._limits)

    async def _carry_media(self) -> Continuation | None:
        """Return what is continued, with media that this thread can read."""
        continues, store = self._continues, self._store
        if continues is None or not has_media(continues.messages):
            return continues
        shared = self._host.deps.media
        source = shared or ThreadMediaStore(store, continues.previous_id)
        own = None if shared else ThreadMediaStore(store, self.run_id)
        carried = await run_in_thread(carry_media, continues.messages, source, own)
        continues = self._continues = evolve(continues, messages=carried)
        self._thread = evolve(self._thread, continues=continues)
        return continues

    async def _open_log(self, record: ThreadRecord) -> None:
        """Write the files, and record the settings that decisions depend on."""
        store, continues = self._store, self._continues
        self._file = self._thread_file(
            record,
            item_hash=self._directive.loaded.item.integrity,
            capabilities=tuple(sorted(self._harness.capabilities)),
            continuation_of=continues.previous_id if continues else None,
        )
        log = await store.open_log(self._file)
        continues, thread = await self._carry_media(), self._thread
        await write_capabilities(store, self._file, thread.palette)
        self._recorder = ThreadRecorder(self.run_id, log, store.records, self._ctx.event_sink)
        self._hooks.tell, self._hooks.flush = self._recorder.tell, self._recorder.flush
        began = started_payload(
            self._file, self._directive.inputs, thread.palette, self._request.thread.muted_hooks
        )
        self._recorder.append("thread_started", began)
        if continues is not None:
            # In one write: from its first line on, the thread can be resumed with its history.
            self._recorder.append(*continued_record(continues))
        await self._recorder.write_ahead()  # on a server it is written with the first hold
        await self._recorder.write_soon()

    # Run

    async def _run(self) -> ThreadEnding:
        """Run the loop of turns: step 14."""
        loop = ThreadLoop(
            self._host,
            self._store,
            self._thread,
            self._harness,
            self._hooks,
            self._opened,
            self._call,
        )
        self._loop = loop
        if self._wants_handoff:
            loop.want_handoff()
        tokens, deadline = (self.cancellation, self._ctx.cancellation), self._deadline
        ending: ThreadEnding | None = None
        try:
            with bounded_by(*tokens, deadline=deadline):
                if not is_cancelled(*tokens):
                    ending = await loop.run()
        except Exception as error:
            if self._is_for_workers(error):
                raise
            if not is_cancelled(*tokens, deadline=deadline):
                return ending_of_error(error)
        if is_cancelled(*tokens):
            return await self._stopped_ending()
        if ending is not None:
            return ending
        hit = self._harness.time_is_up()
        with anyio.CancelScope(shield=True):
            await loop.tell_time_is_up(hit)
        return ThreadEnding.of_limit(hit)

    @property
    def _opened(self) -> ThreadRecorder:
        if self._recorder is None:
            raise RuntimeError("The log is opened before the thread runs.")
        return self._recorder

    def want_handoff(self) -> None:
        """Hand the work to another thread, at the next turn."""
        self._wants_handoff = True
        if self._loop is not None:
            self._loop.want_handoff()

    # End: step 15

    def _status_of(self, ending: ThreadEnding) -> Status:
        return ending.status

    def _stopped(self, *, killed: bool) -> ThreadEnding:
        return ending_of_stop(killed=killed)

    def _failed(self, error: Exception) -> ThreadEnding:
        return ending_of_error(error)

    async def _conclude(self, ending: ThreadEnding) -> ThreadEnding:
        """Run the hooks that follow the loop, and hand the thread off where that is due.

        Nothing that the hooks do changes how the thread ended.

        Source: docs/design/threads.md#after-completion.
        """
        listens = self._hooks.listens("after_complete")
        if ending.hands_off or listens:
            await self.settle_spending()
        if listens:
            is_completed = ending.status == "completed"
            hooks = self._hooks.past_the_end(self._deadline if is_completed else None)
            with suppress(StateError, LinkLeavesSpace):  # so that the hooks find the conversation
                file = self._ended_file(ending, self._cost)
                await export_thread(self._store, file, self._opened.conversation)
            context = {
                "thread_id": self.run_id,
                "directive": self._file.directive,
                "status": ending.status,
                "cost": self._cost.to_dict(),
                "project_path": str(self._host.project_root.parent),
            }
            with suppress(RyeError):
                await hooks.run("after_complete", context)
        return await self._hand_off(ending) if ending.hands_off else ending

    async def _hand_off(self, ending: ThreadEnding) -> ThreadEnding:
        """Begin the thread that continues this one. If that fails, this one fails."""
        registry, loop = self._store.registry, self._loop
        await registry.set_cost(self.run_id, self._cost, fence=self._fence)
        continues = handoff_of(
            await registry.get_thread(self.run_id),
            loop.messages if loop else [],
            self._harness.capabilities,
            loop.most_handed_on if loop else 0,
            self._limits,
        )
        # The key stays with this thread: a repeated start follows the chain from here.
        request = evolve(
            self._request,
            inputs=self._directive.inputs,
            registered=None,
            start_key=None,
            thread=evolve(self._request.thread, continues=continues),
        )
        ctx = evolve(self._ctx, deadline=self._deadline)
        following = type(self)(self._host, self._deps, request, ctx)
        try:
            await following.begin()
        except RyeError as error:
            message = f"It could not be handed off: {error}"
            code = ending.code or str(error.facts.get("code") or "handoff")
            return evolve(ending, status="error", error=message, code=code, hands_off=False)
        self.continuation = following
        if self.cancellation.cancelled:  # asked to stop during the handoff
            following.cancellation.cancel()
        self._opened.append("thread_handoff", {"to": following.run_id})
        await registry.link_continuation(self.run_id, following.run_id)
        return evolve(ending, status="continued", code="")

    def _make_result(self, ending: ThreadEnding, cost: Cost, total: Amount) -> ThreadResult:
        return ThreadResult(
            status="success" if ending.error is None else "error",
            item_id=self.item_id,
            data=dict(ending.outputs) or ending.text,
            error=ending.error,
            duration_ms=(time.monotonic() - self._started) * 1000,
            thread_id=self.run_id,
            ended=ending.status,
            text=ending.text,
            outputs=ending.outputs,
            cost=cost,
            total=total,
            code=ending.code,
            next_step=ending.next_step,
            continuation_thread_id=self.continuation.run_id if self.continuation else None,
            metadata={"warnings": list(self._warnings)} if self._warnings else {},
        )

    async def _log_end(self, ending: ThreadEnding, cost: Cost, total: Amount) -> None:
        recorder = self._opened
        payload: dict[str, object] = {"cost": cost.to_dict()}
        if ending.error:
            payload["error"] = ending.error
        recorder.append(f"thread_{ending.status}", payload)
        await recorder.close_turn(recorder.turn, soon=True)

    @override
    async def _leave_files(self, file: ThreadFile) -> None:
        await leave_files(self._store, file, self._opened.conversation)

    async def _log_failure(self, error: BaseException, cost: Cost) -> None:
        await self._log_end(self._ending_of(error), cost, NOTHING)

    def _failure_result(self, error: BaseException) -> tuple[Status, dict[str, object]]:
        ending = self._ending_of(error)
        return ending.status, {
            "status": "error",
            "item_id": self.item_id,
            "thread_id": self.run_id,
            "error": ending.error,
            "error_code": ending.code,
            "next_step": ending.next_step,
        }

    def _ending_of(self, error: BaseException) -> ThreadEnding:
        if isinstance(error, Exception):
            return ending_of_error(error)
        return ending_of_stop(killed=False)
