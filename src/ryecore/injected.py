"""The models of a process that opens its own Rye, made by a function or from API keys.

The command line, the MCP server, the documented calls and detached processes take it from here. A
key is read from the environment each time that a model is asked, and is kept nowhere.

Source: docs/design/agent-node.md#in-another-process;
docs/design/agent-node.md#what-the-host-injects.
"""

import os
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from ryecore.actions.settings import check_factory
from ryecore.errors import ConfigError, MissingExtra, RyeError

if TYPE_CHECKING:
    from ryecore.agent.deps import AgentRunnerDeps
    from ryecore.llm.provider import LlmProvider

__all__ = ["ENVIRONMENT", "from_environment", "injected", "no_models", "rebuilt"]

ENVIRONMENT: Final = "ryecore.injected:from_environment"
"""The factory that stands for the keys in the environment, in detached processes too."""


@frozen
class _Vendor:
    """A provider that can be had from the environment.

    Attributes:
        provider_id: What models are called by, in front of the slash.
        package: The SDK that its extra installs.
        home: Its adapter, as `module:class`.
        keys: The variables that may hold its key; the first one that does counts.
    """

    provider_id: str
    package: str
    home: str
    keys: tuple[str, ...]


_VENDORS: Final = (
    _Vendor(
        "anthropic",
        "anthropic",
        "ryecore.providers.anthropic:AnthropicProvider",
        ("ANTHROPIC_API_KEY",),
    ),
    _Vendor("openai", "openai", "ryecore.providers.openai:OpenAIProvider", ("OPENAI_API_KEY",)),
    _Vendor(
        "gemini",
        "google.genai",
        "ryecore.providers.gemini:GeminiProvider",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    ),
)


def injected(deps_factory: str | None, environ: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of `Rye.open` that give a Rye its models.

    Args:
        deps_factory: `package.module:function`; None for what the environment's keys open.
        environ: The environment.

    Returns:
        The arguments, with the factory that gives a detached process the same; empty where there
        is neither a factory nor a key.

    Raises:
        ConfigError: The factory can't be imported or called, or makes something else.
    """
    if deps_factory is not None:
        return {**rebuilt(deps_factory), "deps_factory": deps_factory}
    agent = _from_keys(environ)
    return {} if agent is None else {"agent": agent, "deps_factory": ENVIRONMENT}


def rebuilt(deps_factory: str) -> dict[str, Any]:
    """What a factory injects: arguments of `Rye.open` that can't travel between processes.

    Args:
        deps_factory: `package.module:function`. It is called without arguments, and returns such
            arguments by name, or `AgentRunnerDeps` alone.

    Raises:
        ConfigError: It can't be imported or called, or makes something else.
    """
    module, _, name = (check_factory(deps_factory) or "").partition(":")
    is_missing = False
    try:
        imported = import_module(module)
        is_missing = not hasattr(imported, name)
        made = getattr(imported, name)()
    except RyeError:
        raise
    except ModuleNotFoundError as problem:
        raise ConfigError(
            f"{deps_factory} can't be imported: there is no module {problem.name}.",
            next_step="Install it, or put its folder into PYTHONPATH: the project's own folder is "
            "not looked into.",
        ) from problem
    except Exception as problem:
        why = f": the module {module} has no {name}" if is_missing else ""
        raise ConfigError(
            f"{deps_factory} failed: {type(problem).__name__}{why}.",
            next_step="See that it can be imported and called in a fresh process: "
            f"python -c 'import {module}; {module}.{name}()'",
        ) from problem
    if isinstance(made, Mapping):
        return dict(made)
    from ryecore.agent.deps import AgentRunnerDeps  # noqa: PLC0415 - for what asks models alone

    if not isinstance(made, AgentRunnerDeps):
        raise ConfigError(
            f"{deps_factory} made {type(made).__name__}, no mapping.",
            next_step='Return AgentRunnerDeps, or arguments of Rye.open such as {"agent": deps}.',
        )
    return {"agent": made}


def from_environment() -> dict[str, Any]:
    """What the keys in this process's environment open; a detached process calls it."""
    agent = _from_keys(os.environ)
    return {} if agent is None else {"agent": agent}


def no_models(environ: Mapping[str, str]) -> RyeError:
    """The error that says why no model can be asked, and what to do."""
    for vendor in _VENDORS:
        named = next((name for name in vendor.keys if environ.get(name)), None)
        if named is not None and not _is_installed(vendor.package):
            extra = vendor.provider_id
            return MissingExtra(
                f"{named} is set, and the extra {extra}, which it is for, is not installed.",
                next_step=f"pip install 'ryecore[{extra}]', or pass --deps module:function.",
                extra=extra,
            )
    return ConfigError(
        "A thread needs a model, and there is no key for any: none of "
        f"{', '.join(vendor.keys[0] for vendor in _VENDORS)} is set.",
        next_step="Set one and install its extra (such as: pip install 'ryecore[anthropic]'), or "
        "pass --deps module:function, which makes AgentRunnerDeps.",
    )


def _from_keys(environ: Mapping[str, str]) -> "AgentRunnerDeps | None":
    from ryecore.agent.deps import AgentRunnerDeps  # noqa: PLC0415 - for what asks models alone

    vendors = {
        vendor.provider_id: vendor
        for vendor in _VENDORS
        if any(environ.get(name) for name in vendor.keys) and _is_installed(vendor.package)
    }
    if not vendors:
        return None
    made: dict[str, LlmProvider] = {}

    def resolve(provider_id: str) -> "LlmProvider | None":
        vendor = vendors.get(provider_id)
        if vendor is not None and provider_id not in made:  # an SDK is slow to import
            module, _, name = vendor.home.partition(":")
            made[provider_id] = getattr(import_module(module), name)()
        return made.get(provider_id)

    def key_for(provider_id: str) -> str:
        names = vendors[provider_id].keys if provider_id in vendors else ()
        return next((environ[name] for name in names if environ.get(name)), "")

    return AgentRunnerDeps(resolve_provider=resolve, key_for=key_for)


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # of the package around it
        return False
