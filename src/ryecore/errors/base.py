"""The base of every error."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

__all__ = [
    "RyeError",
]


class RyeError(Exception):
    """The base of every ryecore error.

    Args:
        message: What went wrong, in one sentence.
        next_step: What to do about it; empty where there is nothing to do.
        **facts: The facts behind the message; each becomes an attribute.

    Attributes:
        item_id: The requested item as a canonical ref, if known.
        chain: The ids of the chain elements found so far, the tool first.
        trace: The events up to the failing one, where tracing was on.
        duration_ms: The duration of the attempt, where measured.
    """

    error_type: ClassVar[str] = "error"

    item_id: str | None
    chain: tuple[str, ...]
    trace: tuple[Mapping[str, object], ...]
    duration_ms: float | None

    def __init__(self, message: str, *, next_step: str = "", **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step
        self.facts: Mapping[str, object] = facts
        self.item_id = None
        self.chain = ()
        self.trace = ()
        self.duration_ms = None
        for name, value in facts.items():
            setattr(self, name, value)

    def __str__(self) -> str:
        return f"{self.message} {self.next_step}".rstrip()

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.next_step, dict(self.__dict__)))

    def during(
        self,
        item_id: str,
        *,
        chain: Sequence[str] = (),
        trace: Sequence[Mapping[str, object]] = (),
        duration_ms: float | None = None,
    ) -> Self:
        """Add the facts of the run that this error ended, and return the error."""
        self.item_id = self.item_id or item_id
        self.chain = self.chain or tuple(chain)
        self.trace = self.trace or tuple(trace)
        self.duration_ms = self.duration_ms if self.duration_ms is not None else duration_ms
        return self

    def to_dict(self) -> dict[str, object]:
        """Return the error object that models and MCP clients see.

        Source: docs/design/execute.md#errors.
        """
        result: dict[str, object] = {
            "status": "error",
            "error": str(self),
            "error_type": self.error_type,
        }
        if self.item_id is not None:
            result["item_id"] = self.item_id
        if self.chain:
            result["chain"] = list(self.chain)
        if self.duration_ms is not None:
            result["metadata"] = {"duration_ms": round(self.duration_ms)}
        if self.trace:
            result["trace"] = [dict(event) for event in self.trace]
        return result


def _rebuild(
    cls: type[RyeError], message: str, next_step: str, state: dict[str, object]
) -> RyeError:
    error = cls(message, next_step=next_step)
    error.__dict__.update(state)
    return error
