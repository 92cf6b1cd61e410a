"""The host factory: a function or API keys that give a process its models for the Rye it opens.

The command line, the MCP server, the documented calls and worker processes use it. A key is read
from the environment each time that a model is called, and is stored nowhere.

Source: docs/design/agent-node.md#in-another-process;
docs/design/agent-node.md#what-the-host-injects.
"""

import os
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, cast

from ryecore.actions.settings import OpenOptions, check_factory
from ryecore.errors import ConfigError, MissingExtra, RyeError
from ryecore.frozen import frozen
from ryecore.state.waiting import is_event_loop

if TYPE_CHECKING:
    from ryecore.agent.deps import AgentRunnerDeps
    from ryecore.llm.provider import LlmProvider

__all__ = [
    "ENVIRONMENT_FACTORY",
    "call_factory",
    "from_environment",
    "host_options",
    "missing_models_error",
]

ENVIRONMENT_FACTORY: Final = "ryecore.host_factory:from_environment"
"""The factory that makes models from the keys in the environment, also in worker processes."""


@frozen
class _Vendor:
    """A provider whose key may stand in the environment.

    `provider_id` is the part of a model's name in front of the slash, `package` the SDK, which its
    extra installs, `home` its adapter as `module:class`. The first of `keys` that is set counts.
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


def host_options(deps_factory: str | None, environ: Mapping[str, str]) -> OpenOptions:
    """Return the arguments of `Rye.open` for models; empty without a factory and a key.

    `deps_factory` is `package.module:function`; None means the environment's keys. The arguments
    include the factory that gives worker processes the same models.
    """
    if deps_factory is not None:
        return {**call_factory(deps_factory), "deps_factory": deps_factory}
    agent = _from_keys(environ)
    return {} if agent is None else {"agent": agent, "deps_factory": ENVIRONMENT_FACTORY}


def call_factory(deps_factory: str) -> OpenOptions:
    """Call a factory for the arguments of `Rye.open` that can't be sent to another process.

    `deps_factory` is `package.module:function`, called without arguments, in a worker process while
    its event loop runs. It returns `AgentRunnerDeps`, or a mapping of arguments such as `agent` and
    `approve`.
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
            "not searched.",
        ) from problem
    except Exception as problem:
        why = f": the module {module} has no {name}" if is_missing else ""
        next_step = (
            "See that it can be imported and called in a fresh process: "
            f"python -c 'import {module}; {module}.{name}()'"
        )
        if isinstance(problem, RuntimeError) and is_event_loop():
            next_step += (
                ". Here it is called while an event loop runs, so it can't call asyncio.run: let a "
                "provider await what it needs at its first call."
            )
        raise ConfigError(
            f"{deps_factory} failed: {type(problem).__name__}{why}.", next_step=next_step
        ) from problem
    if isinstance(made, Mapping):
        unknown = [str(name) for name in made if name not in OpenOptions.__annotations__]
        if unknown:
            raise ConfigError(
                f"{deps_factory} returned {unknown[0]!r}, which is not an option of Rye.open.",
                next_step=f"Return only: {', '.join(sorted(OpenOptions.__annotations__))}.",
            )
        return cast("OpenOptions", dict(made))
    from ryecore.agent.deps import AgentRunnerDeps  # noqa: PLC0415 - only where models are called

    if not isinstance(made, AgentRunnerDeps):
        raise ConfigError(
            f"{deps_factory} returned {type(made).__name__}, not a mapping.",
            next_step='Return AgentRunnerDeps, or arguments of Rye.open such as {"agent": deps}.',
        )
    return {"agent": made}


def from_environment() -> OpenOptions:
    """Return the arguments of `Rye.open` that this process's keys allow; workers call it."""
    agent = _from_keys(os.environ)
    return {} if agent is None else {"agent": agent}


def missing_models_error(environ: Mapping[str, str]) -> RyeError:
    """Return the error that says why there is no model, and what to do."""
    for vendor in _VENDORS:
        named = next((name for name in vendor.keys if environ.get(name)), None)
        if named is not None and not _is_installed(vendor.package):
            extra = vendor.provider_id
            return MissingExtra(
                f"{named} is set, but the extra {extra} is not installed.",
                next_step=f"pip install 'ryecore[{extra}]', or pass --deps module:function.",
                extra=extra,
            )
    return ConfigError(
        "A thread needs a model, but no API key is set: none of "
        f"{', '.join(vendor.keys[0] for vendor in _VENDORS)} is set.",
        next_step="Set one and install its extra (such as: pip install 'ryecore[anthropic]'), or "
        "pass --deps module:function, which makes AgentRunnerDeps.",
    )


def _from_keys(environ: Mapping[str, str]) -> "AgentRunnerDeps | None":
    from ryecore.agent.deps import AgentRunnerDeps  # noqa: PLC0415 - only where models are called

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
