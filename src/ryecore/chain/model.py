"""The types along the chain; each step makes the next one, so none can be skipped."""

import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, Self

from attrs import field

from ryecore.chain.elements import ChainElement, Link
from ryecore.chain.rendering import render_chain, render_result
from ryecore.chain.spec import PinSpec
from ryecore.display.text import StyledText
from ryecore.errors import InputError, ToolFailed
from ryecore.frozen import frozen
from ryecore.lillux.witness import Witness
from ryecore.policy.dialects import SCRIPT_KEYWORD

if TYPE_CHECKING:
    from ryecore.display.picture import BoxStatus
    from ryecore.policy.limits import Limits

__all__ = [
    "Chain",
    "ChainTrace",
    "ExecutionPlan",
    "ExecutionResult",
    "ValidChain",
    "WarmPlan",
    "WarmTemplate",
]

_MAX_REPR: Final = 80
_STATUS_SHOWN: Final[Mapping[str, "BoxStatus"]] = {
    "success": "completed", "error": "failed", "validation_passed": "",
}  # fmt: skip

Deps = Literal["none", "verified", "unverified"]
"""Whether what a tool can import besides its own file was verified."""


@frozen
class Chain:
    """Verified elements from the tool, at index 0, to the primitive, and the items they name."""

    elements: tuple[ChainElement, ...]
    links: tuple[Link, ...] = ()

    @property
    def all_elements(self) -> tuple[ChainElement, ...]:
        """The elements, and each linked item before the runtime that takes it."""
        return tuple(
            found
            for element in self.elements
            for found in (
                *(link.element for link in self.links if link.taken_by == element.item_id),
                element,
            )
        )

    @cached_property
    def pinned_by(self) -> PinSpec | None:
        """How its tool is pinned, where a runtime says so."""
        return next((one.spec.pinned_by for one in self.elements if one.spec.pinned_by), None)

    @cached_property
    def is_pinned(self) -> bool | None:
        """Whether its tool is pinned; None where no runtime asks for it."""
        spec = self.pinned_by
        return None if spec is None else bool(self.head.spec.config.get(spec.config_key))

    @cached_property
    def is_own_process(self) -> bool:
        """Whether what runs is ryecore itself, and not a tool, in a process of its own."""
        return any(element.spec.own_process for element in self.elements)

    def check_takes_limits(self, item_id: str) -> None:
        """Check that what runs is a graph: no other tool has limits.

        Raises:
            InputError: It isn't one.
        """
        if not self.is_own_process:
            raise InputError(
                f"limits is for directives and graphs; {item_id} runs no model.",
                next_step="Leave it out; a tool's time is bounded by its timeout.",
            )

    @cached_property
    def parameter_schema(self) -> Mapping[str, object] | None:
        """The schema of its tool's parameters, with the annotations of its runtimes.

        A runtime that takes `command` as a program declares that once for all its tools.
        """
        schema = self.head.spec.config_schema
        declared = (schema or {}).get("properties")
        if schema is None or not isinstance(declared, Mapping):
            return schema
        shared: dict[str, object] = {}
        for element in reversed(self.elements[1:]):
            properties = (element.spec.config_schema or {}).get("properties")
            for name, one in properties.items() if isinstance(properties, Mapping) else ():
                own = declared.get(name)
                if isinstance(one, Mapping) and SCRIPT_KEYWORD in one and isinstance(own, Mapping):
                    shared[name] = {SCRIPT_KEYWORD: one[SCRIPT_KEYWORD], **own}
        return {**schema, "properties": {**declared, **shared}} if shared else schema

    @property
    def head(self) -> ChainElement:
        """The element that was asked for."""
        return self.elements[0]

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The ids of its elements, head first."""
        return tuple(element.item_id for element in self.elements)

    @cached_property
    def is_verified(self) -> bool:
        """Whether every signature holds; False only in dev mode."""
        return all(not element.item or element.item.is_verified for element in self.all_elements)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({' -> '.join(self.ids)})"

    def __str__(self) -> str:
        return self._render().plain()

    def _repr_html_(self) -> str:
        return _drawn(self, ())

    def _render(self) -> StyledText:
        return render_chain([element.to_dict() for element in self.elements])


def _chain_document(chain: Chain) -> dict[str, object]:
    document: dict[str, object] = {
        "chain": list(chain.ids),
        "chain_elements": [element.to_dict() for element in chain.elements],
    }
    if chain.links:
        document["linked_items"] = [link.to_dict() for link in chain.links]
    return document


def _without_chain(document: Mapping[str, object]) -> dict[str, object]:
    """Return a document without what is drawn beside it."""
    return {
        key: value
        for key, value in document.items()
        if key not in ("chain_elements", "linked_items")
    }


def _drawn(chain: Chain, events: Iterable[Mapping[str, object]], status: "BoxStatus" = "") -> str:
    """Return a chain for a notebook."""
    from ryecore.chain.picture import chain_picture  # noqa: PLC0415 - only for notebooks
    from ryecore.display import to_html  # noqa: PLC0415

    return to_html(chain_picture(chain.elements, chain.links, events, status=status))


@frozen(repr=False)
class ValidChain(Chain):
    """A chain whose neighbours fit: each checked (child, parent), and what could not be checked."""

    validated_pairs: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()


@frozen
class ChainTrace:
    """A tool's chain and every decision that led to it; nothing ran."""

    item_id: str
    chain: ValidChain
    events: tuple[Mapping[str, object], ...]

    def to_dict(self) -> dict[str, object]:
        """Return the trace as a JSON-ready object."""
        return {
            "status": "success",
            "type": "tool",
            "item_id": self.item_id,
            **_chain_document(self.chain),
            "trace": [dict(event) for event in self.events],
        }

    def __repr__(self) -> str:
        return f"ChainTrace({self.item_id!r}, {len(self.events)} events)"

    def __str__(self) -> str:
        return render_result(self.to_dict()).plain()

    def _repr_html_(self) -> str:
        text = render_result(_without_chain(self.to_dict()))
        return _drawn(self.chain, self.events) + text.html()


