"""What is of the wrong type is refused where it is written, and isn't shown."""

from collections.abc import Callable

import pytest

from ryecore.agent.deps import AgentRunnerDeps, AgentTurnLimits
from ryecore.agent.model import Agent, AgentNode, FallbackChoice, RetrySpec
from ryecore.agent.node import NodeExecContext
from ryecore.errors import ConfigError
from ryecore.llm.fallback_rules import Backoff, ChainOptions, FallbackPlanEntry
from ryecore.testing import ScriptedProvider
from tests.unit.agent.studio import KEY, Studio

AGENT = {"name": "a", "provider": "p", "model": "m"}
NODE = {"id": "n", "agent_ref": "a", "prompt_template": "Go."}
DEPS = {"resolve_provider": {}.get, "key_for": str}


@pytest.mark.parametrize(
    ("kind", "whole", "wrong"),
    [
        *[
            (Agent, AGENT, wrong)
            for wrong in (
                {"name": 5}, {"model": None}, {"system_prompt": None}, {"tools": KEY},
                {"tools": 5}, {"tools": [1]}, {"fallback_chain": KEY}, {"fallback_chain": [KEY]},
                {"fallback_chain": [{"provider": "x"}]}, {"fallback_chain": [{"key": KEY}]},
                {"retry": 3}, {"retry": {"times": 3}}, {"output_schema": KEY},
                {"temperature": "hot"}, {"max_output_tokens": "5"}, {"reasoning": "max"},
                {"cache": "2h"}, {"cache": True},
            )
        ],
        *[
            (AgentNode, NODE, wrong)
            for wrong in (
                {"prompt_template": None}, {"prompt_template": 5}, {"model": 5}, {"retry": 1},
                {"output_media": "image/*"}, {"output_schema": 5}, {"tools": "add"},
            )
        ],
        *[
            (AgentRunnerDeps, DEPS, wrong)
            for wrong in (
                {"key_for": KEY}, {"resolve_provider": {"p": KEY}}, {"registry": []},
                {"tools": "x"}, {"host_capabilities": "net"}, {"limits": {}}, {"sleep": None},
                {"approve": True},
            )
        ],
        (AgentTurnLimits, {}, {"backoff": 1}),
        *[
            (NodeExecContext, {"vertex": AgentNode(**NODE)}, wrong)
            for wrong in ({"call": None}, {"resolved_agent": "a"}, {"signal": True}, {"emit": 5})
        ],
    ],
)  # fmt: skip
def test_a_field_of_the_wrong_type_is_refused_at_once(kind, whole, wrong):
    kind(**whole)
    with pytest.raises(ConfigError) as caught:
        kind(**whole | wrong)
    assert caught.value.next_step
    assert KEY not in str(caught.value)
    assert "__init__" not in str(caught.value)


def test_what_a_file_gives_as_mappings_is_made_into_what_it_stands_for():
    agent = Agent(**AGENT, retry={"max": 3}, fallback_chain=[{"provider": "q", "model": "n"}])
    assert agent.retry == RetrySpec(3)
    assert agent.fallback_chain == (FallbackChoice("q", "n"),)


def test_a_tool_that_is_named_twice_is_granted_once():
    assert Agent(**AGENT, tools=["b", "a", "b"]).tools == ("b", "a")


@pytest.mark.anyio
async def test_what_is_no_provider_is_internal_and_named():
    def resolve(provider_id):
        return [provider_id]

    done = await Studio(resolve_provider=resolve).run()

    assert done.failure.code == "internal"
    assert "resolve_provider returned list for 'scripted'" in done.failure.message


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: RetrySpec(0), "RetrySpec.max"),
        (lambda: Agent(**AGENT, retry={"max": 0}), "RetrySpec.max"),
        (lambda: FallbackChoice("p", "m", max_attempts=-1), "FallbackChoice.max_attempts"),
        (lambda: AgentTurnLimits(max_calls_a_turn=0), "AgentTurnLimits.max_calls_a_turn"),
        (lambda: AgentTurnLimits(cooldown_s=float("nan")), "AgentTurnLimits.cooldown_s"),
        (lambda: Backoff(base_s=-0.1), "Backoff.base_s"),
        (lambda: Backoff(cap_s=float("nan")), "Backoff.cap_s"),
        (lambda: FallbackPlanEntry(ScriptedProvider([]), "m", 0), "FallbackPlanEntry.max_attempts"),
        (lambda: ChainOptions(str, cooldown_s=-1), "ChainOptions.cooldown_s"),
    ],
)
def test_a_number_that_is_too_small_is_named_with_the_least(
    make: Callable[[], object], field: str
) -> None:
    with pytest.raises(ConfigError, match=f"{field} must be a number of at least") as refused:
        make()
    assert field.partition(".")[2] in refused.value.next_step


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: ChainOptions(str, stall_s=0), "ChainOptions.stall_s"),
        (lambda: AgentTurnLimits(stall_s=0), "AgentTurnLimits.stall_s"),
        (lambda: AgentTurnLimits(max_output_tokens=0), "AgentTurnLimits.max_output_tokens"),
    ],
)
def test_a_number_that_has_to_be_above_zero_is_named(
    make: Callable[[], object], field: str
) -> None:
    with pytest.raises(ConfigError, match=f"{field} must be a number above 0, and is 0") as refused:
        make()
    assert refused.value.next_step == f"Write {field.partition('.')[2]} as a number above 0."
