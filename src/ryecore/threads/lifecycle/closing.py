"""What is done once a thread's turns are over, piece by piece; the lifecycle puts it in order."""

from contextlib import suppress

from attrs import evolve

from ryecore.errors import LinkLeavesSpace, RyeError, StateError, ThreadConflict
from ryecore.items.signature import utc_now
from ryecore.policy.budget import Account, Amount
from ryecore.runs.hooks import HookRunner
from ryecore.runs.unwritten import OVERSPENT, Unwritten
from ryecore.state.model import Cost
from ryecore.state.thread_file import THREAD_FILE, ThreadFile, write_thread_file
from ryecore.threads.host import ThreadHost
from ryecore.threads.lifecycle.leaving import leave_knowledge
from ryecore.threads.loop.ending import Ending, ending_of_error, ending_of_wish
from ryecore.threads.loop.recorder import Recorder
from ryecore.threads.result import ThreadResult, cost_to_dict

__all__ = [
    "leave_files",
    "made_result",
    "record_end",
    "report_cost",
    "run_after_complete",
    "settle_failed",
    "stopped_ending",
]


async def run_after_complete(
    host: ThreadHost,
    hooks: HookRunner,
    recorder: Recorder,
    file: ThreadFile,
    ending: Ending,
    cost: Cost,
) -> None:
    """Run the hooks that follow the loop. Nothing that they do changes how the thread ended.

    Source: docs/design/threads.md#after-completion.
    """
    if not hooks.listens("after_complete"):
        return
    with suppress(StateError, LinkLeavesSpace):  # so that they find what was said
        said = evolve(file, status=ending.status, cost=cost)
        folder, size = host.store.folder_of(file.thread_id), recorder.transcript.offset
        await host.write(leave_knowledge, host, folder, said, reads_bytes=size)
    context = {
        "thread_id": file.thread_id,
        "directive": file.directive,
        "status": ending.status,
        "cost": cost_to_dict(cost),
        "project_path": str(host.project_root.parent),
    }
    with suppress(RyeError):
        await hooks.run("after_complete", context)


async def report_cost(host: ThreadHost, thread_id: str, cost: Cost) -> Account:
    """Report a thread's cost to its account and those of its parents, and return the account."""
    await host.ledger.until_free()
    spent = Amount(cost.spend_microcents, cost.input_tokens + cost.output_tokens)
    host.ledger.report_actual(thread_id, spent)
    host.ledger.cascade_spend(thread_id)
    return host.ledger.account(thread_id)


def stopped_ending(host: ThreadHost, thread_id: str) -> Ending:
    """Return how a thread ends that was asked to stop: killed where its row says so."""
    with suppress(StateError):
        row = host.registry.get_thread(thread_id)
        return ending_of_wish(killed=row.kill_requested)
    return ending_of_wish(killed=False)


def record_end(recorder: Recorder, ending: Ending, cost: Cost) -> None:
    """Write the transcript's last record, and close it with a checkpoint."""
    told = {"cost": cost_to_dict(cost)} | ({"error": ending.error} if ending.error else {})
    recorder.append(f"thread_{ending.status}", told)
    recorder.checkpoint(recorder.turn)


def leave_files(host: ThreadHost, file: ThreadFile, ending: Ending, cost: Cost) -> None:
    """Write what stays for people. A full disk there takes no result from its caller."""
    file = evolve(file, status=ending.status, cost=cost, updated_at=utc_now())
    with suppress(StateError, LinkLeavesSpace):
        folder = host.store.folder_of(file.thread_id)
        write_thread_file(folder / THREAD_FILE, file, host.key, host.durability)
        leave_knowledge(host, folder, file)


def settle_failed(
    host: ThreadHost,
    thread_id: str,
    item_id: str,
    fence: int,
    error: BaseException,
    recorder: Recorder | None,
    unwritten: Unwritten | None,
) -> None:
    """End a thread's transcript, row and account. The supervisor retries what can't be written now.

    A transcript that can't be closed now is closed by the next reader.

    Args:
        host: The host in which it ran.
        thread_id: The thread.
        item_id: The item that it ran.
        fence: Its owner's.
        error: Why it failed.
        recorder: Its transcript; None where it has none yet.
        unwritten: Its costs; None where it has sent no request.
    """
    if isinstance(error, RyeError):
        error.facts = {**error.facts, "thread_id": thread_id}
    ending = (
        ending_of_error(error) if isinstance(error, Exception) else ending_of_wish(killed=False)
    )
    result = {
        "status": "error",
        "item_id": item_id,
        "thread_id": thread_id,
        "error": ending.error,
        "error_code": ending.code,
    }
    cost = Cost() if unwritten is None else unwritten.cost
    head, is_closed = None, recorder is None
    if recorder is not None:
        with suppress(StateError):
            for one in () if unwritten is None else unwritten.overspent:
                recorder.append(OVERSPENT, one)
            record_end(recorder, ending, cost)
            head, is_closed = recorder.head, True
    at = None if head is None else (head.offset, head.digest)
    try:
        if unwritten is not None:
            unwritten.write(host.ledger)
        host.store.settle(thread_id, ending.status, result, fence, head=at, snapshot=cost)
        if is_closed:
            host.store.end_file(thread_id)
    except ThreadConflict:
        pass  # it has ended otherwise
    except StateError:
        host.supervisor.defer(
            thread_id, fence, ending.status, result, unwritten, is_closed=is_closed
        )


def made_result(
    file: ThreadFile,
    ending: Ending,
    cost: Cost,
    *,
    total: Amount,
    duration_ms: float,
    continuation_id: str | None,
    warnings: tuple[str, ...] = (),
) -> ThreadResult:
    """What came of a thread, for whoever waits for it."""
    return ThreadResult(
        status="success" if ending.error is None else "error",
        item_id=file.item_id,
        data=dict(ending.outputs) or ending.text,
        error=ending.error,
        duration_ms=duration_ms,
        thread_id=file.thread_id,
        state=ending.status,
        text=ending.text,
        outputs=ending.outputs,
        cost=cost,
        total=total,
        code=ending.code,
        continuation_thread_id=continuation_id,
        metadata={"warnings": list(warnings)} if warnings else {},
    )
