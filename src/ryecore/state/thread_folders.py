"""The folders of a project's threads: signed files, exports, results, and what people find there.

Above `state/`, no code builds a path inside these folders.

Source: docs/design/threads.md#storage; decisions 5, 36, 37 and 77.
"""

import codecs
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ryecore.caches import BoundedDict
from ryecore.convert.json_text import indented_json
from ryecore.errors import StateError, StoreError
from ryecore.items.files import (
    KnownFolders,
    folder_without_links,
    make_folder_without_links,
    remove_replaced,
    write_atomically,
)
from ryecore.state.attestation import AttestedFolder
from ryecore.state.exports import (
    CAPABILITIES_FILE,
    ExportFolder,
    export_path,
    write_capabilities,
)
from ryecore.state.folder_objects import FolderObjects
from ryecore.state.model import THREADS_FOLDER, Durability, ThreadRecord, thread_not_found
from ryecore.state.node_files import NodeFiles
from ryecore.state.object_store import ObjectStore
from ryecore.state.records import RunKey, load_run_key
from ryecore.state.refusals import advice
from ryecore.state.thread_file import (
    THREAD_FILE,
    TRANSCRIPT,
    ThreadFile,
    encode_thread_file,
    end_thread_file,
    prove_thread_file,
    read_thread_file,
    with_end,
    write_thread_file,
)
from ryecore.state.waiting import (
    ChangeWatcher,
    run_in_thread,
    run_off_loop,
    signal_change,
)
from ryecore.state.write_ahead import WriteAhead

if TYPE_CHECKING:
    from ryecore.state.postgres.records import PostgresRecordStore
    from ryecore.state.postgres.thread_files import PostgresThreadFiles

__all__ = ["ThreadFolders", "find_thread_files"]

_ID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_RESULT: Final = "result.json"
_MAX_ID: Final = 512
_MAX_KNOWN: Final = 1_000
_MAX_CHECKED: Final = 10_000
_MAX_OUTPUT_BYTES: Final = 16 * 1024 * 1024


