"""The lifecycle of a run, from its parent to its end: the same for threads and graphs.

A run has a row in the registry, an account that its children draw on, a signed file and a log. A
kind of run adds how it is planned, its log, its body and its result.

Source: docs/design/threads.md#steps; docs/design/graphs.md#the-walk; decisions 35 to 48.
"""

import time
from contextlib import suppress
from decimal import Decimal
from functools import partial
from typing import Final

import anyio
from attrs import evolve

from ryecore.agent.settlements import Unwritten
from ryecore.agent.spending import OVERSPENT
from ryecore.errors import (
    LinkLeavesSpace,
    RyeError,
    StateError,
    StateUnreachable,
    ThreadConflict,
)
from ryecore.policy import CallContext, CancelToken
from ryecore.policy.budget import Account, Amount
from ryecore.policy.cancelling import bounded_by, held_cancellation, is_cancelled, run_to_end
from ryecore.runs.bounds import RunBounds, find_parent
from ryecore.runs.children import stop_children, wait_for_children
from ryecore.runs.claimed import claim_to_end, stored_result
from ryecore.runs.host import RunHost
from ryecore.runs.kind import EndingT, ResultT, RunKind
from ryecore.runs.reports import RunReports
from ryecore.runs.request import Claimed, RunRequest, register_run
from ryecore.runs.supervisor import pass_on_requests
from ryecore.state.model import Cost, ThreadRecord
from ryecore.state.refusals import lease_lost

__all__ = ["RunLifecycle"]

_UNBEGUN_S: Final = 2.0
"""The seconds that may be taken to write the end of a run that was interrupted before it began.
After that, whoever looks at the run next writes it."""


