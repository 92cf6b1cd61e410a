"""Executes, as an observer and the audit log see them: who asked for what, and how it ended.

Their effects, spans and lines, are injected.

Source: ADR 036.
"""

import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, TypeVar

from attrs import evolve

from ryecore.convert.money import to_usd, write_usd
from ryecore.errors import CallCancelled, IntegrityError, RyeError
from ryecore.frozen import frozen
from ryecore.lillux.event_loop import EventLoopNeeded
from ryecore.policy.context import CallContext

if TYPE_CHECKING:
    from decimal import Decimal

    from ryecore.items.verification import VerifiedItem

__all__ = ["AuditRecord", "Execution", "Executions", "Operation", "Outcome", "WriteRecord"]

T = TypeVar("T")

Outcome: TypeAlias = Literal["started", "success", "error", "refused", "cancelled"]
"""How far an execute came: `refused` ran nothing, `started` hasn't ended yet."""

Operation: TypeAlias = Literal["execute", "start", "dry_run"]
"""What is asked for: a result, a run in the background, or a check that runs nothing."""

_MAX_REF: Final = 256
_CAPITAL: Final = re.compile(r"(?<!^)([A-Z])")
_CANCELLED: Final = ("cancelled", "killed")


@frozen(kw_only=True)
class AuditRecord:
    """One record of the audit log. It holds no parameter, no result and no text of an error.

    Attributes:
        time: When it was written, in UTC.
        id: The same in all records of one execute; for a run in the background, its id.
        outcome: `started` before anything runs; at the end `success`, `error`, `cancelled`, or
            `refused` where nothing ran.
        ref: The item, as a canonical ref; as it was asked for where it was refused early.
        hash: The verified content hash; None where nothing was verified.
        key: The fingerprint of the key that signed it; None where nothing was verified.
        caller: `host`, `thread`, `model`, `agent:NAME`, `mcp`, or `node:CALLER`.
        caller_thread: The id of the calling thread or graph run, if one calls.
        labels: The caller's labels.
        operation: `execute`, `start` for a run in the background, or `dry_run`.
        target: `local`, or the node that carries it out: `remote` or `remote:NAME`.
        thread_id: The id of the thread or run that it is; None for another execute.
        error_code: The code of the error; empty without one.
        duration_ms: The time since the request.
        spend_microcents: What its own models cost, without what it started; None without models,
            and without a price.
        project: The project's folder.
        pid: The process that wrote it.
    """

    time: str
    id: str
    outcome: Outcome
    ref: str
    hash: str | None
    key: str | None
    caller: str
    caller_thread: str | None
    labels: Mapping[str, str]
    operation: Operation
    target: str
    thread_id: str | None
    error_code: str
    duration_ms: float
    spend_microcents: int | None
    project: str
    pid: int

    @property
    def cost_usd(self) -> "Decimal | None":
        """What its own models cost, in US dollars, without what it started."""
        return None if self.spend_microcents is None else to_usd(self.spend_microcents)

    def to_dict(self) -> dict[str, object]:
        """Return the record as JSON types, as its line in a file has them."""
        spend = self.spend_microcents
        return {
            "time": self.time,
            "id": self.id,
            "outcome": self.outcome,
            "ref": self.ref,
            "hash": self.hash,
            "key": self.key,
            "caller": self.caller,
            "caller_thread": self.caller_thread,
            "labels": dict(self.labels),
            "operation": self.operation,
            "target": self.target,
            "thread_id": self.thread_id,
            "error_code": self.error_code,
            "duration_ms": round(self.duration_ms, 3),
            "cost_usd": None if spend is None else write_usd(spend),
            "project": self.project,
            "pid": self.pid,
        }


class WriteRecord(Protocol):
    """Writes a record to the audit log."""

    async def __call__(self, record: AuditRecord, *, must: bool) -> None:
        """Write it, though its task is cancelled; raise AuditError where it `must` and can't be."""
        ...


