"""The primitives at the end of every chain, and how the output of their process is read.

They are built in: no file, nothing shadows them.

Source: docs/design/chain.md#primitives; decisions 14 and 27.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol, cast

from ryecore.chain.builder import EXECUTE_ID
from ryecore.chain.model import ExecutionPlan
from ryecore.display.sanitize import shorten
from ryecore.frozen import frozen
from ryecore.items.refs import ItemRef
from ryecore.lillux.processes import ProcessResult, ProcessSpec, WarmPool, WarmStart, run_process
from ryecore.policy.context import CallContext
from ryecore.strict_json import STRICT_DECODER

if TYPE_CHECKING:
    from ryecore.policy.reports import ToolCaller

__all__ = [
    "EFFECT_UNKNOWN",
    "PRIMITIVE_MAP",
    "ExecutePrimitive",
    "KeptProcesses",
    "Outcome",
    "OwnProcesses",
    "process_spec",
    "read_outcome",
    "with_unknown_effect",
]


class KeptProcesses(Protocol):
    """Serves calls in processes that are kept for the next call."""

    async def run(
        self, spec: ProcessSpec, key: str, caller: "ToolCaller | None" = None
    ) -> ProcessResult:
        """Serve a call, in a process of the same key (`ExecutionPlan.keep`) if one runs already.

        `caller` gets what the process reports and asks meanwhile.
        """
        ...

    async def aclose(self) -> None:
        """End every kept process, and wait until none is left."""
        ...


class OwnProcesses(Protocol):
    """Runs plans in processes of ryecore itself, which are not tools."""

    async def run(self, plan: ExecutionPlan, ref: ItemRef, ctx: CallContext) -> ProcessResult:
        """Carry out a plan to its end. Its stdin says the item's digest and its parameters."""
        ...


def process_spec(plan: ExecutionPlan, warm: WarmStart | None = None) -> ProcessSpec:
    """Return the process that carries out a plan, served by a template if `warm` says how."""
    return ProcessSpec(
        command=plan.command,
        args=plan.args,
        cwd=plan.cwd,
        env=plan.env,
        call_env=plan.call_env,
        stdin=plan.stdin,
        timeout_s=plan.timeout_s,
        max_output_bytes=plan.max_output_bytes,
        log_path=plan.output_log,
        warm=warm,
    )


class ExecutePrimitive:
    """Runs a plan as a process of its own group, under lillux.

    Args:
        pool: The templates that a plan's process may be forked from; None starts it cold.
    """

    def __init__(self, pool: WarmPool | None = None) -> None:
        self._pool = pool

    async def run(self, plan: ExecutionPlan) -> ProcessResult:
        """Run the process and wait for it.

        Args:
            plan: What to run.

        Returns:
            How it ended and what it printed.

        Raises:
            SpawnFailed: It can't be started.
        """
        return await run_process(process_spec(plan, self._warm_start(plan)))

    def _warm_start(self, plan: ExecutionPlan) -> WarmStart | None:
        warm = plan.warm
        if warm is None or self._pool is None:
            return None
        template = warm.template
        return WarmStart(
            self._pool,
            warm.arg_index,
            warm.arg,
            template.program,
            template.settings,
            template.sealed,
        )


PRIMITIVE_MAP: Final[Mapping[str, Callable[[WarmPool | None], ExecutePrimitive]]] = {
    EXECUTE_ID: ExecutePrimitive
}
"""The primitives by id."""


EFFECT_UNKNOWN: Final = "Whether it has had its effect is not known."
"""The last sentence of the error of a tool, agent or thread that was interrupted."""

_BROKEN_OFF: Final = frozenset({"signaled", "timed_out", "cancelled", "unknown"})

_MAX_ERROR_CHARACTERS: Final = 4000


@frozen
class Outcome:
    """The outcome of a process; `data` is its one JSON document, else what it printed.

    Notes are what else is worth knowing, such as bytes that were cut. Its effect is unknown where
    it was interrupted.
    """

    success: bool
    data: object
    error: str | None
    notes: Mapping[str, object]
    effect_unknown: bool = False


