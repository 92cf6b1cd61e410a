"""The threads of a project: registry, ledger, logs, and waiting for their end.

The registry is authoritative. A run's folder has its log, or a copy of its result for people; its
time changes with the row, which wakes waiting processes.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import anyio
from typing_extensions import override

from ryecore.errors import StateError, StateLocked, ThreadConflict, ThreadNotFound
from ryecore.state.approvals import ApprovalStore
from ryecore.state.attestation import AttestedFolder, attested_folder, check_graph_folders
from ryecore.state.database import Database
from ryecore.state.ledger import BudgetLedger
from ryecore.state.model import (
    THREADS_FOLDER,
    Cost,
    Durability,
    Status,
    ThreadRecord,
    thread_not_found,
)
from ryecore.state.object_places import IN_PROJECT, ObjectPlace, SharedObjects
from ryecore.state.object_store import ObjectStore
from ryecore.state.objects import FolderRunObjects, RunObjects, SharedRunObjects
from ryecore.state.open_tables import open_tables
from ryecore.state.owners import (
    KillPlan,
    ended_if_abandoned,
    is_abandoned,
    next_sign,
)
from ryecore.state.pruning import ThreadPruning
from ryecore.state.record_log import RecordLog, RecordStore
from ryecore.state.registry import ThreadRegistry
from ryecore.state.run_queue import RunQueue
from ryecore.state.thread_file import (
    THREAD_FILE,
    ThreadFile,
    encode_thread_file,
    recover_orphan,
)
from ryecore.state.thread_folders import ThreadFolders
from ryecore.state.transcript_store import FileRecordStore
from ryecore.state.waiting import (
    ChangeWatcher,
    run_blocking,
    run_in_thread,
    signal_change,
)
from ryecore.state.write_ahead import WriteAhead

__all__ = ["ThreadStore"]

T = TypeVar("T")

_MIN_SUFFIX_CHARS: Final = 4


class ThreadStore(ThreadFolders):
    """The threads of one project: `.ai/state/threads`, attested, signed by the user's run key."""

    def __init__(
        self,
        place: AttestedFolder,
        durability: Durability = "process",
        user_root: Path | None = None,
        state: str | None = None,
        objects: ObjectPlace = IN_PROJECT,
    ) -> None:
        super().__init__(place, durability, user_root)
        tables = open_tables(place, durability, state)
        self._database = tables.database
        self._notices = tables.notices
        self._objects = SharedObjects(objects, (state, tables.objects))
        self.registry: ThreadRegistry = tables.registry
        self.ledger: BudgetLedger = tables.ledger
        self.approvals: ApprovalStore = tables.approvals
        self.queue: RunQueue | None = tables.queue
        ahead = None
        if isinstance(tables.database, Database):
            ahead = WriteAhead(tables.database, str(self.folder), self._folder_to_write)
            ahead.restore()
        self._ahead = ahead if durability == "machine" else None
        self._shared_files = tables.thread_files
        if tables.open_records is not None:
            self._shared = tables.open_records(self._load_key, self.watch)
        self.records: RecordStore = self._shared or FileRecordStore(
            self.folder_of,
            self._folder_to_write,
            self._load_key,
            self._ahead,
            *(() if ahead is None else (ahead.check_restored,)),
        )
        self.pruning = ThreadPruning(
            tables.database, place, self._objects.spaces_of, is_shared=self._shared is not None
        )

    @classmethod
    def open(
        cls,
        project_root: Path,
        user_root: Path,
        durability: Durability = "process",
        state: str | None = None,
        objects: ObjectPlace = IN_PROJECT,
    ) -> Self:
        """Open the threads of a project's `.ai` folder, which is made if it is missing.

        Args:
            project_root: The `.ai` folder.
            user_root: The user's.
            durability: What changes survive.
            state: The address of a server that holds the rows; by default they are in the folder.
            objects: Where the objects are that other machines read; by default in the folder.
        """
        place = attested_folder(project_root / "state", THREADS_FOLDER, user_root)
        return cls(place, durability, user_root, state, objects)

    def begin_log(self) -> None:
        """Make the first commit of a new log now, so that no run waits for the disk for it."""
        if isinstance(self._database, Database):
            with suppress(StateError):  # the next write raises the error
                self._database.begin_log()

    async def synced(self) -> None:
        """Wait until all writes so far have the promised durability."""
        await self.registry.synced()

    def quiet(self, most_s: float) -> AbstractContextManager[bool]:
        """Keep other threads away, so that reads don't wait for them; see `Database.quiet`."""
        database = self._database
        return database.quiet(most_s) if isinstance(database, Database) else nullcontext(True)

    def is_in_place(self) -> bool:
        """Return whether the open registry is the one in the folder."""
        if isinstance(self._database, Database):
            return self._database.is_in_place()
        return self.private_folder.is_dir()

    def close(self) -> None:
        """Close the registry."""
        if self._notices is not None:
            self._notices.close()
        self._objects.close()
        self._database.close()

    @override
    def watch(self, thread_id: str) -> ChangeWatcher:
        watcher = super().watch(thread_id)
        if self._notices is not None:
            self._notices.listen(thread_id, self._wake)
        return watcher

    @override
    def watch_requests(self) -> ChangeWatcher:
        watcher = super().watch_requests()
        if self._notices is not None:
            self._notices.listen(None, self._wake)
        return watcher

    def _wake(self, thread_id: str | None) -> None:
        """Wake those who watch a thread, or requests to all, after a change elsewhere."""
        if thread_id is None:
            self._notify_owners()
        else:
            self.announce(thread_id)

    async def find(self, part: str) -> str:
        """Find the whole id of a thread by a prefix or a suffix of it that no other id has.

        A prefix goes first. A suffix has at least four characters.
        """
        self.folder_of(part)
        found, verb = await self.registry.find_by_prefix(part), "begins"
        if not found and len(part) >= _MIN_SUFFIX_CHARS:
            found, verb = await self.registry.find_by_suffix(part), "ends"
        ids = [one.thread_id for one in found]
        if part in ids:
            return part
        if len(ids) == 1:
            return ids[0]
        active = await self.registry.list_active()
        if not ids:
            of_item = [one for one in active if one.item_id.partition(":")[2] == part]
            raise thread_not_found(part, [one.thread_id for one in of_item])
        has_part = str.startswith if verb == "begins" else str.endswith
        running = [one.thread_id for one in active if has_part(one.thread_id, part)]
        hint = f" Only {running[0]} has not ended." if len(running) == 1 else ""
        raise ThreadNotFound(
            f"{part!r} {verb} the ids of several threads: {', '.join(ids)}.",
            next_step=f"Write more of the one you mean.{hint}",
            thread_id=part,
        )

    def run_now(self, call: Coroutine[Any, Any, T]) -> T:
        """Run operations of this store to their end, where nothing can be awaited.

        A notebook renders without awaiting, and a run that its interpreter interrupts ends so. No
        other code uses this: it blocks the event loop.
        """
        return run_blocking(call)

    def _notify_owners(self) -> None:
        """Wake all processes that run threads, to read a new request from the registry.

        Each process watches the one folder of all threads, however many it runs.
        """
        signal_change(self._place)

    @override
    def artifacts(self, thread_id: str) -> ObjectStore:
        return self._objects.artifacts_of(thread_id) or super().artifacts(thread_id)

    def travelling(self) -> ObjectStore:
        """Return the objects by which projects travel to workers; see `SharedObjects.need`."""
        return self._objects.need().below("travelling")

    def handed_objects(self, run_id: str) -> ObjectStore:
        """Return what a run's worker sends to the node that handed it over; see `travelling`."""
        return self._objects.handed_of(run_id)

    def objects(self, run_id: str) -> RunObjects:
        """Return the objects of one run of a graph."""
        folder = FolderRunObjects(self.folder.parent, self._durability)
        shared = self._objects.values_of(run_id)
        return folder if shared is None else SharedRunObjects(shared, folder)

    async def check_objects(self) -> None:
        """Refuse links of a clone in place of the folders that graphs write to."""
        await run_in_thread(check_graph_folders, self.folder.parent)

    # Operations of the owner

    async def open_log(self, thread: ThreadFile) -> RecordLog:
        """Write a thread's file, and make its log.

        Where both are on a server, they are there from the first write of the log on.
        """
        if self._shared is not None:
            content = encode_thread_file(thread, self._load_key())
            return self._shared.begin(thread.thread_id, content)
        await self.write_file(thread)
        return await self.records.create(thread.thread_id)

    async def settle(
        self,
        thread_id: str,
        status: Status,
        result: object,
        fence: int,
        *,
        head: tuple[int, str] | None = None,
        snapshot: Cost | None = None,
        charge: Callable[[], Coroutine[Any, Any, None]] | None = None,
        file: ThreadFile | None = None,
    ) -> None:
        """End a thread, write a copy of a tool's result, and wake those who wait for it.

        Its account is closed with it. The head is the length in bytes and the digest of its
        transcript's last checkpoint. What is to be charged before is charged in the same
        transaction, and where its file is on a server, that is written in it, too. A
        thread that has ended, or was taken over by another process, is a ThreadConflict.
        """
        files, content = self._shared_files, b""
        if files is not None and file is not None:
            content = encode_thread_file(file, self._load_key())

        async def end() -> None:
            if charge is not None:
                await charge()
            await self.registry.settle(
                thread_id, status, result, fence=fence, head=head, snapshot=snapshot
            )
            if files is not None and content:
                await files.end(thread_id, content)

        self._checked.pop(thread_id, None)
        # First, so that the copy exists when the end is visible.
        await self._copy_result(thread_id, result)
        try:
            await self.registry.together(end, tree=thread_id)
        except ThreadConflict:
            kept = await self.registry.get_result(thread_id)
            if kept is not None:  # it has ended in another way, which the copy shows
                await self._copy_result(thread_id, kept)
            raise
        await self.synced()
        self.announce(thread_id)

    async def free_start_key(self, thread_id: str) -> None:
        """Free the idempotency key of a thread that failed before anything of it ran."""
        with suppress(StateError):  # else a repeated start reports this failure
            await self.registry.free_start_key(thread_id)

    # Operations of any process

    async def look(self, thread_id: str) -> ThreadRecord:
        """Return a thread's row, and end the thread first if its owner is dead.

        If that can't be written, as on a read-only disk, the returned row still shows the end.
        """
        self.folder_of(thread_id)
        record = await self.registry.get_thread(thread_id)
        if is_abandoned(record):
            with suppress(StateError):
                await self._settle_abandoned((record,))
            record = ended_if_abandoned(await self.registry.get_thread(thread_id))
        return record

    async def look_closed(self, thread_id: str) -> ThreadRecord:
        """Return a thread's row, and close the files of a dead thread if they aren't closed yet.

        It is for continuations, because records that no checkpoint covers are of less use.
        """
        record = await self.look(thread_id)
        if not record.ended or self._user_root is None:
            return record
        with suppress(StateError):  # it is missing or was altered, which other checks report
            if await self._is_left_open(thread_id):
                await self.close_files(thread_id)
        return await self.registry.get_thread(thread_id)

    async def _is_left_open(self, thread_id: str) -> bool:
        """Return whether nobody has closed the files of a thread that has ended."""
        if self._shared is not None and await self._shared.is_open(thread_id):
            return True
        return (await self.read_file(thread_id)).get("status") == "running"

    async def look_at_all(
        self, find: Callable[[ThreadRegistry], Awaitable[tuple[ThreadRecord, ...]]]
    ) -> tuple[ThreadRecord, ...]:
        """Return the rows that a query of the registry finds, after ending threads of dead owners.

        If that can't be written, as on a read-only disk, the returned rows still show the end.
        """
        with suppress(StateError):
            await self._settle_abandoned(await self.registry.list_active())
        return tuple(map(ended_if_abandoned, await find(self.registry)))

    async def _settle_abandoned(self, records: tuple[ThreadRecord, ...]) -> None:
        ended = await self.registry.settle_abandoned(records)
        for thread_id in ended:
            result = await self.registry.get_result(thread_id)
            await self._copy_result(thread_id, result)
            await self.close_files(thread_id)
            self.announce(thread_id)
        if ended:
            self._notify_owners()  # to stop threads that still run below them

    async def close_files(
        self, thread_id: str, overspent: Sequence[Mapping[str, object]] = ()
    ) -> None:
        """Close the transcript and the file of a thread that has ended, if its owner could not.

        Records that no checkpoint covers are marked unattested. If that can't be written, the file
        still shows a running thread, or the log on the server a writer, so that `look_closed` tries
        again. Requests that cost more than was held are recorded as `recover_orphan` does.

        Source: decision 47.
        """
        if self._user_root is None:
            return
        record, has_log = await self.registry.get_thread(thread_id), False
        if self._shared is not None or (self.folder_of(thread_id) / THREAD_FILE).exists():
            has_log = await self.records.exists(thread_id)  # else it never ran
        head = None
        if has_log:
            result = await self.registry.get_result(thread_id)
            error = result.get("error") if isinstance(result, Mapping) else None
            text = error if isinstance(error, str) else None
            head = await recover_orphan(self.records, record, text, overspent)
        if head is not None or not has_log:
            await self.end_file(record)
        if head is not None:
            with suppress(StateError):  # a head that lags behind isn't wrong
                await self.registry.set_head(thread_id, (head.offset, head.digest))

    async def wait(
        self,
        thread_id: str,
        timeout_s: float | None = None,
        *,
        follow: Callable[[ThreadRecord], Awaitable[None]] | None = None,
    ) -> ThreadRecord:
        """Wait until a thread has ended, or the time is up, and return its row.

        `follow` is called, again after changes, for a thread that another machine runs.
        """
        record = await self.look(thread_id)
        if record.ended:
            return record
        if self.folder.is_dir():  # else it was removed, and the next launch makes it
            await run_in_thread(self.make_folder, thread_id)
        with anyio.move_on_after(timeout_s):
            async with self.watch(thread_id) as watched:  # from here on, no change is missed
                while True:
                    record = await self.look(thread_id)
                    if record.ended:
                        return record
                    is_elsewhere = record.place is not None or record.queue is not None
                    if follow is not None and is_elsewhere:
                        await follow(record)
                        if record.place is not None:
                            record = await self.look(thread_id)
                    await next_sign(watched, record)
        return await self.look(thread_id)

    async def cancel(self, thread_id: str) -> ThreadRecord:
        """Ask a thread and its subtree to stop; each owner ends its running work and the thread.

        A thread that no process has claimed is ended at once. Returns its row; for a thread that
        was handed off, that of its last continuation.
        """
        return await self._stop(thread_id, kill=False)

    async def kill(self, thread_id: str, grace_s: float = 3.0) -> ThreadRecord:
        """Kill the processes of a thread, its subtree and their tools: TERM, grace, KILL.

        Waits until they have ended. If a thread shares its process with others, the thread is asked
        to stop, and only the processes of its tools are killed. A thread that was handed off is
        killed in its continuations.

        Returns its row, or that of its last continuation, with the status `killed`; not yet, if it
        shares its process with others and stopping takes longer than the grace. A process that
        can't be ended from here is a StateError.
        """
        record, unwritten = await self.look(thread_id), None
        plan = await KillPlan.read(self.registry, self.project, thread_id)
        try:
            await self._stop(thread_id, kill=True)
        except StateError as problem:
            unwritten = problem  # a full disk must not prevent the kill
        await plan.carry_out(grace_s)
        if isinstance(unwritten, StateLocked):  # perhaps by the process that was just killed
            with suppress(StateError):
                await self.registry.request_cancel(thread_id, kill=True)
                return await self.look(await self.registry.last_of(thread_id))
        with suppress(StateError):
            await self._settle_abandoned(await self.registry.list_tree(thread_id, and_after=True))
        found = await self.look(await self.registry.last_of(thread_id))
        is_unwritten = found.ended and found.completed_at is None
        if is_unwritten or (unwritten is not None and not record.ended):
            why = unwritten.message if unwritten else "its disk takes nothing more."
            raise StateError(
                f"The process of the thread {thread_id} was ended, but its end can't be written: "
                f"{why}",
                next_step="Make room on the disk; who looks then finds the thread ended.",
            ) from unwritten
        return found

    async def _stop(self, thread_id: str, *, kill: bool) -> ThreadRecord:
        record = await self.look(thread_id)
        if record.ended and record.status != "continued":
            return record
        await self.registry.request_cancel(thread_id, kill=kill)
        for found in await self.registry.list_tree(thread_id, and_after=True):
            if not found.ended:
                await self._stop_one(found, kill=kill)
        self._notify_owners()
        return await self.registry.get_thread(await self.registry.last_of(thread_id))

    async def hand_off(self, thread_id: str) -> ThreadRecord:
        """Ask a thread's owner, in whichever process, to hand it off, unless it has ended."""
        await self.look(thread_id)
        record = await self.registry.request_handoff(thread_id)
        self._notify_owners()
        return record

    async def _stop_one(self, record: ThreadRecord, *, kill: bool) -> None:
        """Wake the owner of a thread to read the request in its row; without an owner, end it."""
        thread_id = record.thread_id
        if record.status == "created":
            # No process runs it yet, and one that tries to claim it finds that it has ended.
            result = {"status": "error", "error": "It was stopped before it began."}
            try:
                await self.settle(
                    thread_id, "killed" if kill else "cancelled", result, record.fence
                )
            except StateError:
                found = await self.registry.get_thread(thread_id)
                if found.status == "created":
                    raise
                # It was claimed in between, and its owner finds the request.
            else:
                if self.queue is not None and record.queue is not None:
                    await self.queue.put_outcome(thread_id, "")  # no worker will
                return
        self.announce(thread_id)