class ThreadFolders:
    """The folders of the threads of one project, whose path is absolute and without links."""

    def __init__(
        self, place: AttestedFolder, durability: Durability, user_root: Path | None
    ) -> None:
        self.folder = place.path
        self.private_folder = place.private
        self.project = os.path.realpath(self.folder.parents[2])
        self._exports = ExportFolder(self.folder.parents[1], durability)
        self._place = str(self.folder)
        self._ref = str(self.folder.relative_to(self.folder.parents[2]))
        self._known = KnownFolders(_MAX_KNOWN)
        self._checked: BoundedDict[str, str] = BoundedDict(_MAX_CHECKED)
        """The folders of running threads, which were made here and checked for links."""

        self._user_root = user_root
        self._key: RunKey | None = None
        self._durability: Durability = durability
        self._ahead: WriteAhead | None = None
        self._shared_files: PostgresThreadFiles | None = None
        self._shared: PostgresRecordStore | None = None

    def _load_key(self) -> RunKey:
        if self._user_root is None:
            raise StateError(
                "Records can't be signed without a user space.",
                next_step="Pass user_root to ThreadStore.",
            )
        if self._key is None:
            self._key = load_run_key(self._user_root)
        return self._key

    def folder_of(self, thread_id: str) -> Path:
        """Return a thread's folder, whether it exists or not. An impossible id is refused."""
        return Path(self._path_of(thread_id))

    def _path_of(self, thread_id: str) -> str:
        is_text = isinstance(thread_id, str)
        if not is_text or len(thread_id) > _MAX_ID or _ID.fullmatch(thread_id) is None:
            raise thread_not_found(thread_id)
        return f"{self._place}/{thread_id}"

    def found_folder(self, thread_id: str) -> Path | None:
        """Return where a person finds a thread's files; None where this machine has none of it.

        Programs use other methods.
        """
        folder = self.folder_of(thread_id)
        return folder if folder.is_dir() else None

    def log_of(self, thread_id: str) -> Path:
        """Return the file to which a thread's output is written as it arrives."""
        return self.folder_of(thread_id) / "output.log"

    async def prepare(self, thread_id: str) -> None:
        """Make the place of a thread's files and output, where its changes are announced."""
        self._folder_to_write(thread_id)

    async def read_output(self, thread_id: str, offset: int) -> tuple[str, int]:
        """Read a thread's output as text from a byte on; see `Threads.log`."""
        return await run_in_thread(_read_text, self.log_of(thread_id), offset)

    def watch(self, thread_id: str) -> ChangeWatcher:
        """Return a watcher that reports changes of a thread, by whichever process."""
        return ChangeWatcher(self.folder_of(thread_id))

    def watch_requests(self) -> ChangeWatcher:
        """Return a watcher that reports requests to stop or to hand off any thread."""
        return ChangeWatcher(self.folder)

    def make_folder(self, thread_id: str) -> Path:
        """Make a thread's folder. A link of a clone in its place or within it is refused."""
        return Path(self._make_folder(thread_id))

    def _make_folder(self, thread_id: str) -> str:
        folder = self._path_of(thread_id)
        above = os.path.dirname(folder)
        try:
            if self._known.knows(above):
                with suppress(FileExistsError):
                    os.mkdir(folder, 0o700)  # noqa: PTH102 - no Path is made for what is text
                    return folder  # a new one holds no link
            *names, name = thread_id.split("/")
            link = make_folder_without_links(self.folder, (*names, name), 0o700)
            with folder_without_links(self.folder, names) as opened:
                self._known.learn(above, opened)
        except OSError as problem:
            raise StateError(
                f"{folder} can't be made: {problem.strerror}.",
                next_step=advice(problem),
            ) from problem
        if link is not None:
            raise StateError(
                f"{folder}/{link} is a link, so nothing is written to its folder.",
                next_step="Remove the link: state is kept in folders of the project itself.",
            )
        return folder

    def _folder_to_write(self, thread_id: str) -> str:
        """Return the path of a running thread's folder, which exists from then on."""
        folder = self._checked.get(thread_id)
        if folder is None:
            folder = self._checked[thread_id] = self._make_folder(thread_id)
        return folder

    def announce(self, thread_id: str) -> None:
        """Wake those who wait for a change of a thread. A failure is ignored, as they also poll."""
        signal_change(self._path_of(thread_id))

    async def write_file(self, thread: ThreadFile) -> None:
        """Write and sign a thread's file, atomically."""
        if self._shared_files is not None:
            content = encode_thread_file(thread, self._load_key())
            await self._shared_files.put(thread.thread_id, content)
            return
        path = f"{self._folder_to_write(thread.thread_id)}/{THREAD_FILE}"
        write_thread_file(path, thread, self._load_key())
        await self._add_ahead(thread.thread_id, THREAD_FILE)

    async def leave_files(self, thread: ThreadFile, export: str) -> None:
        """Write and sign the file of a thread that ends, and its export as `export` does.

        A file on a server is written with the end of the thread's row.
        """
        # With machine durability, a file that is written anew could be lost as it was.
        if self._shared_files is not None or self._durability == "machine":
            await self.leave_file(thread)
            await self.export(thread.thread_id, export)
            return
        path, key = f"{self._folder_to_write(thread.thread_id)}/{THREAD_FILE}", self._load_key()
        replaced = write_thread_file(path, thread, key, keep=True)
        try:
            await self.export(thread.thread_id, export, replaced)
        except BaseException:
            if replaced is not None:
                remove_replaced(replaced)
            raise

    async def leave_file(self, thread: ThreadFile) -> None:
        """Write and sign the file of a run that ends, unless that is done with its row."""
        if self._shared_files is None:
            await self.write_file(thread)

    async def _add_ahead(self, thread_id: str, name: str) -> None:
        """Make a file that was written as durable as the registry's next commit."""
        if self._ahead is not None:
            await self._ahead.add_file(thread_id, name)

    async def read_file(self, thread_id: str) -> Mapping[str, Any]:
        """Read a thread's file as `ThreadFile.to_dict`, and prove it."""
        if self._shared_files is not None:
            content, name = await self._shared_files.get(thread_id), self._shared_files.name_of
            return prove_thread_file(content, name(thread_id), self._load_key().public, thread_id)
        path = self.folder_of(thread_id) / THREAD_FILE
        return read_thread_file(path, self._load_key().public, thread_id)

    async def end_file(self, record: ThreadRecord) -> None:
        """Write a thread's end into its file, if its owner could not and the file is unaltered."""
        if self._user_root is None:
            return
        key, files = self._load_key(), self._shared_files
        if files is None:
            path = self.folder_of(record.thread_id) / THREAD_FILE
            await run_in_thread(end_thread_file, path, record, key)
            return
        with suppress(StateError):
            ended = with_end(await self.read_file(record.thread_id), record, key)
            if ended is not None:
                await files.end(record.thread_id, ended)

    async def write_capabilities(self, thread_id: str, text: str) -> None:
        """Sign and write the capabilities of a thread, as markdown for people."""
        folder = self._folder_to_write(thread_id)
        write_capabilities(folder, thread_id, text, self._load_key())
        await self._add_ahead(thread_id, CAPABILITIES_FILE)

    def capabilities_ref(self, thread_id: str) -> str:
        """Return where a person finds a thread's capabilities, from the project's folder."""
        return f"{self._ref}/{thread_id}/{CAPABILITIES_FILE}"

    async def export(self, thread_id: str, text: str, replaced: str | None = None) -> None:
        """Write a thread as knowledge, which search finds and no author signs: markdown.

        A link that leads out of the project's knowledge is refused.

        Args:
            thread_id: The thread.
            text: The markdown.
            replaced: A file of the thread that was replaced, and that the export may become.
        """
        await run_off_loop(
            self._durability,
            self._exports.write,
            thread_id,
            text,
            self._load_key(),
            replaced,
            size_bytes=len(text),
        )

    def node_files(self, thread_id: str) -> NodeFiles:
        """Return the files that a thread's node left, or may leave."""
        self._path_of(thread_id)
        return NodeFiles(self.folder, thread_id)

    def put_artifact(self, thread_id: str, content: bytes) -> str:
        """Store a large result of a thread, and return its SHA-256 in hex. Called by any thread."""
        return self.artifacts(thread_id).put(content)

    def get_artifact(self, thread_id: str, digest: str) -> bytes:
        """Return a result of a thread by its digest. Called by any thread."""
        artifacts = self.artifacts(thread_id)
        if artifacts.missing([digest]):
            raise StoreError("No result has this handle.")
        return artifacts.get(digest)

    def artifacts(self, thread_id: str) -> ObjectStore:
        """Return the store of a thread's large results."""
        return FolderObjects(self.folder_of(thread_id) / "artifacts")

    async def copy_files(self, thread_id: str) -> None:
        """Write copies of a thread's log and signed file into its folder, if a server has them."""
        if self._shared is None or self._shared_files is None:
            return
        if not await self._shared.exists(thread_id):
            return
        folder = await run_in_thread(self.make_folder, thread_id)
        await run_in_thread(self._shared.copy, thread_id, folder / TRANSCRIPT)
        content = await self._shared_files.get(thread_id)
        await run_in_thread(write_atomically, folder / THREAD_FILE, content)

    async def _copy_result(self, thread_id: str, result: object) -> None:
        """Write a copy of the result of a tool's run, for people, unless it is on a server.

        A thread or the run of a graph has a signed file and a log instead.
        """
        folder = self._path_of(thread_id)
        if self._shared_files is not None or _has_thread_file(folder) or not _exists(folder):
            return
        body = indented_json(result).encode(
            errors="backslashreplace"
        )  # a lone surrogate, as JSON escapes it
        with suppress(OSError, StateError):  # the registry is authoritative
            self._make_folder(thread_id)  # refuses a link in its place
            write_atomically(f"{folder}/{_RESULT}", body, mode=0o600, durable=False)
            await self._add_ahead(thread_id, _RESULT)