@frozen
class WarmTemplate:
    """The template of a chain's process, the same for all parameters.

    Attributes:
        program: The verified program that makes a process a template.
        sealed: The sealed files that the process may read before it forks, as they were verified.
    """

    fork_point: str
    program: bytes = field(repr=False)
    settings: bytes = field(repr=False)
    sealed: Witness | None = field(default=None, repr=False)


@frozen
class WarmPlan:
    """How the process of a plan can be forked from a template that was started with the same plan.

    Only the argument at `arg_index` differs in the template: it is `arg` there.
    """

    arg_index: int
    arg: str
    template: WarmTemplate


@frozen
class ExecutionPlan:
    """The fully resolved plan of a process. A dry run shows it.

    Attributes:
        command: The program.
        args: Its arguments.
        cwd: Its working folder.
        env: Its environment. Values may be secret, so `repr` leaves them out.
        stdin: The bytes on its standard input.
        timeout_s: After how many seconds the process group ends.
        max_output_bytes: How much of each output stream is kept.
        deps: `none`, `verified`, or `unverified` where package folders are linked.
        keep: The key of a process that is kept between calls; None for one that ends with its
            call.
        output_log: A file that the output is also written to as it comes.
        warm: How the process can start warm, with the same result; None where it can't.
        call_env: Variables of this one call, above `env`: its id, and that of its run.
        limits: The caller's limits of a graph's run; None for no limits.
    """

    command: str
    args: tuple[str, ...]
    cwd: str
    env: Mapping[str, str] = field(repr=False)
    stdin: bytes = field(repr=False)
    timeout_s: float
    max_output_bytes: int
    deps: Deps = "none"
    keep: str | None = None
    output_log: str | None = None
    warm: WarmPlan | None = field(default=None, repr=False)
    call_env: Mapping[str, str] = field(factory=dict, repr=False, eq=False)
    limits: "Limits | None" = None

    def to_dict(self) -> dict[str, object]:
        """Return the plan as a dry run shows it: names of variables, never values."""
        return {
            "command": self.command,
            "args": list(self.args),
            "cwd": self.cwd,
            "env": sorted(self.env),
            "stdin_bytes": len(self.stdin),
            "timeout_s": self.timeout_s,
            "deps": self.deps,
            **({} if self.keep is None else {"kept": True}),
            **({} if self.limits is None else {"limits": self.limits.to_dict()}),
        }


