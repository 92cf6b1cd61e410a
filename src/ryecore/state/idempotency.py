"""Idempotency keys: a start that is repeated with the same key finds the run of the first.

The scope of a key is the chain of the thread that starts a run, so that a continuation still finds
it. The host has one scope, and callers with fewer capabilities have one for each set of them: a
guessed key neither shows the result of a run with more capabilities, nor keeps its owner from
starting one. A key lives as long as the row of its run, until that is pruned.
"""

import json
import re
from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Self

from attrs import field

from ryecore.errors import InputError
from ryecore.frozen import frozen
from ryecore.state.model import Status, has_ended

if TYPE_CHECKING:
    from ryecore.state.store import ThreadStore

__all__ = ["EarlierStart", "IdempotencyKey", "describe_start"]

_KEY: Final = re.compile(r"[!-~]{1,200}")


@frozen
class IdempotencyKey:
    """An idempotency key, and the request that it identifies.

    Attributes:
        key: The key.
        item_id: The canonical ref of the item that is started.
        digest: The SHA-256 (hex) of the whole request.
        scope: The scope of the key unless a thread uses it; empty for the host's own.
    """

    key: str
    item_id: str
    digest: str
    scope: str = ""

    @classmethod
    def of(
        cls,
        key: object,
        item_id: str,
        request: Mapping[str, object],
        capabilities: Collection[str] | None = None,
    ) -> Self:
        """Make the key of a request.

        Args:
            key: The caller's key: 1 to 200 visible ASCII characters.
            item_id: The canonical ref of the item that is started.
            request: Its parameters, and all else that tells requests apart.
            capabilities: The caller's capabilities; None for the host.

        Raises:
            InputError: The key isn't valid, or the request can't be written as JSON.
        """
        if not isinstance(key, str) or _KEY.fullmatch(key) is None:
            raise InputError(
                f"The idempotency key {key!r:.80} can't be used.",
                next_step="Pass 1 to 200 visible ASCII characters, such as order-17.",
            )
        try:
            text = json.dumps([item_id, request], sort_keys=True, default=str)
        except (TypeError, ValueError, RecursionError) as problem:
            raise InputError(
                f"The parameters can't be written as JSON, which an idempotency key needs: "
                f"{problem}.",
                next_step="Pass parameters of JSON's types, with text as the keys of objects.",
            ) from None
        return cls(key, item_id, sha256(text.encode()).hexdigest(), _scope_of_caller(capabilities))


@frozen
class EarlierStart:
    """The state of a run that was started before with the same idempotency key.

    For a thread that was handed off it is that of its last continuation.
    """

    status: Status
    result: object = field(repr=False)
    pid: int

    @classmethod
    async def find(cls, store: "ThreadStore", thread_id: str) -> Self:
        """Find the state of a run that was started before, unless it was pruned meanwhile."""
        record = await store.look(await store.registry.last_of(thread_id))
        result = await store.registry.get_result(record.thread_id)
        return cls(record.status, result, record.pid or 0)

    def to_dict(self) -> dict[str, object]:
        """Return the additional fields of the response of a repeated start."""
        document: dict[str, object] = {"already_started": True, "state": self.status}
        if has_ended(self.status):
            document["result"] = self.result
        return document


def _scope_of_caller(capabilities: Collection[str] | None) -> str:
    if capabilities is None:
        return ""
    text = json.dumps(sorted(capabilities))
    return f"capabilities:{sha256(text.encode()).hexdigest()}"  # no id of a thread has a colon


def describe_start(verb: str, earlier: EarlierStart | None) -> str:
    """Return the verb of a new start, or the state of the earlier run."""
    return verb if earlier is None else f"already started, {earlier.status.replace('_', ' ')}"
