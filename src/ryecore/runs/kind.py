"""What a kind of run, such as threads or graphs, adds to the lifecycle that all runs share.

Source: docs/design/threads.md#steps; docs/design/graphs.md#the-walk; decisions 35 to 48.
"""

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from ryecore.chain.model import ExecutionResult
from ryecore.items.signature import utc_now
from ryecore.policy import CallContext
from ryecore.policy.budget import Amount
from ryecore.policy.limits import LayeredLimits, Limits
from ryecore.runs.ports import RunSpending
from ryecore.runs.request import RunRequest
from ryecore.state.events import Recorder
from ryecore.state.model import Cost, Predecessor, SpawnLimit, Status, ThreadRecord
from ryecore.state.store import ThreadStore
from ryecore.state.thread_file import ThreadFile

__all__ = ["RunKind"]

EndingT = TypeVar("EndingT")
ResultT = TypeVar("ResultT", bound=ExecutionResult)


class RunKind(ABC, Generic[EndingT, ResultT]):
    """The steps of one run that differ between the kinds; `RunLifecycle` calls them in turn."""

    _store: ThreadStore
    _request: RunRequest
    _ctx: CallContext
    _planned: LayeredLimits
    _limits: Limits
    _file: ThreadFile

    async def _prepare(self) -> None:
        """Check whether the run can begin. Nothing is changed."""

    @property
    def _follows(self) -> Predecessor | None:
        """Return the link to the run that this one continues."""
        return None

    @property
    def _spawns(self) -> SpawnLimit | None:
        """Return the parent's limit on children, if registering the run counts against it."""
        return None

    @property
    def _hands_over(self) -> str | None:
        """Return the run whose account is handed over to this one, if any."""
        return None

    @abstractmethod
    async def _plan(self) -> LayeredLimits:
        """Plan the run, which has a row by now, and return its limits."""

    @abstractmethod
    async def _open_log(self, record: ThreadRecord) -> None:
        """Write the run's file and the beginning of its log."""

    @abstractmethod
    async def _run(self) -> EndingT:
        """Do the run's work."""

    @property
    @abstractmethod
    def recorder(self) -> Recorder | None:
        """The run's log; None until it is opened."""

    @property
    @abstractmethod
    def _spending(self) -> RunSpending | None:
        """What the run spends; None until it may spend anything."""

    @property
    def _deadline(self) -> float | None:
        """The monotonic time in seconds when the run must have ended."""
        return self._ctx.deadline

    @abstractmethod
    def _status_of(self, ending: EndingT) -> Status:
        """Return the status that the run's row ends with."""

    @abstractmethod
    def _stopped(self, *, killed: bool) -> EndingT:
        """Return the ending of a run that was asked to stop."""

    @abstractmethod
    def _failed(self, error: Exception) -> EndingT:
        """Return the ending of a run whose work raised an error."""

    def want_handoff(self) -> None:
        """Hand the work to another run, where this kind of run can."""

    async def _conclude(self, ending: EndingT) -> EndingT:
        """Run the steps between the work and the report of its cost."""
        return ending

    @abstractmethod
    def _make_result(self, ending: EndingT, cost: Cost, total: Amount) -> ResultT:
        """Make the result."""

    @abstractmethod
    async def _log_end(self, ending: EndingT, cost: Cost, total: Amount) -> None:
        """Write the end to the log, and sign it."""

    @abstractmethod
    async def _log_failure(self, error: BaseException, cost: Cost) -> None:
        """Write the failure of a run to the log, and sign it."""

    @abstractmethod
    def _failure_result(self, error: BaseException) -> tuple[Status, dict[str, object]]:
        """Return the status and the stored result of a run that failed."""

    async def _leave_files(self, file: ThreadFile) -> None:
        """Write the files for people, which stay after the run, with its signed file."""
        await self._store.leave_file(file)

    def _ended_file(self, ending: EndingT, cost: Cost) -> ThreadFile:
        """Return the run's signed file as it ends."""
        return self._file.ended(self._status_of(ending), cost, utc_now())

    @property
    def _binding_limits(self) -> Limits:
        """The limits that bind the run itself, which its row shows."""
        return self._limits

    @property
    def _model(self) -> str | None:
        return None

    def _thread_file(self, record: ThreadRecord, **fields: Any) -> ThreadFile:
        """Return the run's signed file as it begins."""
        return ThreadFile(
            thread_id=record.thread_id,
            item_id=record.item_id,
            directive=self._request.ref.id,
            status="running",
            created_at=record.created_at,
            updated_at=record.created_at,
            model=self._model,
            limits=self._limits.to_dict(),
            parent_id=record.parent_id,
            root_id=record.root_id,
            chain_root_id=record.chain_root_id or record.thread_id,
            **fields,
        )
