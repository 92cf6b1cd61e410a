"""Idempotency keys: a start that is repeated with the same key finds the run of the first.

A key counts within the chain of the thread that starts something, so that one which is handed off
or resumed still finds its own. What the host starts shares one scope, and callers that may do less
than the host have one for each set of capabilities: who guesses a key neither sees the result of a
run that could do more, nor keeps its owner from starting.
"""

import json
import re
from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Self

from attrs import field, frozen

from ryecore.errors import InputError
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
        item_id: What is started, as a canonical ref.
        digest: The SHA-256 (hex) of all that the request says.
        scope: Where the key counts unless a thread uses it; empty for the host's own.
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
            item_id: What is started, as a canonical ref.
            request: Its parameters, and whatever else makes it another request.
            capabilities: What the caller may do; None for the host.

        Raises:
            InputError: It can't be a key, or the request can't be written as JSON.
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

    Attributes:
        status: Its status; of a thread that was handed off, that of the last one that goes on.
        result: Its result, likewise; None while it runs.
        pid: The id of its process, likewise; 0 for none.
    """

    status: Status
    result: object = field(repr=False)
    pid: int

    @classmethod
    async def find(cls, store: "ThreadStore", thread_id: str) -> Self:
        """Look at a run that was started before.

        Args:
            store: The project's threads.
            thread_id: Its id.

        Raises:
            ThreadNotFound: It was pruned meanwhile.
        """
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
    return f"capabilities:{sha256(text.encode()).hexdigest()}"  # no thread's id has a colon


def describe_start(verb: str, earlier: EarlierStart | None) -> str:
    """Return the verb of a new start, or the state of the run that was started before."""
    return verb if earlier is None else f"already started, {earlier.status.replace('_', ' ')}"
