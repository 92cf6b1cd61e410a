"""A conversation in three lines: a model by its name, tools by themselves, keys of the caller."""

from dataclasses import dataclass
from typing import Any

import pytest
from attrs import evolve, fields_dict

from ryecore.agent.deps import AgentRunnerDeps
from ryecore.agent.model import Agent, AgentNode
from ryecore.agent.opening import AgentFields
from ryecore.agent.session import AgentSession
from ryecore.errors import AgentTurnError, ConfigError, InputError
from ryecore.policy.context import CallContext
from ryecore.testing import ScriptedProvider, call, say
from ryecore.tools import ToolDef, ToolRegistry, tool
from tests.unit.agent.studio import Studio, add

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")


def tide(port: str) -> str:
    """Tell when high water is.

    Args:
        port: The port.
    """
    return f"{port}: 11:20"


def deps_of(*script: Any, **given: Any) -> AgentRunnerDeps:
    model = ScriptedProvider(script)
    return AgentRunnerDeps(
        **{"resolve_provider": {"scripted": model}.get, "key_for": lambda _: "k"} | given
    )


async def test_a_session_is_opened_by_a_model_s_name_and_its_tools() -> None:
    deps = deps_of(call("tide", {"port": "Dover"}), say("At 11:20."))
    session = AgentSession.open(
        "scripted/m-1", tools=[tide], system_prompt="Be brief.", deps=deps, session_id="s-1"
    )
    reply = await session.send("When is high water in Dover?")
    assert (reply.text, reply.turns) == ("At 11:20.", 2)
    assert session.messages[2].parts[0].text == "Dover: 11:20"
    assert (session.agent.provider, session.agent.model) == ("scripted", "m-1")
    assert session.agent.system_prompt == "Be brief."
    assert len(deps.registry) == 0  # the host's own tools are as before


async def test_an_opened_session_gives_typed_outputs() -> None:
    @dataclass
    class Tide:
        port: str

    session = AgentSession.open("scripted/m", output_type=Tide, deps=deps_of('{"port": "Dover"}'))
    assert (await session.send("Which port?")).output == Tide("Dover")


@pytest.mark.parametrize("model", ["gpt-5", "", "/m", "openai/", None])
def test_a_model_is_named_with_its_provider(model: Any) -> None:
    with pytest.raises(InputError) as refused:
        AgentSession.open(model, deps=deps_of("x"))
    assert "provider/model" in refused.value.next_step


def test_a_misspelt_field_is_refused() -> None:
    options: Any = {"sytem_prompt": "x"}
    with pytest.raises(TypeError, match="sytem_prompt"):
        AgentSession.open("scripted/m", deps=deps_of("x"), **options)


def test_each_field_of_an_agent_can_be_given() -> None:
    made_of_others = {"provider", "model", "output_type", "output_check"}
    assert AgentFields.__annotations__.keys() == fields_dict(Agent).keys() - made_of_others


def test_without_deps_the_environment_s_keys_count(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError) as none:
        AgentSession.open("openai/gpt-5")
    assert "AgentRunnerDeps(resolve_provider=" in none.value.next_step
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    assert AgentSession.open("openai/gpt-5").agent.model == "gpt-5"
    for model, said in (("anthropic/c", "ANTHROPIC_API_KEY isn't set"), ("acme/x", "'acme'")):
        with pytest.raises(ConfigError, match=said) as refused:
            AgentSession.open(model)
        assert "sk-1" not in f"{refused.value} {refused.value.next_step}"


def test_dependencies_are_made_of_an_environment() -> None:
    deps = AgentRunnerDeps.from_env({"OPENAI_API_KEY": "sk-2"})
    provider = deps.provider_for("openai", CallContext())
    assert provider is not None
    assert provider.provider_id == "openai"
    assert deps.keys_of(CallContext())("openai") == "sk-2"
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        AgentRunnerDeps.from_env({})


