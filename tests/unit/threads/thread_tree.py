"""Threads in a real store, as orchestrator and view find them."""

from collections.abc import Mapping

from attrs import frozen

from ryecore.lillux.keys import SigningKey
from ryecore.policy import CallContext
from ryecore.state.model import Predecessor, Status
from ryecore.state.store import ThreadStore
from ryecore.state.transcript import Transcript
from ryecore.state.waiting import run_blocking
from tests.workspace import Workspace

__all__ = ["Said", "Starter", "ThreadTree"]


class ThreadTree:
    """A project's threads, and short ways to furnish them."""

    def __init__(self, workspace: Workspace) -> None:
        self.store = ThreadStore.open(workspace.path(""), workspace.path("", "user"))
        self._key = SigningKey.generate()
        self._fences: dict[str, int] = {}

    def start(
        self,
        thread_id: str,
        parent_id: str | None = None,
        limits: Mapping[str, object] | None = None,
        follows: Predecessor | None = None,
    ) -> str:
        """A thread that runs in this process."""
        self.store.make_folder(thread_id)
        run_blocking(
            self.store.registry.register(
                thread_id, f"directive:acme/{thread_id}", parent_id, limits=limits, follows=follows
            )
        )
        self._fences[thread_id] = run_blocking(self.store.registry.claim(thread_id))
        return thread_id

    def end(self, thread_id: str, status: Status = "completed", result: object = None) -> None:
        """End a thread as its owner does."""
        run_blocking(self.store.settle(thread_id, status, result or {}, self._fences[thread_id]))

    def hand_off(self, thread_id: str, to: str, parent_id: str | None = None) -> str:
        """Another thread goes on with a thread."""
        self.start(to, parent_id, follows=Predecessor(thread_id, thread_id))
        run_blocking(self.store.registry.link_continuation(thread_id, to))
        self.end(thread_id, "continued")
        return to

    def write(self, thread_id: str, *records: tuple[str, Mapping[str, object]]) -> None:
        """Write a thread's transcript."""
        path = self.store.folder_of(thread_id) / "transcript.jsonl"
        with Transcript.create(path, thread_id, self._key) as transcript:
            for event_type, payload in records:
                transcript.record(event_type, payload)
            transcript.checkpoint(1)


@frozen
class Said:
    """A response object."""

    said: Mapping[str, object]

    def to_dict(self) -> Mapping[str, object]:
        return self.said


class Starter:
    """What starts threads again, for those who only ask it to."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    async def resume(self, thread_id: str, message: str, ctx: CallContext) -> Said:
        self.asked.append(("resume", thread_id, message, str(ctx.budget_account)))
        return Said({"status": "success", "thread_id": f"{thread_id}-2"})

    async def hand_off(self, thread_id: str, ctx: CallContext) -> Said:
        self.asked.append(("hand_off", thread_id, str(ctx.budget_account)))
        return Said({"status": "success", "thread_id": thread_id})