def find_thread_files(project_root: Path, thread_id: str) -> Mapping[str, Path]:
    """Return the files of a thread that prove it or tell of it, by the names in a report.

    Args:
        project_root: The project's `.ai` folder.
        thread_id: The thread. What it hasn't left, or what is a link, is left out.
    """
    folder = project_root / "state" / THREADS_FOLDER / thread_id
    found = {name: folder / name for name in (TRANSCRIPT, THREAD_FILE, CAPABILITIES_FILE)}
    found["export.md"] = export_path(project_root, thread_id)
    return {name: path for name, path in found.items() if path.is_file() and not path.is_symlink()}


def _has_thread_file(folder: str) -> bool:
    return _exists(f"{folder}/{THREAD_FILE}")


def _exists(path: str) -> bool:
    return os.path.lexists(path)


def _read_text(path: Path, offset: int) -> tuple[str, int]:
    """Read text up to a character that is incomplete, and return the offset after it too."""
    try:
        with open(path, "rb") as file:
            file.seek(min(max(offset, 0), os.fstat(file.fileno()).st_size))
            # Output comes in pieces, and a piece may end within a character.
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            text = decoder.decode(file.read(_MAX_OUTPUT_BYTES))
            return text, file.tell() - len(decoder.getstate()[0])
    except FileNotFoundError:
        return "", 0
    except OSError as problem:
        raise StateError(
            f"{path} can't be read: {problem.strerror}.",
            next_step="See that you may read the thread's folder.",
        ) from problem
