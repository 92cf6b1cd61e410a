"""What gives a Rye its models where nobody opens it by hand."""

import sys
from pathlib import Path

import anyio
import pytest

import ryecore.agent.environment
from ryecore.agent.deps import AgentRunnerDeps
from ryecore.agent.environment import missing_models_error
from ryecore.errors import ConfigError, MissingExtra
from ryecore.host_factory import (
    ENVIRONMENT_FACTORY,
    call_factory,
    from_environment,
    host_options,
)

DEPS = """
import asyncio

from ryecore import AgentRunnerDeps
from ryecore.testing import ScriptedProvider, say

model = ScriptedProvider([say("hello")])

def alone():
    return AgentRunnerDeps(resolve_provider={"scripted": model}.get, key_for=lambda _: "k")

def named():
    return {"agent": alone(), "approve": None}

def broken():
    raise RuntimeError("the key is sk-secret-1")

def nothing():
    return 7

def awaiting():
    asyncio.run(asyncio.sleep(0))
    return alone()
"""


@pytest.fixture
def deps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "my_deps.py").write_text(DEPS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_deps", raising=False)
    return "my_deps"


def test_a_function_makes_deps_alone_or_arguments_by_name(deps: str) -> None:
    for name in ("alone", "named"):
        options = host_options(f"{deps}:{name}", {})
        assert isinstance(options["agent"], AgentRunnerDeps)
        assert options["deps_factory"] == f"{deps}:{name}"  # a detached process gets the same
    assert set(call_factory(f"{deps}:alone")) == {"agent"}


def test_a_factory_that_runs_an_event_loop_in_one_is_told_so(deps: str) -> None:
    async def in_a_worker() -> None:
        call_factory(f"{deps}:awaiting")

    assert set(call_factory(f"{deps}:awaiting")) == {"agent"}  # before any event loop runs
    with pytest.raises(ConfigError) as refused:
        anyio.run(in_a_worker)
    assert "can't call asyncio.run" in refused.value.next_step


@pytest.mark.parametrize(
    ("factory", "said", "next_step"),
    [
        ("no_such_module:f", "no module no_such_module", "PYTHONPATH"),
        ("my_deps:absent", "AttributeError", "python -c"),
        ("my_deps:broken", "RuntimeError", "python -c"),
        ("my_deps:nothing", "returned int", "AgentRunnerDeps"),
        ("my_deps", "deps_factory is 'my_deps'", "package.module:function"),
    ],
)
@pytest.mark.usefixtures("deps")
def test_a_function_that_can_not_be_used_is_refused_without_its_secrets(
    factory: str, said: str, next_step: str
) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        host_options(factory, {})
    assert next_step in refused.value.next_step
    assert "sk-secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "provider"),
    [
        ("ANTHROPIC_API_KEY", "anthropic"),
        ("OPENAI_API_KEY", "openai"),
        ("GEMINI_API_KEY", "gemini"),
        ("GOOGLE_API_KEY", "gemini"),
    ],
)
def test_a_key_in_the_environment_opens_its_provider(name: str, provider: str) -> None:
    options = host_options(None, {name: "sk-1"})
    agent = options["agent"]
    assert options["deps_factory"] == ENVIRONMENT_FACTORY
    found = agent.resolve_provider(provider)
    assert found is not None
    assert found.provider_id == provider
    assert agent.resolve_provider(provider) is found  # its connections are kept
    assert agent.key_for(provider) == "sk-1"
    assert agent.resolve_provider("elsewhere") is None
    assert "sk-1" not in repr(options)


def test_gemini_s_own_name_of_the_key_counts_first() -> None:
    agent = host_options(None, {"GOOGLE_API_KEY": "b", "GEMINI_API_KEY": "a"})["agent"]
    assert agent.key_for("gemini") == "a"


def test_without_a_key_it_says_which_there_could_be() -> None:
    assert host_options(None, {"ANTHROPIC_API_KEY": ""}) == {}
    error = missing_models_error({})
    for word in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"):
        assert word in str(error)
    assert "--deps" in error.next_step


def test_a_key_without_its_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ryecore.agent.environment, "find_spec", lambda _: None)
    assert host_options(None, {"OPENAI_API_KEY": "sk-1"}) == {}
    error = missing_models_error({"OPENAI_API_KEY": "sk-1"})
    assert isinstance(error, MissingExtra)
    assert "pip install 'ryecore[openai]'" in error.next_step
    assert "sk-1" not in str(error)


def test_a_detached_process_asks_its_own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert from_environment() == {}
    monkeypatch.setenv("OPENAI_API_KEY", "sk-2")
    assert call_factory(ENVIRONMENT_FACTORY)["agent"].key_for("openai") == "sk-2"
