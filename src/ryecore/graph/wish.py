"""What a run is wanted for."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from attrs import field, frozen

from ryecore.items.refs import ItemRef
from ryecore.policy.limits import Limits

if TYPE_CHECKING:
    from ryecore.runs.naming import Registered
    from ryecore.state.start_keys import IdempotencyKey

__all__ = ["GoingOn", "GraphWish"]


@frozen
class GoingOn:
    """A run that another one goes on with.

    Attributes:
        run_id: The run whose journal is gone on from.
        at: The step behind which; its end where None.
        again: Whether another run may have gone on with it from its end already.
        rerun: Whether what had begun, and of which no end is known, is done again.
        answers: Whether `answer` is what came of it.
        answer: What came of it, as whoever asks has found out.
        members: What came of single members of a foreach, by their indexes.
        changed: Whether the graph may have changed since.
        state: Values that the state gets first, by key.
    """

    run_id: str
    at: int | None = None
    again: bool = False
    rerun: bool = False
    answers: bool = False
    answer: object = field(default=None, repr=False)
    members: Mapping[int, object] = field(factory=dict, repr=False)
    changed: bool = False
    state: Mapping[str, object] = field(factory=dict, repr=False)


@frozen
class GraphWish:
    """What a run is wanted for.

    Attributes:
        ref: The graph.
        inputs: What it is given.
        limits: What bounds it.
        registered: Its row, where another process has made it.
        digest: The SHA-256 (hex) that its file must have; any where None.
        goes_on: The run that it goes on with; None for a fresh one.
        only: The one node that is run; all of them where None.
        state: What the state begins as, above what the file says; for `only`.
        start_key: The idempotency key that it is started with.
    """

    ref: ItemRef
    inputs: Mapping[str, object] = field(factory=dict, repr=False)
    limits: Limits = field(factory=Limits)
    registered: "Registered | None" = None
    digest: str | None = None
    goes_on: GoingOn | None = None
    only: str | None = None
    state: Mapping[str, object] = field(factory=dict, repr=False)
    start_key: "IdempotencyKey | None" = None
