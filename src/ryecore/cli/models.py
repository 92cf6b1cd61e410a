"""How a command gets models: from `--deps`, or from the keys in its environment."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import click

from ryecore.actions.settings import OpenOptions
from ryecore.errors import RyeError
from ryecore.rye import Rye

__all__ = ["deps_option", "missing_models", "models_of", "opened_with_models"]

deps_option = click.option(
    "--deps",
    metavar="MODULE:FUNCTION",
    help="What makes the models for threads; by default the keys in the environment open them.",
)


def models_of(deps: str | None, *, are_wanted: bool) -> OpenOptions:
    """The arguments of `Rye.open` that give it models; none where there are none.

    Args:
        deps: `module:function`; None for what the keys in the environment open.
        are_wanted: Whether the command asks models; else only those that `deps` names are made.

    Raises:
        ConfigError: What `deps` names can't be used.
    """
    if deps is None and not are_wanted:
        return {}
    from ryecore.host_factory import host_options  # noqa: PLC0415 - for threads alone

    return host_options(deps, os.environ)


@asynccontextmanager
async def opened_with_models(project_path: str, deps: str | None) -> AsyncIterator[Rye]:
    """Open a project for a command that asks models.

    Args:
        project_path: The project's folder.
        deps: `module:function`; None for what the keys in the environment open.

    Raises:
        RyeError: There are no models, or the project can't be opened.
    """
    options = models_of(deps, are_wanted=True)
    if not options:
        raise missing_models()
    async with Rye.open(project_path, **options) as rye:
        yield rye


def missing_models() -> RyeError:
    """The error that says why no model can be asked."""
    from ryecore.host_factory import missing_models_error  # noqa: PLC0415 - for threads alone

    return missing_models_error(os.environ)
