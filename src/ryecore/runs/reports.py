"""What the tools of a run report, on its way to the run's listeners and to its caller."""

from typing import Protocol
from weakref import ref

from ryecore.policy.reports import ReportSink, ToolReport
from ryecore.state.events import Recorder

__all__ = ["RunReports"]


class Recorded(Protocol):
    """A run with a log."""

    @property
    def recorder(self) -> Recorder | None:
        """The run's log; None until it is opened."""
        ...


class RunReports:
    """The sink of the reports of one run's own tools.

    They are live events only of that run, and then its host's. So a run below doesn't pass its own
    to the run above, which would show them as its own.

    Args:
        caller: The sink of the run's caller, which may be that of the run above.
        run: The run. It holds this sink, which so holds it weakly: what has ended is freed at once.
    """

    def __init__(self, caller: ReportSink | None, run: Recorded) -> None:
        host = caller._host if isinstance(caller, RunReports) else caller
        self._host: ReportSink | None = host
        self._run = ref(run)

    def __call__(self, report: ToolReport) -> None:
        """Pass a report on."""
        run = self._run()
        recorder = None if run is None else run.recorder
        if recorder is not None:
            recorder.report(report)
        if self._host is not None:
            self._host(report)
