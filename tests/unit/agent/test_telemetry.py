"""Traces and metrics of runs, read from OpenTelemetry's own exporters in memory."""

import subprocess
import sys
from typing import Any

import anyio
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from ryecore.agent import OtelObserver
from ryecore.errors import AgentTurnError, LlmError
from ryecore.llm import MemoryMediaStore, Refuse, Usage
from ryecore.policy.context import CancelToken
from ryecore.testing import ScriptedMediaProvider, ScriptedProvider, call, fail, hang, make, say
from ryecore.tools import tool
from tests.unit.agent.studio import KEY, Studio

pytestmark = pytest.mark.anyio

SECRET = "the private words"


class Told:
    """An observer, and what it told."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self._metrics = InMemoryMetricReader()
        tracers = TracerProvider(shutdown_on_exit=False)
        tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.tracers = tracers
        self.observer = OtelObserver(
            tracer_provider=tracers,
            meter_provider=MeterProvider([self._metrics], shutdown_on_exit=False),
        )

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        """The spans, in the order in which they began."""
        return tuple(
            sorted(self._spans.get_finished_spans(), key=lambda span: span.start_time or 0)
        )

    def named(self, name: str) -> ReadableSpan:
        """The one span of a name."""
        (span,) = [span for span in self.spans if span.name == name]
        return span

    def points(self, metric: str) -> list[tuple[dict[str, Any], Any]]:
        """What a histogram counted: attributes, and the sum or, of seconds, how often."""
        data = self._metrics.get_metrics_data()
        found = [
            (dict(point.attributes or {}), point.sum if one.unit == "{token}" else point.count)
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for one in scope.metrics
            if one.name == metric
            for point in one.data.data_points
        ]
        return sorted(found, key=str)

    def everything(self) -> str:
        """All that stands in any span or metric."""
        data = self._metrics.get_metrics_data()
        return "".join(span.to_json() for span in self.spans) + (data.to_json() if data else "")


@pytest.fixture
def told() -> Told:
    return Told()


def of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_a_run_is_a_trace_of_its_tries_and_tool_calls(told: Told, anyio_backend: str):
    studio = Studio(
        call("add", {"a": 1, "b": 2}, usage=Usage(10, 1, cache_read_tokens=5, reasoning_tokens=2)),
        say("3", usage=Usage(20, 2)),
        observer=told.observer,
    )
    done = await studio.run(agent=studio.agent(description="Adds."))
    assert done.status == "completed"

    run, first, added, second = told.spans
    assert [span.name for span in told.spans] == [
        "invoke_agent helper", "chat m-1", "execute_tool add", "chat m-1",
    ]  # fmt: skip
    assert run.parent is None
    for inner in (first, added, second):
        assert inner.parent == run.context
    assert of(run) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "m-1",
        "gen_ai.agent.name": "helper",
        "gen_ai.agent.description": "Adds.",
        "ryecore.node_id": "n1",
    }
    assert of(first) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "m-1",
        "gen_ai.usage.input_tokens": 15,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.cache_read.input_tokens": 5,
        "gen_ai.usage.reasoning.output_tokens": 2,
        "gen_ai.response.finish_reasons": ("tool_use",),
        "gen_ai.response.model": "m-1",
        "ryecore.attempt": 1,
    }
    assert of(added) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
        "gen_ai.tool.call.id": "call_1",
        "gen_ai.tool.type": "function",
    }
    assert [span.kind for span in told.spans] == [
        SpanKind.INTERNAL, SpanKind.CLIENT, SpanKind.INTERNAL, SpanKind.CLIENT,
    ]  # fmt: skip
    assert {span.status.status_code for span in told.spans} == {StatusCode.UNSET}
    assert (run.start_time or 0) <= (first.start_time or 0) <= (first.end_time or 0)


async def test_tokens_and_durations_are_counted_by_model(told: Told):
    studio = Studio(
        call("add", {"a": 1, "b": 2}, usage=Usage(10, 1)),
        say("3", usage=Usage(20, 2)),
        observer=told.observer,
    )
    await studio.run()
    common = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "m-1",
    }
    assert told.points("gen_ai.client.token.usage") == [
        (common | {"gen_ai.token.type": "input"}, 30),
        (common | {"gen_ai.token.type": "output"}, 3),
    ]
    assert told.points("gen_ai.client.operation.duration") == [(common, 2)]


async def test_what_was_said_stands_nowhere(told: Told):
    studio = Studio(
        call("explode", {"text": SECRET}),
        call("shout", {"text": SECRET}),
        SECRET,
        observer=told.observer,
    )
    session = studio.session(system_prompt=SECRET)
    assert (await session.send(SECRET)).text == SECRET
    everything = told.everything()
    assert "execute_tool explode" in everything
    assert SECRET not in everything
    assert KEY not in everything


async def test_a_try_that_failed_says_how_and_the_next_one_goes_on(told: Told):
    studio = Studio(
        "fine",
        providers={"first": ScriptedProvider([fail("rate_limit")], provider_id="first")},
        observer=told.observer,
    )
    agent = studio.agent(
        provider="first", fallback_chain=[{"provider": "scripted", "model": "m-2"}]
    )
    assert (await studio.run(agent=agent)).output == "fine"
    failed, went_well = told.named("chat m-1"), told.named("chat m-2")
    assert of(failed)["error.type"] == "rate_limit"
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.status.description is None  # a provider's text may quote what was said
    assert of(failed)["ryecore.attempt"] == 1
    assert "error.type" not in of(went_well)
    assert told.named("invoke_agent helper").status.status_code is StatusCode.UNSET
    durations = told.points("gen_ai.client.operation.duration")
    assert [point.get("error.type") for point, _ in durations] == ["rate_limit", None]


async def test_a_try_that_was_not_made_is_an_event_of_the_run(told: Told):
    studio = Studio("fine", observer=told.observer, pre_egress=_refuse)
    outcome = await studio.run()
    assert outcome.failure is not None
    assert outcome.failure.code == "budget_exceeded"
    run = told.named("invoke_agent helper")
    assert [event.name for event in run.events] == ["ryecore.attempt_refused"]
    assert of(run)["error.type"] == "budget_exceeded"
    assert len(told.spans) == 1


def _refuse(egress: object) -> Refuse:
    return Refuse("spend", "No money left.")


async def test_a_tool_that_failed_says_so(told: Told):
    studio = Studio(call("explode"), "It broke.", observer=told.observer)
    await studio.session().send("Do it.")
    exploded = told.named("execute_tool explode")
    assert of(exploded)["error.type"] == "tool_failed"
    assert exploded.status.status_code is StatusCode.ERROR
    assert exploded.status.description is None


async def test_the_name_of_an_unknown_tool_is_kept_short(told: Told):
    studio = Studio(call("x" * 5_000), "sorry", observer=told.observer)
    await studio.run()
    (unknown,) = [span for span in told.spans if span.name.startswith("execute_tool")]
    assert unknown.name == f"execute_tool {'x' * 64}"


async def test_a_cancelled_run_is_closed_as_cancelled(told: Told, anyio_backend: str):
    studio = Studio(hang(), observer=told.observer)
    signal = CancelToken()
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: studio.run(signal=signal))
        await anyio.wait_all_tasks_blocked()
        signal.cancel()
    assert of(told.named("invoke_agent helper"))["error.type"] == "cancelled"
    assert of(told.named("chat m-1"))["error.type"] == "cancelled"


async def test_concurrent_runs_and_parallel_tools_keep_apart(told: Told, anyio_backend: str):
    tracer = told.tracers.get_tracer("a tool's own")
    arrived: list[anyio.Event] = [anyio.Event() for _ in range(4)]

    @tool(parallel_safe=True)
    async def meet(at: int) -> int:
        """Wait for the others."""
        arrived[at].set()
        for event in arrived:
            await event.wait()
        tracer.start_span(f"inside {at}").end()
        return at

    async def run(first: int) -> None:
        both = call("meet", {"at": first}) + call("meet", {"at": first + 1})
        studio = Studio(both, "met", tools=[meet], observer=told.observer)
        assert (await studio.session(name=f"a{first}").send("Meet.")).text == "met"

    async with anyio.create_task_group() as group:
        group.start_soon(run, 0)
        group.start_soon(run, 2)
    by_id = {span.context.span_id: span for span in told.spans if span.context}
    for at in range(4):
        inside = told.named(f"inside {at}")
        assert inside.parent is not None
        meeting = by_id[inside.parent.span_id]
        assert meeting.name == "execute_tool meet"
        assert meeting.parent is not None
        assert by_id[meeting.parent.span_id].name == f"invoke_agent a{at - at % 2}"


async def test_media_are_made_in_the_trace_of_their_run(told: Told):
    studio = Studio(
        providers={"scripted": ScriptedMediaProvider([make(b"a picture")])},
        observer=told.observer,
        resolve_media_surface=lambda model: "generative",
        media=MemoryMediaStore(),
    )
    assert (await studio.run()).status == "completed"
    run, made = told.spans
    assert (run.name, made.name) == ("invoke_agent helper", "generate_content m-1")
    assert made.parent == run.context


async def test_what_keeps_a_run_from_beginning_is_in_its_trace(told: Told):
    studio = Studio(observer=told.observer)
    assert (await studio.run("{{ inputs.nothing }}")).status == "failed"
    (run,) = told.spans
    assert of(run)["error.type"] == "validation"


async def test_an_error_that_nobody_could_mend_closes_the_run(told: Told):
    studio = Studio(LlmError("no", kind="auth"), observer=told.observer)
    with pytest.raises(AgentTurnError):
        await studio.session().send("Hello.")
    assert of(told.named("invoke_agent helper"))["error.type"] == "provider_auth"
    assert of(told.named("chat m-1"))["error.type"] == "auth"


def test_gemini_is_called_as_the_conventions_call_it(told: Told):
    studio = Studio(observer=told.observer)
    with told.observer.run("n", studio.agent(provider="gemini")):
        pass
    assert of(told.spans[0])["gen_ai.provider.name"] == "gcp.gemini"


def test_without_the_extra_it_says_what_to_install():
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from ryecore.agent import OtelObserver\n"
        "from ryecore.errors import MissingExtra\n"
        "try: OtelObserver()\n"
        "except MissingExtra as error: print(error.extra, error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == (
        "otel OpenTelemetry is not installed. pip install 'ryecore[otel]'"
    ), done.stderr


def test_nobody_who_does_not_watch_imports_opentelemetry():
    program = (
        "import ryecore.agent.runner, ryecore.agent.session, ryecore.agent.telemetry, sys\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "[]", done.stderr
