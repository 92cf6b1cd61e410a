"""The report of a thread: its row, its result and its log."""

import codecs
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from attrs import field, frozen

from ryecore.display.text import StyledText
from ryecore.errors import InputError, StateError
from ryecore.state.model import ThreadRecord
from ryecore.state.waiting import run_blocking

if TYPE_CHECKING:
    from ryecore.state.store import ThreadStore

__all__ = ["ThreadReport", "check_page", "read_log"]

_MAX_OFFSET: Final = 2**31
_MAX_LOG_BYTES: Final = 16 * 1024 * 1024


@frozen(repr=False)
class ThreadReport:
    """A thread, and what came of it.

    Attributes:
        record: Its row in the registry.
        result: Its result, as `rye_execute` answers with it; None while it runs.
        folder: Its folder below `.ai/state/threads`.
        children: The threads that it has started, oldest first.
        chain: The ids of the threads that go on from one another, itself among them; of one that
            goes on from none and that none goes on from, its own alone.
    """

    record: ThreadRecord
    result: object = field(repr=False)
    folder: Path
    children: tuple[ThreadRecord, ...] = ()
    chain: tuple[str, ...] = ()

    @classmethod
    def of(cls, store: "ThreadStore", record: ThreadRecord) -> Self:
        """Read the report of a thread, from its row on."""
        registry, thread_id = store.registry, record.thread_id
        return cls(
            record,
            run_blocking(registry.get_result(thread_id)),
            store.folder_of(thread_id),
            run_blocking(registry.list_children(thread_id)),
            tuple(one.thread_id for one in run_blocking(registry.get_chain(thread_id))),
        )

    @property
    def thread_id(self) -> str:
        """Its id."""
        return self.record.thread_id

    @property
    def status(self) -> str:
        """Where it stands: created, running, completed, error, cancelled, continued or killed."""
        return self.record.status

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.record.ended

    @property
    def data(self) -> object:
        """What its tool returned; None where there is no result."""
        return self.result.get("data") if isinstance(self.result, Mapping) else None

    @property
    def error(self) -> str | None:
        """Why it failed; None where it didn't."""
        error = self.result.get("error") if isinstance(self.result, Mapping) else None
        return str(error) if error is not None else None

    def to_dict(self) -> dict[str, object]:
        """The report as a JSON-ready object."""
        limits = self.record.limits
        return {
            **self.record.to_dict(),
            "limits": None if limits is None else dict(limits),
            "children": [one.thread_id for one in self.children],
            "chain": list(self.chain),
            "folder": str(self.folder),
            "result": self.result,
        }

    def render(self) -> StyledText:
        """The thread for a terminal or a notebook."""
        from ryecore.threads.rendering import render_thread  # noqa: PLC0415 - to be shown alone

        return render_thread(
            self.record, self.result, str(self.folder), children=self.children, chain=self.chain
        )

    def __repr__(self) -> str:
        return f"ThreadReport({self.thread_id!r}, {self.status}, {self.record.item_id!r})"

    def __str__(self) -> str:
        return self.render().plain()

    def _repr_html_(self) -> str:
        return self.render().html()


def read_log(path: Path, offset: int) -> tuple[str, int]:
    """Read what a thread's tool has printed.

    Args:
        path: The log.
        offset: From which byte on.

    Returns:
        The text, of at most 16 MiB, and the byte to read from next. A character that is not yet
        whole is left for the next time.

    Raises:
        StateError: The log can't be read.
    """
    try:
        with open(path, "rb") as file:
            file.seek(min(max(offset, 0), os.fstat(file.fileno()).st_size))
            # What is printed comes in pieces, and one may end within a character.
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            text = decoder.decode(file.read(_MAX_LOG_BYTES))
            return text, file.tell() - len(decoder.getstate()[0])
    except FileNotFoundError:
        return "", 0
    except OSError as problem:
        raise StateError(
            f"{path} can't be read: {problem.strerror}.",
            next_step="See that you may read the thread's folder.",
        ) from problem


def check_page(limit: int, offset: int) -> None:
    """Check which part of a list is asked for.

    Raises:
        InputError: `limit` or `offset` is negative or not a whole number.
    """
    if not 1 <= limit <= 1000 or not 0 <= offset <= _MAX_OFFSET:
        raise InputError(
            f"limit={limit}, offset={offset} can't be listed.",
            next_step="Pass a limit from 1 to 1000 and an offset from 0.",
        )
