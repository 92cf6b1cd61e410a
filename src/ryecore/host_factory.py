"""The host factory: a function or API keys that give a process its models for the Rye it opens.

The command line, the MCP server, the documented calls and worker processes use it.

Source: docs/design/agent-node.md#in-another-process;
docs/design/agent-node.md#what-the-host-injects.
"""

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Final, cast

from ryecore.actions.settings import OpenOptions, check_factory
from ryecore.agent.environment import EnvironmentProviders
from ryecore.errors import ConfigError, RyeError
from ryecore.state.waiting import is_event_loop

__all__ = [
    "ENVIRONMENT_FACTORY",
    "call_factory",
    "from_environment",
    "host_options",
]

ENVIRONMENT_FACTORY: Final = "ryecore.host_factory:from_environment"
"""The factory that makes models from the keys in the environment, also in worker processes."""


def host_options(deps_factory: str | None, environ: Mapping[str, str]) -> OpenOptions:
    """Return the arguments of `Rye.open` for models; empty without a factory and a key.

    `deps_factory` is `package.module:function`; None means the environment's keys. The arguments
    include the factory that gives worker processes the same models.
    """
    if deps_factory is not None:
        return {**call_factory(deps_factory), "deps_factory": deps_factory}
    options = _from_keys(environ)
    return {**options, "deps_factory": ENVIRONMENT_FACTORY} if options else {}


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
    return _from_keys(os.environ)


def _from_keys(environ: Mapping[str, str]) -> OpenOptions:
    if not EnvironmentProviders(environ):
        return {}
    from ryecore.agent.deps import AgentRunnerDeps  # noqa: PLC0415 - only where models are called

    return {"agent": AgentRunnerDeps.from_env(environ)}
