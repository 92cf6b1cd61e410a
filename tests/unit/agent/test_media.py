"""The making of media at endpoints of their own, at once or by a job."""

import anyio
import pytest

from ryecore.agent.deps import AgentTurnLimits
from ryecore.agent.events import CostUpdated
from ryecore.errors import LlmError
from ryecore.llm import MediaJob, MediaResult, MemoryMediaStore, Price, Refuse
from ryecore.policy.context import CancelToken
from ryecore.testing import ScriptedProvider
from tests.unit.agent.studio import KEY, Studio

pytestmark = pytest.mark.anyio


class Painter(ScriptedProvider):
    """A provider that paints: at once, or after some looks at its job."""

    def __init__(self, *, looks=0, error=None, hangs=False):
        super().__init__([], provider_id="painter")
        self.looks, self.error, self.hangs = looks, error, hangs
        self.asked, self.keys, self.polled = [], [], []

    async def generate_media(self, request, *, key, media):
        self.asked.append(request)
        self.keys.append(key)
        if self.hangs:
            await anyio.sleep_forever()
        if self.error:
            raise self.error
        if self.looks:
            return MediaJob("job 7/ü")
        return MediaResult((media.put(b"a picture", "image/png"),), request.model)

    async def poll_media(self, job_id, *, key, media):
        self.polled.append(job_id)
        self.looks -= 1
        if self.looks > 0:
            return MediaJob(job_id)
        return MediaResult((media.put(b"a film", "video/mp4"),), "m-1")


def studio(painter, **deps):
    return Studio(
        providers={"scripted": painter},
        **{
            "resolve_media_surface": lambda model: "generative",
            "media": MemoryMediaStore(),
            "price_of": lambda provider, model: Price(input="0", output="0", per_medium="0.04"),
        }
        | deps,
    )


def costs(made):
    return [event for event in made.events if isinstance(event, CostUpdated)]


async def test_a_picture_is_made_in_one_call_and_costs_what_a_picture_costs():
    painter = Painter()
    made = studio(painter)
    done = await made.run("Paint {{ inputs.what }}.", inputs={"what": "tides"})
    assert done.status == "completed", done.failure
    (part,) = done.output["media"]
    assert done.output["text"] == ""
    assert (part.media_type, made.deps.media.read(part)) == ("image/png", b"a picture")
    assert (painter.asked[0].prompt, painter.asked[0].media_type) == ("Paint tides.", "image/*")
    assert painter.requests == []
    (cost,) = costs(made)
    assert (cost.cost_microcents, cost.priced, cost.input_tokens) == (4_000_000, True, 0)


async def test_a_model_of_the_chat_surface_takes_its_turns():
    painter = Painter()
    for surface in (lambda model: "chat", lambda model: None):
        made = studio(painter, resolve_media_surface=surface)
        done = await made.run()
        assert done.failure.code == "validation"  # the script has no turn, but it was asked
    assert (len(painter.requests), painter.asked) == (2, [])


async def test_a_missing_price_degrades_to_zero_and_says_so():
    made = studio(Painter(), price_of=None)
    assert (await made.run()).status == "completed"
    (cost,) = costs(made)
    assert (cost.cost_microcents, cost.priced) == (0, False)


async def test_a_job_is_pending_until_it_is_polled_to_its_end_and_costs_once():
    painter = Painter(looks=2)
    made = studio(painter)
    done = await made.run(node={"output_media": ["video/*"]})
    assert (done.status, done.output) == ("pending", None)
    assert costs(made) == []
    executor, ctx = made.executor(), made.context()
    again = await executor.poll(done.job_id, ctx)
    assert (again.status, again.job_id) == ("pending", done.job_id)
    ended = await executor.poll(done.job_id, ctx)
    assert ended.output["media"][0].media_type == "video/mp4"
    assert painter.polled == ["job 7/ü", "job 7/ü"]
    assert len(costs(made)) == 1


@pytest.mark.parametrize("job_id", ["", "media:", "media:!!", "media:W10=", "job 7", "media:e30="])
async def test_what_is_no_job_is_a_failed_validation(job_id):
    made = studio(Painter())
    done = await made.executor().poll(job_id, made.context())
    assert done.failure.code == "validation"


async def test_two_modalities_or_an_empty_prompt_are_a_failed_validation():
    made = studio(Painter())
    done = await made.run(node={"output_media": ["image/*", "audio/*"]})
    assert done.failure.code == "validation"
    assert (await made.run("{{ inputs.x }}", inputs={"x": " "})).failure.code == "validation"


async def test_the_hosts_gate_comes_first_with_an_estimate_of_zero():
    seen = []

    def gate(egress):
        seen.append(egress)
        return Refuse("spend", "No money left.")

    painter = Painter()
    done = await studio(painter, pre_egress=gate).run()
    assert (done.failure.code, done.failure.retryable) == ("budget_exceeded", False)
    assert painter.asked == []
    assert (seen[0].estimated_input_tokens, seen[0].request) == (0, None)


async def test_there_is_no_failover_and_an_error_is_on_the_ladder_without_the_key():
    painter = Painter(error=LlmError(f"quota of {KEY}", kind="rate_limit"))
    second = ScriptedProvider(["never"], provider_id="second")
    made = studio(painter)
    made.providers["second"] = second
    done = await made.run(agent=made.agent(fallback_chain=[{"provider": "second", "model": "s"}]))
    assert (done.failure.code, done.failure.retryable) == ("provider_rate_limit", True)
    assert KEY not in str(done)
    assert (len(painter.asked), painter.keys, second.requests) == (1, [KEY], [])
    assert len(costs(made)) == 1


async def test_what_the_host_lacks_is_internal_and_named():
    done = await studio(Painter(), media=None).run()
    assert done.failure.code == "internal"
    assert "media store" in done.failure.message
    plain = studio(ScriptedProvider([]))
    done = await plain.run()
    assert done.failure.code == "internal"
    assert "generate_media" in done.failure.message


async def test_no_credential_is_provider_auth():
    def none(provider_id):
        raise LookupError(KEY)

    done = await studio(Painter(), key_for=none).run()
    assert done.failure.code == "provider_auth"
    assert KEY not in str(done)


async def test_a_call_that_takes_too_long_is_unavailable():
    limits = AgentTurnLimits(media_timeout_s=0.05)
    done = await studio(Painter(hangs=True), limits=limits).run()
    assert done.failure.code == "provider_unavailable"


async def test_a_signal_ends_the_call():
    token = CancelToken()
    painter = Painter(hangs=True)
    made = studio(painter)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:

            async def run():
                assert (await made.run(signal=token)).failure.code == "cancelled"

            tasks.start_soon(run)
            while not painter.asked:
                await anyio.lowlevel.checkpoint()
            token.cancel()