def test_blanks_around_a_key_are_left_out_and_a_blank_key_is_none() -> None:
    environ = {"GEMINI_API_KEY": " ", "GOOGLE_API_KEY": "AI-1\n", "OPENAI_API_KEY": "\n"}
    deps = AgentRunnerDeps.from_env(environ)
    assert deps.keys_of(CallContext())("gemini") == "AI-1"
    assert deps.provider_for("openai", CallContext()) is None
    with pytest.raises(ConfigError, match="no API key is set"):
        AgentRunnerDeps.from_env({"OPENAI_API_KEY": " "})


async def test_an_agent_takes_names_tools_and_functions_each_once() -> None:
    agent = Agent(name="a", provider="p", model="m", tools=["add", tide, "add", tide, "tide"])
    assert agent.tool_names == ("add", "tide")
    assert agent.tools[0] == "add"
    assert isinstance(agent.tools[1], ToolDef)
    assert evolve(agent, description="x").tools == agent.tools
    studio = Studio(call("tide", {"port": "Ems"}) + call("add", {"a": 1, "b": 2}), "done")
    await studio.session(tools=[tide, "add"]).send("Go.")
    assert [spec.name for spec in studio.model.requests[0].tools] == ["tide", "add"]
    results = studio.model.requests[1].messages[-1].parts
    assert [part.text for part in results] == ["Ems: 11:20", "3"]


async def test_a_node_runs_an_agent_s_own_tools_and_narrows_them() -> None:
    studio = Studio(call("tide", {"port": "Ems"}), "done")
    agent = studio.agent(tools=[tide, add])
    done = await studio.run(agent=agent, node={"tools": ["tide"]})
    assert (done.status, done.output) == ("completed", "done")
    assert [spec.name for spec in studio.model.requests[0].tools] == ["tide"]
    assert AgentNode.asking("x", agent=agent).agent_ref == agent.name


def test_two_tools_of_one_name_that_differ_are_refused() -> None:
    @tool(name="tide")
    def other(port: str) -> str:
        return port

    with pytest.raises(ConfigError, match="Two tools have the name tide"):
        Agent(name="a", provider="p", model="m", tools=[tide, other])
    deps = deps_of("x", registry=ToolRegistry([other]))
    with pytest.raises(AgentTurnError, match="different tools of the name 'tide'"):
        AgentSession.open("scripted/m", tools=[tide], deps=deps)
    same = deps_of("x", registry=ToolRegistry([tide, add]))
    AgentSession.open("scripted/m", tools=[tide, add], deps=same)


def test_what_is_no_tool_is_refused_with_what_can_be_passed() -> None:
    for wrong in (5, dict, print, Studio.run):
        with pytest.raises(ConfigError) as refused:
            Agent(name="a", provider="p", model="m", tools=[wrong])
        assert "functions" in refused.value.next_step


async def test_keys_and_providers_may_depend_on_the_caller() -> None:
    seen: list[tuple[str, str, CallContext]] = []
    model = ScriptedProvider(["one", "two"])

    def provider(provider_id: str, call: CallContext) -> ScriptedProvider:
        seen.append(("provider", provider_id, call))
        return model

    async def key(provider_id: str, call: CallContext) -> str:
        seen.append(("key", provider_id, call))
        return f"key-of-{call.budget_account}"

    deps = AgentRunnerDeps(resolve_provider=provider, key_for=key)
    caller = CallContext(budget_account="acme")
    await AgentSession.open("scripted/m", deps=deps, call=caller).send("Hello.")
    without = [(kind, name, evolve(one, budget=None)) for kind, name, one in seen]  # the session's
    assert without == [("provider", "scripted", caller), ("key", "scripted", caller)]
    seen.clear()
    studio = Studio(resolve_provider=provider, key_for=key)
    await studio.run(call=caller)
    without = [(kind, name, evolve(one, budget=None)) for kind, name, one in seen]  # the session's
    assert without == [("provider", "scripted", caller), ("key", "scripted", caller)]


async def test_a_default_of_a_second_parameter_stays() -> None:
    def key(provider_id: str, fallback: str = "k-1") -> str:
        return fallback

    deps = deps_of("x", key_for=key)
    assert deps.keys_of(CallContext())("scripted") == "k-1"
