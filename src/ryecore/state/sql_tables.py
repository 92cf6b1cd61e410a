"""Registry, ledger and approvals over one database.

Source: decision 77.
"""

from typing import TYPE_CHECKING, Self

from ryecore.frozen import frozen
from ryecore.state.approvals import ApprovalStore
from ryecore.state.ledger import BudgetLedger
from ryecore.state.registry import ThreadRegistry
from ryecore.state.run_queue import RunQueue
from ryecore.state.sql_approvals import SqlApprovals
from ryecore.state.sql_ledger import SqlLedger
from ryecore.state.sql_registry import SqlRegistry
from ryecore.state.statements import SqlDatabase

if TYPE_CHECKING:
    from collections.abc import Callable

    from ryecore.state.object_store import ObjectStore
    from ryecore.state.postgres.notices import Notices
    from ryecore.state.postgres.records import LoadKey, PostgresRecordStore, Watch
    from ryecore.state.postgres.thread_files import PostgresThreadFiles

__all__ = ["SqlTables"]


@frozen
class SqlTables:
    """The tables of a project's threads.

    Attributes:
        database: The database of them all.
        registry: The threads.
        ledger: Their budgets.
        approvals: Their calls that wait for an approval.
        notices: The notices of changes on other machines, if some share the database.
        queue: The runs that wait for workers, if machines share the database.
        open_records: Opens the records of threads that are there, too, with what loads the run key
            and what watches a thread; None where records are files.
        thread_files: The signed files of threads that are there, too; else they are in folders.
        objects: The objects in the database, if machines share it.
    """

    database: SqlDatabase
    registry: ThreadRegistry
    ledger: BudgetLedger
    approvals: ApprovalStore
    notices: "Notices | None" = None
    queue: RunQueue | None = None
    open_records: "Callable[[LoadKey, Watch], PostgresRecordStore] | None" = None
    thread_files: "PostgresThreadFiles | None" = None
    objects: "ObjectStore | None" = None

    @classmethod
    def of(cls, database: SqlDatabase) -> Self:
        """Return the tables of a database."""
        return cls(database, SqlRegistry(database), SqlLedger(database), SqlApprovals(database))