class Execution:
    """One execute. `CallContext.execution` carries it to the code that verifies and runs the item.

    Attributes:
        ref: The item, as a canonical ref once that is known.
        operation: What is asked for.
        target: Where it is carried out.
        outcome: How far it came.
        error_code: The code of its error; empty without one.
        item: The verified item; None until it is verified.
        thread_id: The id of the thread or run that it is, once that is registered.
        spend_microcents: What its own models cost, without what it started; None without models.
    """

    def __init__(
        self,
        seen_by: "Executions | None",
        ref: str,
        ctx: CallContext,
        *,
        operation: Operation = "execute",
        target: str = "local",
        announced: str | None = None,
    ) -> None:
        self._seen_by = seen_by
        self._ctx = ctx
        self._began = time.perf_counter()
        self._has_begun = False
        self._is_announced = announced is not None
        self._is_moved = False
        self._id = announced or os.urandom(8).hex()
        self.ref = ref
        self.operation: Operation = operation
        self.target = target
        self.outcome: Outcome = "started"
        self.error_code = ""
        self.item: VerifiedItem | None = None
        self.thread_id = announced
        self.spend_microcents: int | None = None

    @classmethod
    def elsewhere(cls, run_id: str | None = None) -> "Execution":
        """Return what stands for an execute that another process has begun.

        Args:
            run_id: The run, where this process records its end; None where the other one does.
        """
        return cls(None, "", CallContext(), announced=run_id)

    @property
    def announced(self) -> str | None:
        """The run whose start another process has recorded, and whose end this one records."""
        return self._id if self._seen_by is None and self._is_announced else None

    @property
    def caller(self) -> str:
        """Who asked for it: `host`, `thread`, `model`, `agent:NAME`, `mcp`, or `node:CALLER`."""
        ctx = self._ctx
        if ctx.budget_account is not None:
            return "thread"
        return ctx.caller or ("host" if ctx.capabilities is None else "model")

    @property
    def is_recorded(self) -> bool:
        """Whether an audit log gets a line before its first effect."""
        return self._seen_by is not None and self._seen_by.audit is not None

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of its caller."""
        return self._ctx.labels

    async def begins(self, thread_id: str | None = None) -> None:
        """Record that it begins, before its first effect. Only the first call counts.

        Args:
            thread_id: The run that it is, if it is one.

        Raises:
            AuditError: That can't be recorded, so it may not begin.
        """
        if self._has_begun or self._seen_by is None:
            return
        self.thread_id = thread_id or self.thread_id
        if not self._is_announced:
            self._id = self.thread_id or self._id
            await self._seen_by.write(self.record(), must=True)
        self._has_begun = True

    def moves(self) -> None:
        """Leave its end to the task or process that carries it out."""
        self._is_moved = True

    def spends(self, spend_microcents: int, unpriced: int) -> None:
        """Count what its own models cost, with the number of requests that have no price."""
        if spend_microcents or not unpriced:
            self.spend_microcents = (self.spend_microcents or 0) + spend_microcents

    async def run(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make the call that is this execute, and observe and record how it ends."""
        if self._seen_by is None:
            return await call()
        with self._seen_by.observe(self):
            try:
                done = await call()
            except (EventLoopNeeded, GeneratorExit):
                raise  # it is called again on a loop; or its loop is gone, as after a kill
            except BaseException as error:
                await self._end(error)
                raise
            await self._end(done)
        return done

    async def run_moved(self, call: Callable[[], Awaitable[T]]) -> T:
        """Carry on in another task, which observes and records its end."""
        self._is_moved, self.operation = False, "execute"
        return await self.run(call)

    async def _end(self, done: object) -> None:
        if self._is_moved or self._seen_by is None:
            return
        if isinstance(done, BaseException):
            self.error_code = _code_of(done)
            self.outcome = "error" if self._has_begun else "refused"
        else:
            self.error_code = getattr(done, "error_code", "")
            run_id = getattr(done, "thread_id", None) or getattr(done, "run_id", None)
            self.thread_id = self.thread_id or run_id
            self.outcome = "error" if self.error_code else "success"
        if self.error_code in _CANCELLED:
            self.outcome = "cancelled"
        # What ran has run: its end may be written late. What didn't must not succeed unseen.
        must = not self._has_begun and self.outcome == "success"
        await self._seen_by.write(self.record(), must=must)

    def record(self) -> AuditRecord:
        """Return the record of the execute as it is now."""
        item, now = self.item, time.time()
        second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
        return AuditRecord(
            time=f"{second}.{int(now * 1000) % 1000:03}Z",
            id=self._id,
            outcome=self.outcome,
            ref=self.ref[:_MAX_REF],
            hash=None if item is None else item.integrity,
            key=None if item is None else item.fingerprint,
            caller=self.caller,
            caller_thread=self._ctx.budget_account,
            labels=self.labels,
            operation=self.operation,
            target=self.target[:_MAX_REF],
            thread_id=self.thread_id,
            error_code=self.error_code,
            duration_ms=(time.perf_counter() - self._began) * 1000,
            spend_microcents=self.spend_microcents,
            project="" if self._seen_by is None else self._seen_by.project,
            pid=os.getpid(),
        )


def _code_of(error: BaseException) -> str:
    if isinstance(error, CallCancelled):
        return "cancelled"
    if isinstance(error, IntegrityError):  # whose types share one code: say what is wrong
        return _CAPITAL.sub(r"_\1", type(error).__name__).lower()
    if isinstance(error, RyeError):
        return "denied" if "capability" in error.facts else error.error_type
    return "internal" if isinstance(error, Exception) else "cancelled"


@frozen
class Executions:
    """What sees the executes of one Rye: its observer, its audit log, or both.

    Attributes:
        project: The project's folder.
        observer: Returns the context manager around an execute.
        audit: Writes a record.
    """

    project: str
    observer: Callable[[Execution], AbstractContextManager[object]] | None
    audit: WriteRecord | None

    def observe(self, execution: Execution) -> AbstractContextManager[object]:
        """Return the observer's context manager around an execute."""
        return nullcontext() if self.observer is None else self.observer(execution)

    async def write(self, record: AuditRecord, *, must: bool) -> None:
        """Write a record, if there is an audit log."""
        if self.audit is not None:
            await self.audit(record, must=must)

    async def run(
        self,
        ref: str,
        ctx: CallContext,
        call: Callable[[CallContext], Awaitable[T]],
        *,
        operation: Operation = "execute",
        target: str = "local",
        announced: str | None = None,
    ) -> T:
        """Make a call that is an execute; it gets the context that carries the execute.

        Args:
            ref: The item, as it was asked for.
            ctx: The caller.
            call: The call.
            operation: What is asked for.
            target: Where it is to be carried out.
            announced: The run whose start another process has recorded.
        """
        execution = Execution(
            self, ref, ctx, operation=operation, target=target, announced=announced
        )
        carried = evolve(ctx, execution=execution)

        async def made() -> T:
            return await call(carried)

        return await execution.run(made)