@frozen
class ExecutionResult:
    """The result of a tool that ran, or of a dry run.

    Attributes:
        status: `success`, `error` for a tool that ran and failed, or `validation_passed`.
        item_id: What was executed, as a canonical ref.
        data: What the tool returned: its one JSON document, else what it printed.
        error: Why it failed; None where it didn't.
        chain: The chain that ran it.
        duration_ms: How long it took, verification included.
        metadata: More facts, such as bytes that were cut.
        trace: The events, where tracing was on.
        plan: The plan; only in a dry run.
        effect_unknown: Whether it was interrupted by a signal or its timeout, so that it may have
            had its effect.
    """

    status: Literal["success", "error", "validation_passed"]
    item_id: str
    data: object
    error: str | None
    chain: ValidChain
    duration_ms: float
    metadata: Mapping[str, object] = {}
    trace: tuple[Mapping[str, object], ...] | None = None
    plan: ExecutionPlan | None = None
    effect_unknown: bool = False

    @property
    def success(self) -> bool:
        """Whether it ran well, or would be allowed to."""
        return self.status != "error"

    @property
    def error_code(self) -> str:
        """The code of its error, such as `tool_failed`; empty where it didn't fail."""
        return "tool_failed" if self.status == "error" else ""

    def raise_for_status(self) -> Self:
        """Return the result itself, or raise ToolFailed where it ran and failed.

        For a directive's thread that is a ThreadFailed.
        """
        if self.status != "error":
            return self
        raise self._failure().during(
            self.item_id,
            chain=self.chain.ids,
            trace=self.trace or (),
            duration_ms=self.duration_ms,
        )

    def _failure(self) -> ToolFailed:
        return ToolFailed(self.error or "The tool failed.", data=self.data)

    def to_dict(self) -> dict[str, object]:
        """Return the response object that models and MCP clients see.

        Source: docs/design/execute.md#tools; decision 33.
        """
        result: dict[str, object] = {"status": self.status}
        if self.status == "validation_passed":
            result["message"] = "Tool chain validation passed (dry run)"
        result |= {"type": "tool", "item_id": self.item_id}
        if self.error is not None:
            result["error"] = self.error
        if self.plan is None or self.data is not None:  # a graph's plan says what it would do
            result["data"] = self.data
        result |= {
            **_chain_document(self.chain),
            "metadata": {"duration_ms": round(self.duration_ms), **self.metadata},
        }
        if self.plan is not None:
            result["validated_pairs"] = [list(pair) for pair in self.chain.validated_pairs]
            result["plan"] = self.plan.to_dict()
        if self.trace is not None:
            result["trace"] = [dict(event) for event in self.trace]
        return result

    def to_json(self, *, indent: int | None = None) -> str:
        """Return `to_dict` as a JSON document."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=indent, default=str)

    def render(self) -> StyledText:
        """Return the result for a terminal or a notebook."""
        return render_result(self.to_dict())

    def __repr__(self) -> str:
        shown = repr(self.data if self.error is None else self.error)
        brief = shown if len(shown) <= _MAX_REPR else shown[:_MAX_REPR] + "..."
        return (
            f"ExecutionResult({self.status}, {self.item_id!r}, {self.duration_ms:.0f} ms, {brief})"
        )

    def __str__(self) -> str:
        return self.render().plain()

    def _repr_html_(self) -> str:
        if not self.chain.elements:
            return self.render().html()
        text = render_result(_without_chain(self.to_dict())).html()
        return text + _drawn(self.chain, self.trace or (), _STATUS_SHOWN[self.status])
