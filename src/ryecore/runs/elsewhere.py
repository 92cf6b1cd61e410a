"""The refusal to continue a run that a node carried out, and the command that starts it anew there.

A node keeps what a run's conversation or steps were only until the run has ended; the files of the
run come home, and prove what was, but no run continues from them.

Source: docs/design/remote.md#at-home.
"""

import json
import shlex
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Literal, TypeAlias

from ryecore.errors import StateError, ThreadConflict
from ryecore.policy.limits import limit_of_code
from ryecore.state.model import RemotePlace, ThreadRecord
from ryecore.state.store import ThreadStore

__all__ = ["REQUESTED", "Continuing", "refuse_elsewhere"]

Continuing: TypeAlias = Literal["resumed", "forked", "replayed", "handed off"]
"""What can't be done from here with a run on a node."""

REQUESTED: Final = "remote_requested"
"""The type of the record at home with the request that a node got."""

_MAX_INPUTS: Final = 300
"""How many characters of inputs a command shows."""


async def refuse_elsewhere(
    store: ThreadStore, record: ThreadRecord, place: RemotePlace, what: Continuing
) -> ThreadConflict:
    """Return the refusal to continue a run of a node, with what to do instead.

    Args:
        store: The threads.
        record: The run's row.
        place: Where it runs or ran.
        what: What was to be done with it.
    """
    run_id, remote = record.thread_id, place.remote
    if not record.ended:
        message = f"{run_id} runs on the node of {remote}, so it can't be {what} from here."
        next_step = (
            f"Wait for it: rye threads wait {run_id}. Or stop it: rye threads cancel {run_id}"
        )
    else:
        kept = "conversation" if record.item_id.startswith("directive:") else "steps"
        message = (
            f"{run_id} ran on the node of {remote}, and can't be {what}: a node keeps no {kept} "
        )
        message += "of a run that has ended."
        next_step = f"Start it anew there: {await _command(store, record, remote)}. "
        next_step += f"What it did is in {store.node_files(run_id).path}"
    return ThreadConflict(message, next_step=next_step, thread_id=run_id, state=record.status)


async def _command(store: ThreadStore, record: ThreadRecord, remote: str) -> str:
    """Return the command that executes the same item again on the same node."""
    request = await _requested(store, record.thread_id)
    words = ["rye", "execute", record.item_id]
    if record.item_id.startswith("directive:"):
        words += ["--thread", "fork"]
    words += ["--target", f"remote:{remote}"]
    inputs, model = request.get("parameters"), request.get("model")
    if inputs:
        text = json.dumps(inputs, ensure_ascii=False)
        words += ["--params", text if len(text) <= _MAX_INPUTS else "-"]
    if isinstance(model, str):
        words += ["--model", model]
    if request.get("collect") is True:
        words.append("--pull")
    limit = limit_of_code(await _code_of(store, record.thread_id))
    if limit is not None:
        words += ["--limit", f"{limit}=N"]
    return shlex.join(words)


async def _requested(store: ThreadStore, run_id: str) -> Mapping[str, Any]:
    """Return the request that the node got; nothing where it got none."""
    with suppress(StateError):
        async for one in store.records.read(run_id):
            if one.type == REQUESTED and isinstance(one.payload.get("body"), Mapping):
                body: Mapping[str, Any] = one.payload["body"]
                return body
    return {}


async def _code_of(store: ThreadStore, run_id: str) -> str:
    """Return the code of the error that a run ended with; empty without one."""
    result = await store.registry.get_result(run_id)
    return str(result.get("error_code") or "") if isinstance(result, Mapping) else ""
