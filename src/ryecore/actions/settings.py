"""The settings of an open Rye, as data."""

import re
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypedDict

from attrs import evolve, field

from ryecore.chain.config import HostConfig
from ryecore.errors import ConfigError
from ryecore.frozen import frozen
from ryecore.items.paths import existing_folder, folder_to_be, user_space_in
from ryecore.items.spaces import Space, discover_bundles
from ryecore.lillux.keys import PublicKey
from ryecore.policy.environment import InheritEnv, may_set_from_dotenv
from ryecore.state.object_places import IN_FOLDER, check_address, is_on_postgres

if TYPE_CHECKING:
    from ryecore.agent.deps import AgentRunnerDeps
    from ryecore.agent.telemetry import Observer
    from ryecore.audit import Audit
    from ryecore.policy.authorization import Authorize
    from ryecore.policy.permissions import Approve
    from ryecore.policy.reports import Ask
    from ryecore.state.model import Durability

__all__ = [
    "AUDIT",
    "OBJECTS",
    "STATE",
    "WARM_MEMORY_MIB",
    "OpenOptions",
    "Settings",
    "check_factory",
    "check_objects",
    "check_options",
    "check_state",
    "check_warm_memory",
    "missing_audit",
]

WARM_MEMORY_MIB: Final = 256
"""The default memory bound of the templates of warm starts, in MiB."""

_MAX_WARM_MEMORY_MIB: Final = 1024 * 1024

AUDIT: Final = "RYE_AUDIT"
"""The variable that names the file of the audit log."""

STATE: Final = "RYE_STATE"
"""The variable that names the address of the state."""

OBJECTS: Final = "RYE_OBJECTS"
"""The variable that names the address of the objects."""

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
    ask: "Ask | None"
    authorize: "Authorize | None"
    agent: "AgentRunnerDeps | None"
    deps_factory: str | None
    durability: "Durability"
    warm_memory_mib: int
    recover: bool
    observer: "Observer | None"
    audit: "str | PathLike[str] | Audit | None"
    state: str | None
    objects: str | None


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


@frozen
class Settings:
    """The settings of an open Rye, with which another process can open the same one.

    They are the options of `Rye.open` in a form that can be written: trusted keys are PEM texts.
    `audit` is the path of the audit log; where it is a function, another process `must_audit` with
    one of its own.
    """

    project_path: str
    user_space: str
    system_spaces: tuple[Space, ...]
    inherit_env: InheritEnv
    trusted_keys: tuple[str, ...]
    trust_project_interpreters: bool
    config: Mapping[str, Mapping[str, Any]] = field(repr=False)
    cache_dir: str
    durability: "Durability" = field(converter=check_durability)
    deps_factory: str | None = field(converter=check_factory)
    warm_memory_mib: int = field(default=WARM_MEMORY_MIB, converter=check_warm_memory)
    allow_env: tuple[str, ...] = field(default=(), converter=check_allowed)
    audit: str | None = None
    must_audit: bool = False
    state: str | None = field(default=None, repr=False)  # it may hold a password
    objects: str | None = field(default=None, repr=False)

    @property
    def user_root(self) -> Path:
        """The user's `.ai` folder."""
        return Path(self.user_space) / ".ai"

    @property
    def without_passwords(self) -> Self:
        """The same settings without the passwords of addresses, where others may read them."""
        state, objects = map(_without_password, (self.state, self.objects))
        return evolve(self, state=state, objects=objects)

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
            "audit": self.audit,
            "state": self.state,
            "objects": self.objects or IN_FOLDER,
        }


def check_options(
    project_path: str | PathLike[str],
    environ: Mapping[str, str],
    *,
    user_space: str | PathLike[str] | None,
    system_spaces: Iterable[Space] | None,
    inherit_env: InheritEnv,
    allow_env: Iterable[str],
    trusted_keys: Iterable[PublicKey | str | bytes],
    trust_project_interpreters: bool,
    config: HostConfig | None,
    cache_dir: str | PathLike[str] | None,
    deps_factory: str | None,
    durability: "Durability",
    warm_memory_mib: int,
    audit: "str | PathLike[str] | Audit | None",
    state: str | None,
    objects: str | None,
) -> Settings:
    """Check the options of `Rye.open`, and return them as settings.

    Raises:
        ConfigError: A path, a bundle or another option can't be used.
    """
    user = user_space_in(environ, user_space)
    address = check_state(state, environ)
    cache = folder_to_be(cache_dir, "cache") if cache_dir else user / ".ai/cache/sealed"
    return Settings(
        project_path=str(existing_folder(project_path)),
        user_space=str(user),
        system_spaces=discover_bundles() if system_spaces is None else tuple(system_spaces),
        inherit_env=inherit_env,
        allow_env=allow_env,
        trusted_keys=tuple(map(_key_pem, trusted_keys)),
        trust_project_interpreters=trust_project_interpreters,
        config=config or {},
        cache_dir=str(cache),
        durability=durability,
        deps_factory=deps_factory,
        warm_memory_mib=warm_memory_mib,
        audit=_check_audit(audit, environ),
        must_audit=callable(audit),
        state=address,
        objects=check_objects(objects, address, environ),
    )


def _check_audit(
    audit: "str | PathLike[str] | Audit | None", environ: Mapping[str, str]
) -> str | None:
    """Return the path of the audit log's file, by default the one of `RYE_AUDIT`.

    None where there is no audit log, and where it is a function.
    """
    named = audit or environ.get(AUDIT)
    if not named or callable(named):
        return None
    if not isinstance(named, str | PathLike):
        raise ConfigError(
            f"audit is {named!r}.", next_step="Pass a path, or a function that takes a record."
        )
    from ryecore.audit import audit_path  # noqa: PLC0415 - only with an audit log

    return audit_path(named)


def check_state(state: str | None, environ: Mapping[str, str]) -> str | None:
    """Return the address of the state, by default that of `RYE_STATE`; None for the project's."""
    found = state or environ.get(STATE)
    if not found:
        return None
    if not isinstance(found, str):
        raise ConfigError("state isn't text.", next_step="Pass the address of a server.")
    from ryecore.state.postgres.address import PostgresAddress  # noqa: PLC0415 - only with one

    PostgresAddress.parse(found)
    return found


def check_objects(objects: str | None, state: str | None, environ: Mapping[str, str]) -> str | None:
    """Return the address of the objects: the given one, that of `RYE_OBJECTS`, or the state's.

    None where they are in the project's folder.
    """
    found = objects or environ.get(OBJECTS)
    if not found:
        return state
    if not isinstance(found, str):
        raise ConfigError("objects isn't text.", next_step="Pass the address of a store.")
    return check_address(found, environ)


def _without_password(address: str | None) -> str | None:
    if address is None or not is_on_postgres(address):
        return address
    from ryecore.state.postgres.address import PostgresAddress  # noqa: PLC0415 - only with one

    return PostgresAddress.parse(address).without_password


def missing_audit() -> ConfigError:
    """Return the error that the audit log can't be written by another process."""
    return ConfigError(
        "The audit log is a function of the process that began this; another one has to run it.",
        next_step='Pass a file, Rye.open(audit="PATH"), or let the deps_factory return '
        '{"audit": ...}.',
    )


def _key_pem(key: PublicKey | str | bytes) -> str:
    """Return a public key, or its PEM, as PEM."""
    return (key if isinstance(key, PublicKey) else PublicKey.from_pem(key)).pem.decode()
