"""Spans and metrics of runs for OpenTelemetry, by its conventions for generative AI.

They hold no text of a person, a model or a tool, only names, counts, times and kinds.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Final, Protocol

from ryecore.agent.outcome import failure_of
from ryecore.convert.money import write_usd
from ryecore.errors import MissingExtra
from ryecore.llm.fallback_rules import AttemptRecord
from ryecore.llm.parts import ToolCallPart
from ryecore.llm.result import Usage

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

    from ryecore.agent.model import Agent
    from ryecore.llm.cost import AttemptCost
    from ryecore.policy.execution import Execution

__all__ = ["Observer", "OtelObserver"]


class Observer(Protocol):
    """Observes any number of concurrent executes and runs. It must neither block nor raise.

    A class that inherits from it needs only the methods that it is interested in.
    Its context managers are entered in the task that does the work, and left at the end of it. An
    exception that ends the work, or a cancellation, passes through.
    """

    def execute(self, execution: "Execution") -> AbstractContextManager[object]:
        """Return the context manager around an execute of an item.

        A run in the background is observed twice: its start, and then the run in its own task.

        Args:
            execution: The execute; how it ended stands in it when the context manager is left.
        """
        return nullcontext()

    def run(self, node_id: str, agent: "Agent") -> AbstractContextManager[object]:
        """Return the context manager around a run of an agent.

        Args:
            node_id: The id of the node or session.
            agent: The agent.
        """
        return nullcontext()

    def attempt(self, node_id: str, record: AttemptRecord, cost: "AttemptCost | None") -> None:
        """Observe a try, also a skipped one.

        Args:
            node_id: The id of the node or session.
            record: The record of the try.
            cost: What it cost; None for one that was not made.
        """

    def tool(self, node_id: str, call: ToolCallPart) -> AbstractContextManager[object]:
        """Return the context manager around a tool call.

        Args:
            node_id: The id of the node or session.
            call: The call, as the model made it.
        """
        return nullcontext()


_SCOPE: Final = "ryecore"

# The conventions' names, written out because their package changes with each release
# and the API that the extra needs comes without it.
_OPERATION: Final = "gen_ai.operation.name"
_PROVIDER: Final = "gen_ai.provider.name"
_REQUEST_MODEL: Final = "gen_ai.request.model"
_ERROR: Final = "error.type"
_COST: Final = "ryecore.cost_usd"  # the conventions have no name for a cost

_WELL_KNOWN: Final = {"gemini": "gcp.gemini"}
"""The names of providers in the conventions, if they aren't the ids."""

_MAX_NAME_CHARS: Final = 64

_TOKEN_BUCKETS: Final = tuple(4**power for power in range(14))
_SECOND_BUCKETS: Final = tuple(0.01 * 2**power for power in range(14))


