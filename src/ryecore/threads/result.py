"""The result of a directive's thread."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Self, TypeVar, cast

from attrs import field
from typing_extensions import override

from ryecore.chain.model import ExecutionResult, ValidChain
from ryecore.display.text import StyledText, counted, dollars, status_mark
from ryecore.errors import InputError, ThreadFailed, ToolFailed
from ryecore.frozen import frozen
from ryecore.policy.budget import Amount
from ryecore.state.idempotency import EarlierStart, describe_start
from ryecore.state.model import Cost, Status, ThreadRecord

if TYPE_CHECKING:
    from typing_extensions import TypeForm

T = TypeVar("T")

__all__ = ["StartedThread", "ThreadResult", "kept_result"]

_NO_CHAIN: Final = ValidChain(())
_NO_COST: Final = Cost()
_NOTHING: Final = Amount()


@frozen(kw_only=True, repr=False)
class ThreadResult(ExecutionResult):
    """The result of a directive's thread. It has no chain.

    Attributes:
        thread_id: Its id, for `rye.threads`.
        ended: How it ended: completed, error, cancelled, continued or killed.
        text: The last text of the model.
        outputs: The outputs by name; empty where the model returned none.
        cost: Its own cost.
        total: The money and the tokens that it and all below it used.
        code: The code of its error, such as `spend_exceeded`; empty where it didn't fail.
        next_step: The next step, with which `error` ends; empty where there is none.
        continuation_thread_id: The thread that continues it; None for none.
    """

    chain: ValidChain = _NO_CHAIN
    thread_id: str
    ended: Status
    text: str = ""
    outputs: Mapping[str, object] = field(factory=dict)
    cost: Cost = _NO_COST
    total: Amount = _NOTHING
    code: str = ""
    next_step: str = ""
    continuation_thread_id: str | None = None

    @property
    @override
    def error_code(self) -> str:
        """The code of its error, such as `spend_exceeded`; empty where it didn't fail."""
        return self.code or super().error_code

    def outputs_as(self, kind: "type[T] | TypeForm[T]") -> T:
        """Return the outputs as a value of a type, such as a dataclass with a field for each.

        Args:
            kind: A dataclass, an attrs class, a TypedDict or a pydantic model. Outputs that it
                doesn't name are left out.

        Returns:
            The value.

        Raises:
            ThreadFailed: The thread failed.
            InputError: The outputs don't fit the type.
        """
        from ryecore.tools.annotations import value_as  # noqa: PLC0415 - most read them as they are

        self.raise_for_status()
        try:
            return cast("T", value_as(kind, dict(self.outputs), "outputs_as"))
        except (TypeError, ValueError) as problem:
            name = getattr(kind, "__name__", str(kind))
            raise InputError(
                f"The outputs of {self.item_id} don't fit {name}: {problem}.",
                next_step="Declare in the class what the directive declares in <outputs>.",
            ) from None

    def _failure(self) -> ToolFailed:
        reason = (self.error or "").removesuffix(self.next_step).rstrip()
        return ThreadFailed(
            f"{self.item_id} failed: {reason}",
            next_step=self.next_step,
            data=self.data,
            thread_id=self.thread_id,
            code=self.code,
        )

    @property
    def _has_children(self) -> bool:
        return self.total not in (self.cost.amount, Amount())

    def to_dict(self) -> dict[str, object]:
        """Return the response object of a fork.

        Source: docs/design/execute.md#fork; docs/design/threads.md#the-end; decision 33.
        """
        result: dict[str, object] = {
            "status": self.status,
            "type": "directive",
            "item_id": self.item_id,
            "thread_id": self.thread_id,
            "directive": self.item_id.partition(":")[2],
            "state": self.ended,
        }
        if self.error is not None:
            result |= {"error": self.error, "error_code": self.code}
        if self.next_step:
            result["next_step"] = self.next_step
        result["result"] = self.text
        if self.outputs:
            result["outputs"] = dict(self.outputs)
        if self.continuation_thread_id is not None:
            result["continuation_thread_id"] = self.continuation_thread_id
        result["cost"] = self.cost.to_dict()
        if self._has_children:
            result["total_cost"] = self.total.to_dict()
        result["metadata"] = {"duration_ms": round(self.duration_ms), **self.metadata}
        return result

    def render(self) -> StyledText:
        """Render the result for a terminal or a notebook."""
        text = StyledText()
        mark = status_mark(self.ended)
        text.line(
            mark,
            (self.item_id, "strong"),
            (f"  {self.ended}", mark[1]),
            (f"  {round(self.duration_ms)} ms", "dim"),
        )
        for line in (self.error or "").splitlines():
            text.line("  ", (line, "bad"))
        for name, value in self.outputs.items():
            text.line((f"  {name}: ", "dim"), str(value))
        if not self.outputs:
            for line in self.text.splitlines():
                text.line("  ", line)
        text.line(("  thread  ", "dim"), (self.thread_id, "id"))
        text.line(("  used    ", "dim"), _used(self.cost))
        if self._has_children:
            text.line(("  in all  ", "dim"), _money_and_tokens(self.total))
        if self.continuation_thread_id is not None:
            text.line(("  continued by  ", "dim"), (self.continuation_thread_id, "id"))
        return text

    def __repr__(self) -> str:
        return f"ThreadResult({self.ended}, {self.thread_id!r})"

    def _repr_html_(self) -> str:
        from ryecore.display import to_html  # noqa: PLC0415 - only for notebooks
        from ryecore.threads.picture import result_picture  # noqa: PLC0415

        return self.render().html() + to_html(result_picture(self))


