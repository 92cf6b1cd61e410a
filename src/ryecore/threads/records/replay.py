"""The replay of a thread: its decisions, recomputed from its transcript. Nothing runs.

The judgement is pure: records go in, differences come out. Limits, holds, costs and permissions are
judged by those in the transcript; hooks, outputs and today's permissions by the current directive
and configuration.

Source: decision 47.
"""

from collections.abc import Iterable, Sequence
from contextlib import aclosing

from ryecore.chain.trace import Trace
from ryecore.directives.inputs import Declared
from ryecore.errors import RyeError
from ryecore.frozen import frozen
from ryecore.items.refs import ItemRef
from ryecore.policy.hooks import Hook, in_order
from ryecore.state.model import ThreadRecord
from ryecore.state.store import ThreadStore
from ryecore.state.transcript_format import Record
from ryecore.state.waiting import run_in_thread
from ryecore.threads.planner.planning import DirectivePlanner
from ryecore.threads.records.judge import Today, judge_records
from ryecore.threads.records.report import ReplayReport

__all__ = ["ReplayReport", "replay"]


@frozen
class _Begun:
    """The values at the beginning of a transcript."""

    item_hash: str
    inputs: dict[str, object]
    model: str | None


async def replay(
    store: ThreadStore, planner: DirectivePlanner, record: ThreadRecord, project: str
) -> ReplayReport:
    """Recompute the decisions of a thread, and report every difference to its records.

    Records that were altered are a StateError. Source: decision 47.
    """
    proved = store.records.read_proved(record.thread_id, record.transcript_head, ended=record.ended)
    async with aclosing(proved) as found:
        records = [one async for one in found]
    return await run_in_thread(_judge, planner, record, records, project)


def _judge(
    planner: DirectivePlanner, record: ThreadRecord, records: Sequence[Record], project: str
) -> ReplayReport:
    unchecked: list[str] = []
    today = _today(planner, ItemRef.parse(record.item_id, "directive"), records, unchecked)
    return judge_records(
        record.thread_id,
        records,
        today,
        recorded_cost=record.cost if record.ended else None,
        project_path=project,
        unchecked=unchecked,
    )


def _today(
    planner: DirectivePlanner, ref: ItemRef, records: Iterable[Record], unchecked: list[str]
) -> Today | None:
    """Return the current directive and configuration; None if they can't be read."""
    begun, log = _begun(records), Trace()
    try:
        loaded = planner.load(ref, log)
        configured = planner.hooks(log)
        extends = planner.extends(loaded, begun.inputs, begun.model, configured)
        composed = planner.compose(loaded, extends, log)
    except RyeError as error:
        unchecked.append(f"hooks, outputs and today's permissions: {error}")
        return None
    if loaded.item.integrity != begun.item_hash:
        unchecked.append(
            f"{ref} has changed since: hooks and outputs are judged by its present version"
        )
    hooks: tuple[Hook, ...] = in_order((*composed.hooks, *configured))
    outputs: tuple[Declared, ...] = loaded.directive.outputs
    return Today(
        directive=loaded.id,
        body=loaded.directive.body,
        capabilities=frozenset(composed.permissions.capabilities),
        hooks=hooks,
        outputs=outputs,
    )


def _begun(records: Iterable[Record]) -> _Begun:
    for record in records:
        if record.type == "thread_started":
            said = record.payload
            inputs, model = said.get("inputs"), said.get("model")
            return _Begun(
                str(said.get("item_hash", "")),
                inputs if isinstance(inputs, dict) else {},
                model if isinstance(model, str) else None,
            )
    return _Begun("", {}, None)