def read_outcome(
    done: ProcessResult, timeout_s: float | None, as_authored: Callable[[str], str] = str
) -> Outcome:
    """Read what a process left. The timeout is for the error's text; None where it was a deadline.

    `as_authored` puts the author's own paths in place of sealed ones.
    """
    stdout, stderr = _text(done.stdout), as_authored(_text(done.stderr))
    notes = _notes(done)
    is_document, document = _document(stdout, cut="stdout_bytes_cut" in notes)
    data = (
        document
        if is_document
        else {"stdout": stdout, "stderr": stderr, "return_code": _return_code(done)}
    )
    error = _process_error(done, timeout_s, stderr, document)
    if error is None and isinstance(document, Mapping):
        error = _declared_error(document, stderr)
    if error is not None:
        error = shorten(as_authored(error))
        data = _with_authored_paths(data, as_authored)
    if error is None or not _is_effect_unknown(done, document):
        return Outcome(error is None, data, error, notes)
    message = with_unknown_effect(error)
    return Outcome(False, data, message, {**notes, "effect_unknown": True}, effect_unknown=True)


def _with_authored_paths(data: object, as_authored: Callable[[str], str]) -> object:
    """Return a failed tool's document with the author's own paths in its texts.

    Source: decision 16.
    """
    if not isinstance(data, Mapping):
        return data
    return {
        key: as_authored(value) if isinstance(value, str) else value for key, value in data.items()
    }


def with_unknown_effect(error: str) -> str:
    """Return an error's text with the sentence that its effect is unknown, once."""
    return error if EFFECT_UNKNOWN in error else f"{error}\n{EFFECT_UNKNOWN}"


def _is_effect_unknown(done: ProcessResult, document: object) -> bool:
    """Return whether a failed tool was interrupted, or reports that a part of it was."""
    if done.status in _BROKEN_OFF:
        return True
    return isinstance(document, Mapping) and document.get("effect_unknown") is True


def _text(raw: bytes) -> str:
    """Decode bytes as UTF-8; invalid ones become backslash escapes."""
    return raw.decode("utf-8", errors="backslashreplace")


def _document(stdout: str, *, cut: bool) -> tuple[bool, object]:
    text = stdout.strip()
    if cut or not text:
        return False, None
    try:
        document, end = cast("tuple[object, int]", STRICT_DECODER.raw_decode(text))
    except (ValueError, RecursionError):
        return False, None
    return (True, document) if end == len(text) else (False, None)


def _return_code(done: ProcessResult) -> int:
    """Return the exit code; as a shell counts it, minus the signal where one ended the process."""
    if done.exit_code is not None:
        return done.exit_code
    return -done.signal if done.signal is not None else -1


def _process_error(
    done: ProcessResult, timeout_s: float | None, stderr: str, document: object
) -> str | None:
    if done.status == "timed_out":
        said = f" It printed: {_short(stderr)}" if stderr.strip() else ""
        within = "in time" if timeout_s is None else f"within {timeout_s:g} s"
        return f"The tool did not end {within} and was stopped.{said}"
    if done.status == "cancelled":
        return "The tool was cancelled."
    if done.status == "unknown":
        return "How the tool ended is unknown: another part of the host reaped its process."
    if done.status == "exited" and done.exit_code == 0:
        return None
    if isinstance(document, Mapping) and isinstance(document.get("error"), str):
        return str(document["error"])
    if stderr.strip():
        return _short(stderr)
    if done.signal is not None:
        return f"The tool was ended by signal {done.signal}."
    return f"The tool exited with code {done.exit_code} and printed nothing."


def _declared_error(document: Mapping[str, object], stderr: str) -> str | None:
    if document.get("success") is not False and document.get("status") != "error":
        return None
    error = document.get("error")
    if isinstance(error, str) and error:
        return error
    return _short(stderr) if stderr.strip() else "The tool reported a failure without a reason."


def _short(text: str) -> str:
    text = text.strip()
    if len(text) <= _MAX_ERROR_CHARACTERS:
        return text
    return "... " + text[-_MAX_ERROR_CHARACTERS:]


def _notes(done: ProcessResult) -> dict[str, object]:
    notes: dict[str, object] = {}
    for name, kept, total in (
        ("stdout", done.stdout, done.stdout_total_bytes),
        ("stderr", done.stderr, done.stderr_total_bytes),
    ):
        if total > len(kept):
            notes[f"{name}_bytes_cut"] = total - len(kept)
    if done.left_behind:
        notes["left_behind_pids"] = list(done.left_behind)
    return notes
