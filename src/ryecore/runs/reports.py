"""What the tools of a run report, on its way to the run's listeners and to its caller."""

from collections.abc import Callable

from ryecore.policy.reports import ReportSink, ToolReport
from ryecore.state.events import Recorder

__all__ = ["RunReports"]


class RunReports:
    """The sink of the reports of one run's own tools.

    They are live events of that run alone, and then its host's. So a run below doesn't pass its own
    to the run above, which would show them as its own.

    Args:
        caller: The sink of the run's caller, which may be that of the run above.
        recorder: Returns the run's recorder; None until its log is opened.
    """

    def __init__(self, caller: ReportSink | None, recorder: Callable[[], Recorder | None]) -> None:
        host = caller._host if isinstance(caller, RunReports) else caller
        self._host: ReportSink | None = host
        self._recorder = recorder

    def __call__(self, report: ToolReport) -> None:
        """Pass a report on."""
        recorder = self._recorder()
        if recorder is not None:
            recorder.report(report)
        if self._host is not None:
            self._host(report)
