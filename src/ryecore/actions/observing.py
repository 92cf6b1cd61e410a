"""What sees each execute of a Rye: the observer, and the audit log."""

from typing import TYPE_CHECKING

from ryecore.actions.settings import Settings
from ryecore.policy.execution import Executions, WriteRecord

if TYPE_CHECKING:
    from ryecore.agent.telemetry import Observer
    from ryecore.audit import Audit

__all__ = ["make_executions"]


def make_executions(
    project: str, settings: Settings, observer: "Observer | None", audit: "Audit | None"
) -> Executions:
    """Return what sees each execute of a Rye.

    Args:
        project: The project's folder.
        settings: The settings, which may name the file of an audit log.
        observer: The host's observer.
        audit: The function that the host writes the audit log with.
    """
    write: WriteRecord | None = None
    if settings.audit is not None or audit is not None:
        from ryecore.audit import AuditFile, AuditLog  # noqa: PLC0415

        is_synced = settings.durability == "machine"
        write = AuditLog(audit or AuditFile(settings.audit or "", is_synced=is_synced)).write
    return Executions(project, None if observer is None else observer.execute, write)