class OtelObserver:
    """Makes a trace of each execute, and of each run of an agent.

    A span `execute` is around what an item does; `invoke_agent` around an agent's run, with a
    `chat` for each try and `execute_tool` for each call of a tool.

    Metrics are `gen_ai.client.token.usage` and `gen_ai.client.operation.duration`.

    Args:
        tracer_provider: The receiver of spans; by default the process's own.
        meter_provider: The receiver of metrics; by default the process's own.

    Raises:
        MissingExtra: OpenTelemetry is not installed.
    """

    def __init__(
        self,
        *,
        tracer_provider: "TracerProvider | None" = None,
        meter_provider: "MeterProvider | None" = None,
    ) -> None:
        try:
            from opentelemetry import metrics, trace  # noqa: PLC0415 - an extra
        except ModuleNotFoundError:
            raise MissingExtra(
                "OpenTelemetry is not installed.",
                next_step="pip install 'ryecore[otel]'",
                extra="otel",
            ) from None
        self._trace = trace
        self._spent: dict[int, int | None] = {}
        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
        meter = metrics.get_meter(_SCOPE, meter_provider=meter_provider)
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=_TOKEN_BUCKETS,
        )
        self._durations = meter.create_histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="GenAI operation duration.",
            explicit_bucket_boundaries_advisory=_SECOND_BUCKETS,
        )

    def run(self, node_id: str, agent: "Agent") -> AbstractContextManager[object]:
        """Return the span `invoke_agent` around a run of an agent."""
        attributes = {
            _OPERATION: "invoke_agent",
            _PROVIDER: _provider_name(agent.provider),
            _REQUEST_MODEL: agent.model,
            "gen_ai.agent.name": agent.name,
            "ryecore.node_id": node_id,
        }
        if agent.description:
            attributes["gen_ai.agent.description"] = agent.description
        return self._run_span(f"invoke_agent {agent.name}", attributes)

    def execute(self, execution: "Execution") -> AbstractContextManager[object]:
        """Return the span `execute`, `start` or `dry_run` around an execute of an item."""
        return self._execute_span(execution)

    def tool(self, node_id: str, call: ToolCallPart) -> AbstractContextManager[object]:
        """Return the span `execute_tool` around a tool call."""
        # Written by the model, and perhaps not the name of a tool.
        name = call.name[:_MAX_NAME_CHARS]
        return self._span(
            f"execute_tool {name}",
            {
                _OPERATION: "execute_tool",
                "gen_ai.tool.name": name,
                "gen_ai.tool.call.id": call.call_id,
                "gen_ai.tool.type": "function",
            },
        )

    def attempt(self, node_id: str, record: AttemptRecord, cost: "AttemptCost | None") -> None:
        """Record the span `chat` and the metrics of a try; a skipped one is an event."""
        if record.outcome in ("skipped", "refused"):
            self._trace.get_current_span().add_event(
                f"ryecore.attempt_{record.outcome}",
                {
                    _PROVIDER: _provider_name(record.provider),
                    _REQUEST_MODEL: record.model,
                    "ryecore.reason": record.reason,
                },
            )
            return
        operation = "generate_content" if record.media else "chat"
        common: dict[str, str | int] = {
            _OPERATION: operation,
            _PROVIDER: _provider_name(record.provider),
            _REQUEST_MODEL: record.model,
        }
        usage = record.usage
        if usage is not None:
            self._tokens.record(usage.total_input_tokens, common | {"gen_ai.token.type": "input"})
            self._tokens.record(usage.total_output_tokens, common | {"gen_ai.token.type": "output"})
        error = _error_of(record)
        failed: dict[str, str | int] = {_ERROR: error} if error else {}
        self._durations.record(record.duration_ms / 1e3, common | failed)
        # The try is over when it is reported, so its span is computed backwards from now.
        now_ns = time.time_ns()
        span = self._tracer.start_span(
            f"{operation} {record.model}",
            kind=self._trace.SpanKind.CLIENT,
            attributes=common,
            start_time=now_ns - round(record.duration_ms * 1e6),
        )
        span.set_attributes(_counted(usage) | failed | {"ryecore.attempt": record.number})
        if record.waited_ms:
            span.set_attribute("ryecore.waited_ms", record.waited_ms)
        if cost is not None and cost.priced:
            span.set_attribute(_COST, write_usd(cost.cost_microcents))
            run = self._trace.get_current_span().get_span_context().span_id
            if run in self._spent:
                self._spent[run] = (self._spent[run] or 0) + cost.cost_microcents
        if record.stop_reason is not None:
            span.set_attribute("gen_ai.response.finish_reasons", (record.stop_reason,))
            span.set_attribute("gen_ai.response.model", record.response_model)
        if error:  # only its kind: a provider's text may quote the conversation
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR))
        span.end(now_ns)

    @contextmanager
    def _execute_span(self, execution: "Execution") -> Iterator[None]:
        with self._tracer.start_as_current_span(
            f"{execution.operation} {execution.ref[:_MAX_NAME_CHARS]}",
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            finally:
                # What was found out meanwhile, also how the item is called in full.
                span.update_name(f"{execution.operation} {execution.ref[:_MAX_NAME_CHARS]}")
                span.set_attributes(_facts_of(execution))
                if execution.error_code:
                    span.set_attribute(_ERROR, execution.error_code)
                    span.set_status(self._trace.Status(self._trace.StatusCode.ERROR))

    @contextmanager
    def _run_span(self, name: str, attributes: dict[str, str]) -> Iterator[None]:
        """Enter a span that adds up what its tries cost, without the runs within it."""
        with self._span(name, attributes) as span:
            run = span.get_span_context().span_id
            self._spent[run] = None
            try:
                yield
            finally:
                spent = self._spent.pop(run)
                if spent is not None:
                    span.set_attribute(_COST, write_usd(spent))

    @contextmanager
    def _span(self, name: str, attributes: dict[str, str]) -> "Iterator[Span]":
        with self._tracer.start_as_current_span(
            name, attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield span
            except BaseException as error:
                # Only its code: the text may quote the conversation.
                code = failure_of(error).code if isinstance(error, Exception) else "cancelled"
                span.set_attribute(_ERROR, code)
                span.set_status(self._trace.Status(self._trace.StatusCode.ERROR))
                raise


def _provider_name(provider_id: str) -> str:
    return _WELL_KNOWN.get(provider_id, provider_id)


def _facts_of(execution: "Execution") -> dict[str, str | float]:
    item, spend = execution.item, execution.spend_microcents
    facts: dict[str, str | float | None] = {
        "ryecore.ref": execution.ref,
        "ryecore.hash": None if item is None else item.integrity,
        "ryecore.key": None if item is None else item.fingerprint,
        "ryecore.caller": execution.caller,
        "ryecore.target": execution.target,
        "ryecore.thread_id": execution.thread_id,
        "ryecore.outcome": execution.outcome,
        _COST: None if spend is None else write_usd(spend),
        **{f"ryecore.label.{name}": value for name, value in execution.labels.items()},
    }
    return {name: value for name, value in facts.items() if value is not None}


def _error_of(record: AttemptRecord) -> str:
    if record.outcome == "success":
        return ""
    return "cancelled" if record.outcome == "cancelled" else record.kind or "_OTHER"


def _counted(usage: Usage | None) -> dict[str, str | int]:
    if usage is None:
        return {}
    counted: dict[str, str | int] = {
        "gen_ai.usage.input_tokens": usage.total_input_tokens,
        "gen_ai.usage.output_tokens": usage.total_output_tokens,
    }
    for name, count in (
        ("gen_ai.usage.cache_read.input_tokens", usage.cache_read_tokens),
        ("gen_ai.usage.cache_creation.input_tokens", usage.total_cache_write_tokens),
        ("gen_ai.usage.reasoning.output_tokens", usage.reasoning_tokens),
    ):
        if count:
            counted[name] = count
    return counted
