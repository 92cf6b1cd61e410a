"""The settings of an open Rye, as data."""

import re
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict

from attrs import field

from ryecore.chain.config import HostConfig
from ryecore.errors import ConfigError
from ryecore.frozen import frozen
from ryecore.items.spaces import Space
from ryecore.lillux.keys import PublicKey
from ryecore.policy.environment import InheritEnv, may_set_from_dotenv

if TYPE_CHECKING:
    from ryecore.agent.deps import AgentRunnerDeps
    from ryecore.policy.permissions import Approve
    from ryecore.state.model import Durability

__all__ = [
    "WARM_MEMORY_MIB",
    "OpenOptions",
    "Settings",
    "check_allowed",
    "check_durability",
    "check_factory",
    "check_warm_memory",
    "key_pem",
]

WARM_MEMORY_MIB: Final = 256
"""The default memory bound of the templates of warm starts, in MiB."""

_MAX_WARM_MEMORY_MIB: Final = 1024 * 1024

_FACTORY: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


class OpenOptions(TypedDict, total=False):
    """The options of `Rye.open`; its documentation describes each."""

    user_space: str | PathLike[str] | None
    system_spaces: Iterable[Space] | None
    environ: Mapping[str, str] | None
    inherit_env: InheritEnv
    allow_env: Iterable[str]
    trusted_keys: Iterable[PublicKey | str | bytes]
    trust_project_interpreters: bool
    config: HostConfig | None
    cache_dir: str | PathLike[str] | None
    approve: "Approve | None"
    agent: "AgentRunnerDeps | None"
    deps_factory: str | None
    durability: "Durability"
    warm_memory_mib: int
    recover: bool


@frozen
class Settings:
    """The settings of an open Rye, with which another process can open the same one.

    They are the options of `Rye.open` in a form that can be written: trusted keys are PEM texts.
    """

    project_path: str
    user_space: str
    system_spaces: tuple[Space, ...]
    inherit_env: InheritEnv
    trusted_keys: tuple[str, ...]
    trust_project_interpreters: bool
    config: Mapping[str, Mapping[str, Any]] = field(repr=False)
    cache_dir: str
    durability: "Durability"
    deps_factory: str | None
    warm_memory_mib: int = WARM_MEMORY_MIB
    allow_env: tuple[str, ...] = ()

    @property
    def user_root(self) -> Path:
        """The user's `.ai` folder."""
        return Path(self.user_space) / ".ai"

    def to_options(self) -> OpenOptions:
        """Return the options with which `Rye.open` opens the same project."""
        return {
            "user_space": self.user_space,
            "system_spaces": self.system_spaces,
            "inherit_env": self.inherit_env,
            "trusted_keys": self.trusted_keys,
            "trust_project_interpreters": self.trust_project_interpreters,
            "config": self.config,
            "cache_dir": self.cache_dir,
            "durability": self.durability,
            "deps_factory": self.deps_factory,
            "warm_memory_mib": self.warm_memory_mib,
            "allow_env": self.allow_env,
        }


def check_factory(deps_factory: str | None) -> str | None:
    """Check the name of a factory, `package.module:function`, and return it."""
    if deps_factory is None or _FACTORY.fullmatch(deps_factory):
        return deps_factory
    raise ConfigError(
        f"deps_factory is {deps_factory!r}.", next_step="Write package.module:function."
    )


def check_durability(durability: "Durability") -> "Durability":
    """Check a durability, and return it."""
    if durability in ("process", "machine"):
        return durability
    raise ConfigError(f"durability is {durability!r}.", next_step='Write "process" or "machine".')


def check_warm_memory(warm_memory_mib: int) -> int:
    """Check a bound of memory, in MiB, and return it."""
    if type(warm_memory_mib) is int and 0 <= warm_memory_mib <= _MAX_WARM_MEMORY_MIB:
        return warm_memory_mib
    raise ConfigError(
        f"warm_memory_mib is {warm_memory_mib!r}.",
        next_step=f"Write a whole number of MiB, from 0 (every process starts cold) to "
        f"{_MAX_WARM_MEMORY_MIB}.",
    )


def check_allowed(names: Iterable[str]) -> tuple[str, ...]:
    """Check names of a `.env` that are to be allowed, and return them sorted."""
    allowed = () if isinstance(names, str) else tuple(sorted(set(names)))
    refused = [name for name in allowed if not may_set_from_dotenv(name)]
    if refused:
        raise ConfigError(
            f"{refused[0]!r} can't be allowed: it steers programs, so no project's .env sets it.",
            next_step="Set it in the environment of ryecore itself, if you mean it.",
        )
    if isinstance(names, str):
        raise ConfigError(f"allow_env is {names!r}.", next_step="Pass a collection of names.")
    return allowed


def key_pem(key: PublicKey | str | bytes) -> str:
    """Return a public key, or its PEM, as PEM."""
    return (key if isinstance(key, PublicKey) else PublicKey.from_pem(key)).pem.decode()