@frozen(kw_only=True, repr=False)
class StartedThread(ExecutionResult):
    """The result of starting a directive, a tool or a graph, which runs by itself.

    Attributes:
        thread_id: Its id, for `rye.threads`.
        pid: The process id; 0 where the process has ended.
        earlier: The thread's status, where the same idempotency key had started it before.
    """

    chain: ValidChain = _NO_CHAIN
    thread_id: str
    pid: int
    earlier: EarlierStart | None = None

    @classmethod
    def of(
        cls,
        ref: str,
        thread_id: str,
        pid: int,
        began: float,
        earlier: EarlierStart | None = None,
        chain: ValidChain = _NO_CHAIN,
    ) -> Self:
        """Return the result of a start that began at a time on `time.perf_counter`."""
        return cls(
            status="success",
            item_id=ref,
            data={"thread_id": thread_id},
            error=None,
            chain=chain,
            duration_ms=(time.perf_counter() - began) * 1000,
            thread_id=thread_id,
            pid=pid,
            earlier=earlier,
        )

    def to_dict(self) -> dict[str, object]:
        """Return the response object of an asynchronous call.

        Source: docs/design/execute.md#async; docs/design/execute.md#fork; decision 33.
        """
        kind, _, name = self.item_id.partition(":")
        about: dict[str, object] = {"directive": name}
        if kind == "tool":
            about = {"execution_mode": "inline", "chain": list(self.chain.ids)}
        return {
            "status": "success",
            "async": True,
            "type": kind,
            "item_id": self.item_id,
            "thread_id": self.thread_id,
            **about,
            "state": "running",
            "pid": self.pid,
            "metadata": {"duration_ms": round(self.duration_ms), **self.metadata},
            **(self.earlier.to_dict() if self.earlier is not None else {}),
        }

    def render(self) -> StyledText:
        """Render the thread for a terminal or a notebook."""
        text = StyledText()
        text.line(
            status_mark("running"),
            (self.item_id, "strong"),
            (f"  {describe_start('started', self.earlier)}", "id"),
            (f"  {round(self.duration_ms)} ms", "dim"),
        )
        process = f"  process {self.pid}" if self.pid else ""
        text.line(("  thread  ", "dim"), (self.thread_id, "id"), (process, "dim"))
        text.line(("  next    ", "dim"), f"rye threads wait {self.thread_id}")
        return text

    def __repr__(self) -> str:
        return f"StartedThread({self.thread_id!r}, {self.item_id!r}, pid {self.pid})"


def kept_result(record: ThreadRecord, kept: object, total: Amount) -> ThreadResult:
    """Make the result of a thread from the stored one, of which less is there if its process died.

    The total is what it and all below it used.
    """
    said: Mapping[str, object] = kept if isinstance(kept, Mapping) else {}
    error, outputs, metadata = said.get("error"), said.get("outputs"), said.get("metadata")
    if error is None and record.status not in ("completed", "continued"):
        error = f"The thread ended as {record.status}."
    text = said.get("result")
    text = text if isinstance(text, str) else ""
    outputs = outputs if isinstance(outputs, Mapping) else {}
    metadata = dict(metadata) if isinstance(metadata, Mapping) else {}
    took = metadata.pop("duration_ms", None)
    return ThreadResult(
        status="success" if error is None else "error",
        item_id=record.item_id,
        data=dict(outputs) or text,
        error=None if error is None else str(error),
        duration_ms=float(took) if isinstance(took, int | float) else 0.0,
        thread_id=record.thread_id,
        ended=record.status,
        text=text,
        outputs=outputs,
        cost=record.cost,
        total=total,
        code=str(said.get("error_code") or ""),
        next_step=str(said.get("next_step") or ""),
        continuation_thread_id=record.continuation_thread_id,
        metadata=metadata,
    )


def _used(cost: Cost) -> str:
    about = "about " * cost.estimated
    saved = f", {dollars(cost.cache_saved_microcents)} saved by caches"
    shown = saved * (cost.cache_saved_microcents > 0)
    return f"{counted(cost.turns, 'turn')}, {about}{_money_and_tokens(cost.amount)}{shown}"


def _money_and_tokens(amount: Amount) -> str:
    return f"{counted(amount.tokens, 'token')}, {dollars(amount.spend_microcents)}"
