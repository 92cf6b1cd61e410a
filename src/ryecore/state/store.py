"""The threads of a project: registry, ledger, folders, and waiting for their end.

What is true stands in the registry. A thread's folder holds its log and a copy of its result for
people, and the file `status`, which changes with the row so that whoever waits is woken.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import anyio

from ryecore.errors import StateError, StateLocked, ThreadConflict, ThreadNotFound
from ryecore.items.files import folder_without_links, write_atomically
from ryecore.policy.limits import Limits
from ryecore.state.attestation import AttestedFolder, attested_folder
from ryecore.state.chain_limits import ContinuationLimits, limit_along_chain
from ryecore.state.change_watcher import ChangeWatcher, signal_change
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
from ryecore.state.owners import (
    LEASE_S,
    KillPlan,
    ended_if_abandoned,
    is_abandoned,
    wait_for_owner_end,
)
from ryecore.state.pruning import ThreadPruning
from ryecore.state.records import indented_json, load_run_key
from ryecore.state.refusals import advice
from ryecore.state.registry import MIGRATIONS, ThreadRegistry
from ryecore.state.thread_file import THREAD_FILE, end_thread_file, read_thread_file, recover_orphan
from ryecore.state.waiting import is_event_loop, run_in_thread

__all__ = ["ThreadStore"]

_ID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_MAX_ID: Final = 512
_REQUESTS: Final = ".requests"


class ThreadStore:
    """The threads of one project.

    Args:
        place: `.ai/state/threads`, attested.
        durability: What a change survives.
        user_root: The user's `.ai` folder, which holds the run key.
    """

    def __init__(
        self,
        place: AttestedFolder,
        durability: Durability = "process",
        user_root: Path | None = None,
    ) -> None:
        self.folder = place.path
        self.private_folder = place.private
        self.project = os.path.realpath(self.folder.parents[2])
        self._user_root = user_root
        self._durability: Durability = durability
        self._database = Database(place.private / "threads.db", MIGRATIONS, durability=durability)
        self.registry = ThreadRegistry(self._database)
        self.ledger = BudgetLedger(self._database)
        self.pruning = ThreadPruning(self._database, place)

    @classmethod
    def open(cls, project_root: Path, user_root: Path, durability: Durability = "process") -> Self:
        """Open a project's threads, and make their place where it is missing.

        Args:
            project_root: The project's `.ai` folder.
            user_root: The user's `.ai` folder.
            durability: What a change survives.

        Raises:
            StateError: The place can't be made or used.
        """
        place = attested_folder(project_root / "state", THREADS_FOLDER, user_root)
        return cls(place, durability, user_root)

    def begin_log(self) -> None:
        """Make the first commit of a new log, so that no run has to wait for the disk then."""
        with suppress(StateError):  # the next write raises the error
            self._database.begin_log()

    async def synced(self) -> None:
        """Wait until all writes so far survive what the durability names.

        Raises:
            StateError: It can't be synced.
        """
        await self._database.synced()

    def is_in_place(self) -> bool:
        """Whether the registry that is open is the one that stands in the folder."""
        return self._database.is_in_place()

    def close(self) -> None:
        """Close the registry."""
        self._database.close()

    def folder_of(self, thread_id: str) -> Path:
        """A thread's folder, whether it is there or not.

        Raises:
            ThreadNotFound: No thread can have this id.
        """
        is_text = isinstance(thread_id, str)
        if not is_text or len(thread_id) > _MAX_ID or _ID.fullmatch(thread_id) is None:
            raise thread_not_found(thread_id)
        return self.folder / thread_id

    def find(self, beginning: str) -> str:
        """The whole id of a thread that is called by its id's beginning.

        Raises:
            ThreadNotFound: There is none, or it begins several ids.
        """
        self.folder_of(beginning)
        ids = [one.thread_id for one in self.registry.find_by_prefix(beginning)]
        if beginning in ids:
            return beginning
        if not ids:
            raise thread_not_found(beginning)
        if len(ids) > 1:
            raise ThreadNotFound(
                f"{beginning!r} begins the ids of several threads: {', '.join(ids)}.",
                next_step="Write more of the one you mean.",
                thread_id=beginning,
            )
        return ids[0]

    def log_of(self, thread_id: str) -> Path:
        """The file that a thread's output is written to as it comes."""
        return self.folder_of(thread_id) / "output.log"

    def make_folder(self, thread_id: str) -> Path:
        """Make a thread's folder. No link that a clone brought is followed.

        Raises:
            StateError: It can't be made, or a link stands in its place.
        """
        folder = self.folder_of(thread_id)
        try:
            names = thread_id.split("/")
            with (
                folder_without_links(self.folder, names, mode=0o700) as opened,
                os.scandir(opened) as entries,
            ):
                link = next((one.name for one in entries if one.is_symlink()), None)
        except OSError as problem:
            raise StateError(
                f"{folder} can't be made: {problem.strerror}.",
                next_step=advice(problem),
            ) from problem
        if link is not None:
            raise StateError(
                f"{folder / link} is a link, so nothing is written to its folder.",
                next_step="Remove the link: state is kept in folders of the project itself.",
            )
        return folder

    def announce(self, thread_id: str, word: str) -> None:
        """Wake whoever waits for a change of a thread. It may fail: nobody relies on it alone."""
        signal_change(f"{self.folder_of(thread_id)}/status", f"{word}\n".encode())

    def _notify_owners(self) -> None:
        """Wake all processes that run threads: the registry has a new request.

        One file for all, so that each of them watches one folder, however many threads it runs.
        """
        signal_change(f"{self.folder}/{_REQUESTS}")

    # The owner's side

    def limit_continuation(self, thread_id: str, carried: ContinuationLimits) -> Limits:
        """Bound a thread by what the chain that it continues has left, and store its limits.

        Args:
            thread_id: The thread.
            carried: Its bounds.

        Returns:
            Its limits.

        Raises:
            StateError: Nothing can be written.

        Source: decision 80.
        """
        with self._database.write() as run:
            return limit_along_chain(run, thread_id, carried)

    def settle(
        self,
        thread_id: str,
        status: Status,
        result: object,
        fence: int,
        *,
        head: tuple[int, str] | None = None,
        snapshot: Cost | None = None,
    ) -> None:
        """End a thread, leave a copy of its result, and wake whoever waits for it.

        Its account is closed with it.

        Args:
            thread_id: The thread.
            status: The status that it ends with.
            result: Its result, JSON-ready.
            fence: The writing owner's.
            head: The length in bytes and the digest of its transcript's last checkpoint.
            snapshot: What it has spent.

        Raises:
            ThreadConflict: It has ended already, or another process has taken it over.
            StateError: It can't be written.
        """
        self._copy_result(thread_id, result)  # first: who sees the end finds the copy
        try:
            self.registry.settle(
                thread_id, status, result, fence=fence, head=head, snapshot=snapshot
            )
        except ThreadConflict:
            kept = self.registry.get_result(thread_id)
            if kept is not None:  # it has ended otherwise: the copy says how
                self._copy_result(thread_id, kept)
            raise
        self.announce(thread_id, status)

    def free_start_key(self, thread_id: str) -> None:
        """Free the idempotency key of a thread that failed before anything of it ran."""
        with suppress(StateError):  # else a repeated start is told of this failure
            self.registry.free_start_key(thread_id)

    @property
    def _syncs_files(self) -> bool:
        return self._durability == "machine" and not is_event_loop()

    def _copy_result(self, thread_id: str, result: object) -> None:
        body = indented_json(result).encode(
            errors="backslashreplace"
        )  # half a character, as JSON escapes it
        with suppress(OSError):  # what counts is in the registry
            path = self.folder_of(thread_id) / "result.json"
            write_atomically(path, body, mode=0o600, durable=self._syncs_files)

    # Everyone's side

    def look(self, thread_id: str) -> ThreadRecord:
        """A thread's row; one that nobody runs any more is ended first.

        Where that can't be written now, as on a read-only disk, it is shown as ended all the same.

        Raises:
            ThreadNotFound: There is none of this id.
        """
        self.folder_of(thread_id)
        record = self.registry.get_thread(thread_id)
        if is_abandoned(record):
            with suppress(StateError):
                self._settle_abandoned((record,))
            record = ended_if_abandoned(self.registry.get_thread(thread_id))
        return record

    def look_closed(self, thread_id: str) -> ThreadRecord:
        """A thread's row; what a dead one has left is closed, where its finder died before that.

        For whoever goes on with it: what no checkpoint speaks for is of less use.

        Raises:
            ThreadNotFound: There is none of this id.
        """
        record = self.look(thread_id)
        if not record.ended or self._user_root is None:
            return record
        path, key = self.folder_of(thread_id) / THREAD_FILE, load_run_key(self._user_root).public
        with suppress(StateError):  # none is there, or it was altered: that is left to be found
            if read_thread_file(path, key, thread_id).get("status") == "running":
                self.close_files(thread_id)
        return self.registry.get_thread(thread_id)

    def look_at_all(
        self, find: Callable[[ThreadRegistry], tuple[ThreadRecord, ...]]
    ) -> tuple[ThreadRecord, ...]:
        """The rows that a query of the registry finds, once those nobody runs are ended.

        Where that can't be written now, as on a read-only disk, they are shown as ended.
        """
        with suppress(StateError):
            self._settle_abandoned(self.registry.list_active())
        return tuple(map(ended_if_abandoned, find(self.registry)))

    def _settle_abandoned(self, records: tuple[ThreadRecord, ...]) -> None:
        ended = self.registry.settle_abandoned(records)
        for thread_id in ended:
            self._copy_result(thread_id, self.registry.get_result(thread_id))
            self.close_files(thread_id)
            self.announce(thread_id, "ended")
        if ended:
            self._notify_owners()  # of what still runs below them

    def end_file(self, thread_id: str) -> None:
        """Say in a thread's own file how it ended, where its owner could not."""
        path = self.folder_of(thread_id) / THREAD_FILE
        if self._user_root is not None and path.exists():
            record = self.registry.get_thread(thread_id)
            end_thread_file(path, record, load_run_key(self._user_root))

    def close_files(self, thread_id: str, overspent: Sequence[Mapping[str, object]] = ()) -> None:
        """Close the transcript of a thread that has ended and whose owner could not, and its file.

        What no checkpoint covers is marked unattested. Where it can't be written now, the file says
        that the thread runs, so that `look_closed` tries again. What cost more than was held for it
        is told as `recover_orphan` does.

        Source: decision 47.
        """
        if self._user_root is None:
            return
        record = self.registry.get_thread(thread_id)
        folder, key = self.folder_of(thread_id), load_run_key(self._user_root)
        head = recover_orphan(folder, record, key, self._durability, overspent)
        if head is not None:
            with suppress(StateError):  # a head that lags behind says nothing wrong
                self.registry.set_head(thread_id, (head.offset, head.digest))

    async def wait(self, thread_id: str, timeout_s: float | None = None) -> ThreadRecord:
        """Wait until a thread has ended. Files and processes say when to look.

        Args:
            thread_id: The thread.
            timeout_s: How long to wait; None is for ever.

        Returns:
            Its row; not an ended one's where the time is over.

        Raises:
            ThreadNotFound: There is none of this id.
        """
        record = await run_in_thread(self.look, thread_id)
        if record.ended:
            return record
        if self.folder.is_dir():  # else it was removed, and is made anew by whoever launches
            await run_in_thread(self.make_folder, thread_id)
        with anyio.move_on_after(timeout_s):
            async with ChangeWatcher(
                self.folder_of(thread_id)
            ) as watched:  # no change is missed now
                while True:
                    record = await run_in_thread(self.look, thread_id)
                    if record.ended:
                        return record
                    await self._next_sign(watched, record)
        return await run_in_thread(self.look, thread_id)

    async def _next_sign(self, watched: ChangeWatcher, record: ThreadRecord) -> None:
        """Until a file changes, the owner's process ends, or its lease does."""
        async with anyio.create_task_group() as signs:

            async def changed() -> None:
                await watched.changed(LEASE_S)
                signs.cancel_scope.cancel()

            async def died() -> None:
                with suppress(StateError):  # the next look says so
                    await wait_for_owner_end(record)
                signs.cancel_scope.cancel()

            signs.start_soon(changed)
            signs.start_soon(died)

    def cancel(self, thread_id: str) -> ThreadRecord:
        """Ask a thread and all those below it to stop; each owner ends what runs, and the thread.

        Returns:
            Its row; of one that was handed off that of the last that goes on. A thread that no
            process has begun to run is ended at once.

        Raises:
            ThreadNotFound: There is none of this id.
        """
        return self._stop(thread_id, kill=False)

    def kill(self, thread_id: str, grace_s: float = 3.0) -> ThreadRecord:
        """End the processes of a thread, of all below it and of their tools: TERM, grace, KILL.

        Waits until they have ended. Of a thread that shares its process with others, which is asked
        to stop, the tools' processes are meant. One that was handed off is killed in what goes on.

        Args:
            thread_id: The thread.
            grace_s: Between TERM and KILL, in seconds.

        Returns:
            Its row, or that of the last thread that goes on from it, which says `killed`; not yet,
            where it shares its process with others and that takes longer than the grace.

        Raises:
            ThreadNotFound: There is none of this id.
            StateError: A process can't be ended from here.
        """
        record = self.look(thread_id)
        plan, unwritten = KillPlan(self.registry, self.project, thread_id), None
        try:
            self._stop(thread_id, kill=True)
        except StateError as problem:
            unwritten = problem  # a full disk must not prevent the kill
        plan.carry_out(grace_s)
        if isinstance(unwritten, StateLocked):  # perhaps by the process that was just killed
            with suppress(StateError):
                self.registry.request_cancel(thread_id, kill=True)
                return self.look(self.registry.last_of(thread_id))
        with suppress(StateError):
            self._settle_abandoned(self.registry.list_tree(thread_id, and_after=True))
        found = self.look(self.registry.last_of(thread_id))
        is_unwritten = found.ended and found.completed_at is None
        if is_unwritten or (unwritten is not None and not record.ended):
            why = unwritten.message if unwritten else "its disk takes nothing more."
            raise StateError(
                f"The process of the thread {thread_id} was ended, but its end can't be written: "
                f"{why}",
                next_step="Make room on the disk; who looks then finds the thread ended.",
            ) from unwritten
        return found

    def _stop(self, thread_id: str, *, kill: bool) -> ThreadRecord:
        record = self.look(thread_id)
        if record.ended and record.status != "continued":
            return record
        self.registry.request_cancel(thread_id, kill=kill)
        for found in self.registry.list_tree(thread_id, and_after=True):
            if not found.ended:
                self._stop_one(found, kill=kill)
        self._notify_owners()
        return self.registry.get_thread(self.registry.last_of(thread_id))

    def hand_off(self, thread_id: str) -> ThreadRecord:
        """Ask a thread's owner, in whichever process, that another thread goes on with it.

        Returns:
            Its row. One that has ended is left as it is.

        Raises:
            ThreadNotFound: There is none of this id.
        """
        self.look(thread_id)
        record = self.registry.request_handoff(thread_id)
        self._notify_owners()
        return record

    def _stop_one(self, record: ThreadRecord, *, kill: bool) -> None:
        """Wake the owner of a thread whose row bears the request; without one, end the thread."""
        thread_id = record.thread_id
        if record.status == "created":
            # Nobody runs it yet, and who comes to claim it finds that it has ended.
            result = {"status": "error", "error": "It was stopped before it began."}
            try:
                self.settle(thread_id, "killed" if kill else "cancelled", result, record.fence)
            except StateError:
                found = self.registry.get_thread(thread_id)
                if found.status == "created":
                    raise
                # It was claimed in between, and who claimed it finds the request.
            else:
                return
        self.announce(thread_id, "stopping")
