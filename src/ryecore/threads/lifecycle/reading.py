"""Step 3 of a thread's life: read its directive, its inputs and its models."""

from collections.abc import Mapping
from typing import Final

from attrs import field, frozen

from ryecore.chain.trace import Trace
from ryecore.threads.planner.plan import LoadedDirective
from ryecore.threads.planner.planning import DirectivePlanner, check_body
from ryecore.threads.planner.settings import LoopConfig
from ryecore.threads.wish import ThreadWish

__all__ = ["DirectiveToRun", "read_directive"]

_DEFAULT_MODEL: Final = "default"


@frozen
class DirectiveToRun:
    """A directive with all that a thread reads before it composes the prompt.

    Attributes:
        loaded: The verified directive.
        inputs: Its inputs, checked.
        model: The model that its turns use, as `provider/model`.
        fallback: The model to ask where that one can't answer.
        config: How the loop of turns behaves.
    """

    loaded: LoadedDirective
    inputs: Mapping[str, object] = field(repr=False)
    model: str
    fallback: str | None
    config: LoopConfig


def read_directive(planner: DirectivePlanner, request: ThreadWish, log: Trace) -> DirectiveToRun:
    """Read the directive that a thread is started with. Nothing is changed.

    The inputs of a thread that continues another one were checked when that one began.

    Raises:
        RyeError: The directive doesn't verify, an input doesn't fit, or a model is unknown.
    """
    loaded = planner.load(request.ref, log)
    check_body(loaded)
    inputs = (
        planner.inputs(loaded, request.inputs, log)
        if request.continues is None
        else dict(request.inputs)
    )
    declared = loaded.directive.model
    wanted = request.model or (declared.wanted if declared else None) or _DEFAULT_MODEL
    fallback = declared.fallback if declared else None
    return DirectiveToRun(
        loaded,
        inputs,
        model=planner.model(wanted, log),
        fallback=planner.model(fallback, log) if fallback else None,
        config=planner.loop_config(log),
    )