class RunLifecycle(RunKind[EndingT, ResultT]):
    """The lifecycle of one run: `begin` starts it, `finish` runs it to its end.

    `run_id` is set once it is registered, and `continuation` once it was handed off. The observer
    and the audit log see it as its `execution`.
    """

    def __init__(self, host: RunHost, request: RunRequest, ctx: CallContext) -> None:
        self._host = host
        self._request = request
        self._ctx = evolve(ctx, report_sink=RunReports(ctx.report_sink, self))
        self.execution = ctx.execution
        self._started = time.monotonic()
        self._final_account: tuple[Account, Unwritten] | None = None  # once no child runs
        self._has_lost_lease = False
        self._parent: RunBounds | None = None
        registered = request.registered
        self._fence = registered.fence if isinstance(registered, Claimed) else None
        self.run_id = registered.run_id if registered else ""
        self.item_id = str(request.ref)
        self.cancellation = CancelToken()
        self.continuation: RunLifecycle[EndingT, ResultT] | None = None

    # Begin

    async def begin(self, *, is_shown: bool = False) -> None:
        """Register and plan the run, and open its account, file and log.

        A run that can't begin has ended as an error, if it was registered by then. With
        `is_shown`, its file and log are written by the time this returns.
        """
        host, request, account = self._host, self._request, self._ctx.budget_account
        store = self._store = await host.open_store()
        try:
            found = None
            if request.registered is not None:
                found = request.registered.record
                found = found or await store.registry.get_thread(self.run_id)
            self._parent = await find_parent(store, account, found, host.environ)
            if request.start_key is not None:  # found even if the item's file has changed
                await store.registry.check_start(request.start_key, account)
            await self._prepare()
            record = found or await self._register()
            self._ctx = evolve(self._ctx, labels=record.labels)  # what it inherits, too
            self._planned = await self._plan()
            await store.prepare(self.run_id)
            parent = host.running.get(self._parent.run_id) if self._parent else None
            if parent is not None:  # so that its child can have all that is left
                await parent.settle_spending()
            claim = partial(store.registry.together, self._claim, tree=self.run_id)
            above = self._parent.run_id if self._parent else None
            was_claimed = self._fence is not None
            with held_cancellation() as held:  # so that a claim is never forgotten
                self._fence = await host.budget_waits.claim(self.run_id, above, claim)
            held.deliver()
            host.supervisor.add(self.run_id, self._fence, self)
            if found is not None and not was_claimed:
                store.announce(self.run_id)
                record = await store.registry.get_thread(self.run_id)  # asked to stop meanwhile?
            if self.execution is not None:
                await self.execution.begins(self.run_id)
            pass_on_requests(record, self)  # a request that comes later wakes the supervisor
            await self._open_log(record)
            if is_shown and self.recorder is not None:
                await self.recorder.flush()
            await store.synced()
            host.running[self.run_id] = self
        except BaseException as error:
            if self._fence is None and request.registered is not None:
                self._fence = await claim_to_end(store, self.run_id, error)
                if self._fence is None:  # another process has begun it
                    raise
            if self.run_id:
                await self._end_unfinished(error, is_begun=False)
            raise

    async def _register(self) -> ThreadRecord:
        with held_cancellation() as held:
            record = await register_run(
                self._store.registry,
                self._request,
                self._ctx.budget_account,
                follows=self._follows,
                spawns=self._spawns,
                recent=self._host.recent_ids,
                labels=self._ctx.labels,
                on_unreachable=self._end_if_registered,
            )
        self.run_id = record.thread_id
        held.deliver()
        return record

    def _end_if_registered(self, run_id: str, error: StateUnreachable) -> None:
        """Have the run ended that this process may have registered, once its row can be read."""
        self.run_id = run_id  # which the result names
        status, result = self._failure_result(error)
        self.run_id = ""
        self._host.supervisor.defer(run_id, None, status, result)

    async def _open_account(self) -> None:
        """Open the account of a root or a child, or take over that of the earlier run."""
        planned, ledger = self._planned, self._store.ledger
        limits = planned.limits
        wanted = Amount(limits.spend_microcents or 0, limits.tokens or 0)
        if self._hands_over is not None:
            granted = await ledger.transfer(self._hands_over, self.run_id)
        elif self._parent is None:
            await ledger.register(self.run_id, wanted)
            granted = wanted
        else:
            granted = await ledger.reserve(
                self.run_id,
                self._parent.run_id,
                wanted,
                reserves_spend=planned.declares_spend,
                reserves_tokens=planned.declares_tokens,
            )
            self._host.budget_waits.reserve(self.run_id, planned, granted, self._parent.run_id)
        # Not a division, which rounds to the digits of the caller's context.
        spend_usd = Decimal(f"{granted.spend_microcents}e-8")
        self._limits = limits
        if (spend_usd, granted.tokens) != (limits.spend_usd, limits.tokens):
            self._limits = evolve(limits, spend_usd=spend_usd, tokens=granted.tokens)

    async def _claim(self) -> int:
        """Open the account, and claim the row, so that others see the run as running."""
        await self._open_account()
        registry, run_id = self._store.registry, self.run_id
        limits = self._binding_limits.to_dict()
        if self._fence is not None:
            await registry.set_limits(run_id, limits, model=self._model)
            return self._fence
        owns_process = self._request.thread.owns_process
        return await registry.claim(
            run_id, owns_process=owns_process, limits=limits, model=self._model
        )

    # Run and end

    async def run_chain(self) -> ResultT:
        """Finish the run, and all that it is handed off to; return the result of the last one."""
        result, following = await self.finish(), self.continuation
        while following is not None:
            result, following = await following.finish(), following.continuation
        return result

    async def finish(self) -> ResultT:
        """Run to the end. Nothing but a cancellation of its own task is raised, after the end.

        A run that it was handed off to has begun, and is `continuation`.
        """
        try:
            ending = await self._run()
            if self._has_lost_lease:
                raise lease_lost(self.run_id)
            if self._status_of(ending) == "completed":
                ending = await self._wait_for_children(ending)
        except anyio.get_cancelled_exc_class():
            with suppress(Exception):  # a failure here must not replace the cancellation
                await run_to_end(self._finalize_stopped)
            raise
        except Exception as error:
            if self._is_for_workers(error):
                await self._forget()
                raise
            ending = self._failed(error)
        except BaseException as error:  # such as KeyboardInterrupt
            await self._give_up(error)
            raise
        return await self._finalize(ending)

    async def _wait_for_children(self, ending: EndingT) -> EndingT:
        """Wait for the children of a run that has done its work, until its deadline.

        A run without running children has nothing left to stop, so a request to stop is too late.
        """
        unwritten = self._unwritten()
        account = await self._store.ledger.account(self.run_id)
        if not account.has_running_children:
            self._final_account = (account, unwritten)
            return ending
        tokens = (self.cancellation, self._ctx.cancellation)
        with bounded_by(*tokens, deadline=self._deadline):
            await wait_for_children(self._store, self.run_id)
        return await self._stopped_ending() if is_cancelled(*tokens) else ending

    async def _stopped_ending(self) -> EndingT:
        """Return the ending of a run that was asked to stop: killed where its row says so."""
        with suppress(StateError):
            row = await self._store.registry.get_thread(self.run_id)
            return self._stopped(killed=row.kill_requested)
        return self._stopped(killed=False)

    async def _finalize_stopped(self) -> None:
        await self._finalize(await self._stopped_ending())

    async def _finalize(self, ending: EndingT) -> ResultT:
        """Close the run, though its caller is cancelled meanwhile."""
        try:
            return await run_to_end(partial(self._close, ending))
        except BaseException as error:
            if self.continuation is not None:  # no task is left to run it
                await self.continuation._give_up(error)
            raise

    async def _close(self, ending: EndingT) -> ResultT:
        """Close the run. Whatever fails on the way, nothing stays open in this process."""
        try:
            result = await self._settle(ending)
        except BaseException as error:
            await self._end_unfinished(error)
            raise
        await self._forget()
        return result

    async def _settle(self, ending: EndingT) -> ResultT:
        store, run_id = self._store, self.run_id
        if self._final_account is None:
            await stop_children(store, run_id)
        if self._spending is not None and self._spending.has_overspent:
            await self.settle_spending()
        ending = await self._conclude(ending)
        log, unwritten = self.recorder, self._unwritten()
        cost = unwritten.cost
        account, known = self._final_account or (None, None)
        if account is None or known != unwritten:  # something was charged since
            account = await store.ledger.account(run_id)
        total, unwritten = unwritten.total(account), evolve(unwritten, own=account.own)
        result = self._make_result(ending, cost, total)
        await self._log_end(ending, cost, total)
        if log is None:
            raise RuntimeError("A run that ends has a log.")
        await log.write_ahead(closes=True)  # the row names its checkpoint
        file = self._ended_file(ending, cost)
        with suppress(StateError, LinkLeavesSpace):  # a full disk must not cost the result
            await self._leave_files(file)
        # Settles, releases the account, and sets status, result and head, in one transaction.
        await store.settle(
            run_id,
            self._status_of(ending),
            stored_result(result),
            self._fence or 0,
            head=log.position,
            snapshot=cost,
            charge=partial(unwritten.write, store.ledger),
            file=file,
        )
        if self.execution is not None:
            self.execution.spends(cost.spend_microcents, cost.unpriced)
        return result

    async def settle_spending(self) -> None:
        """Settle what the run has spent so far."""
        self._final_account = None
        if self._spending is not None:
            await self._spending.settle_unwritten()

    @property
    def _cost(self) -> Cost:
        return Cost() if self._spending is None else self._spending.cost

    def _unwritten(self) -> Unwritten:
        spending = self._spending
        return Unwritten(self.run_id, Cost(), ()) if spending is None else spending.waiting()

    # End without a result

    def lose_lease(self) -> None:
        """Stop a run of a queue without an end, as its lease is out: a worker resumes it."""
        if self._request.queue is not None:
            self._has_lost_lease = True
            self.cancellation.cancel()

    def _is_for_workers(self, error: BaseException) -> bool:
        """Return whether a run is left as it is, for a worker of its queue to resume it.

        Nothing of it can be written: its state can't be reached.
        """
        return self._request.queue is not None and isinstance(error, StateUnreachable)

    async def _end_unfinished(self, error: BaseException, *, is_begun: bool = True) -> None:
        """End the run with an error, or leave it to the workers of its queue."""
        if self._is_for_workers(error):
            await self._forget()
        else:
            await self._give_up(error, is_begun=is_begun)

    async def _give_up(self, error: BaseException, *, is_begun: bool = True) -> None:
        """End the run with the error that stopped it, though its caller is cancelled meanwhile."""

        async def end() -> None:
            try:
                if not is_begun:
                    await self._store.free_start_key(self.run_id)
                await self._end_badly(error)
            finally:
                await self._forget()

        async def end_shortly() -> None:
            with anyio.move_on_after(_UNBEGUN_S):
                await end()

        if isinstance(error, GeneratorExit):  # its event loop is gone, so nothing can be awaited
            self._store.run_now(end())
        elif is_begun or isinstance(error, Exception):
            await run_to_end(end)
        else:
            await run_to_end(end_shortly)

    async def _end_badly(self, error: BaseException) -> None:
        """End the log, the row and the account. The supervisor retries what can't be written.

        A log that can't be closed is closed by its next reader.
        """
        host, store, run_id = self._host, self._store, self.run_id
        log, spending = self.recorder, self._spending
        if isinstance(error, RyeError):
            error.facts = {**error.facts, "thread_id": run_id}
        status, result = self._failure_result(error)
        unwritten = None if spending is None else spending.unwritten()
        cost = None if unwritten is None else unwritten.cost
        if self.execution is not None and cost is not None:
            self.execution.spends(cost.spend_microcents, cost.unpriced)
        head, is_closed = None, log is None
        if log is not None:
            with suppress(StateError):
                for one in () if unwritten is None else unwritten.overspent:
                    log.append(OVERSPENT, one)
                await self._log_failure(error, cost or Cost())
                await log.write_ahead()  # the row names its checkpoint
                head, is_closed = log.position, True
        fence = self._fence
        try:
            if unwritten is not None:
                await unwritten.write(store.ledger)
            await store.settle(run_id, status, result, fence or 0, head=head, snapshot=cost)
            if is_closed:
                await store.end_file(await store.registry.get_thread(run_id))
        except ThreadConflict:  # it has ended otherwise
            if fence is None:  # or it was claimed, and the answer was lost
                host.supervisor.defer(run_id, None, status, result)
        except StateError:
            host.supervisor.defer(run_id, fence, status, result, unwritten, is_closed=is_closed)

    async def _forget(self) -> None:
        self._host.supervisor.remove(self.run_id)
        self._host.running.pop(self.run_id, None)
        self._host.budget_waits.close(self.run_id)
        if self.recorder is not None:
            with suppress(StateError):  # the end of the run reports it
                await self.recorder.close()
