"""The base of every error."""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
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
        remote_name: The name of the remote whose node raised it; None for an error of this machine.
    """

    error_type: ClassVar[str] = "error"

    item_id: str | None
    chain: tuple[str, ...]
    trace: tuple[Mapping[str, object], ...]
    duration_ms: float | None
    remote_name: str | None

    def __init__(self, message: str, *, next_step: str = "", **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step
        self.facts: Mapping[str, object] = facts
        self.item_id = None
        self.chain = ()
        self.trace = ()
        self.duration_ms = None
        self.remote_name = None
        for name, value in facts.items():
            setattr(self, name, value)

    def __str__(self) -> str:
        between = "\n" if "\n" in self.message else " "
        return f"{self.message}{between}{self.next_step}".rstrip()

    def _render_traceback_(self) -> list[str]:
        """Return the traceback that IPython shows: the frames that lead to ryecore."""
        import traceback  # noqa: PLC0415 - only for notebooks

        package = str(Path(__file__).parents[1])
        frames = traceback.extract_tb(self.__traceback__)
        called = takewhile(lambda one: not one.filename.startswith(package), frames)
        own = [one for one in called if "IPython" not in Path(one.filename).parts]
        lines = "".join(traceback.format_list(own))
        return f"Traceback (most recent call last):\n{lines}{type(self).__name__}: {self}".split(
            "\n"
        )

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
        if self.next_step:
            result["next_step"] = self.next_step
        if self.item_id is not None:
            result["item_id"] = self.item_id
        if self.chain:
            result["chain"] = list(self.chain)
        metadata: dict[str, object] = {}
        if self.duration_ms is not None:
            metadata["duration_ms"] = round(self.duration_ms)
        if self.remote_name is not None:
            metadata["remote"] = self.remote_name
        if metadata:
            result["metadata"] = metadata
        if self.trace:
            result["trace"] = [dict(event) for event in self.trace]
        return result


def _rebuild(
    cls: type[RyeError], message: str, next_step: str, state: dict[str, object]
) -> RyeError:
    error = cls(message, next_step=next_step)
    error.__dict__.update(state)
    return error
