"""The names of a project's `.env`, and which of them the user allows.

Source: decision 19; ADR 021.
"""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Literal

from attrs import frozen

from ryecore.chain.dotenv import DotenvReader
from ryecore.errors import InputError
from ryecore.items.keys import AuthorKeys
from ryecore.items.project_trust import allow_variables
from ryecore.items.spaces import Space
from ryecore.lillux.witness import Evidence
from ryecore.policy.dotenv import is_variable_name, may_set_from_dotenv

__all__ = ["DotenvName", "ProjectEnv"]


DotenvState = Literal["allowed", "asked", "never", "set", "missing", "no_value"]


@frozen
class DotenvName:
    """One name of a project's `.env`, or one that is allowed and missing there.

    Attributes:
        name: The name.
        state: `allowed` for every tool; `asked`, which counts for tools whose signed elements ask
            for it; `never`; `set`, where the environment of ryecore has it already and wins;
            `missing`, where it is allowed and the `.env` doesn't have it; or `no_value`, where
            its line has no `=`, so that nothing is set.
        needs_naming: Whether only tools that name it get it, because it looks like a credential.
    """

    name: str
    state: DotenvState
    needs_naming: bool = False


class ProjectEnv:
    """The names that a project's `.env` may set: `rye.env`.

    Args:
        project: The project's folder.
        user: The user's space, which keeps what was allowed.
        keys: The user's keys, which sign it.
        dotenv: Reads the `.env`.
        allowed: Returns the names that the user allowed.
    """

    def __init__(
        self,
        project: Path,
        user: Space,
        keys: AuthorKeys,
        dotenv: DotenvReader,
        allowed: Callable[[Evidence], Collection[str]],
    ) -> None:
        self._project = project
        self._user = user
        self._keys = keys
        self._dotenv = dotenv
        self._allowed = allowed

    @property
    def leads_out(self) -> bool:
        """Whether the `.env` is a link that leaves the project, and so is not read."""
        return self._dotenv.leads_out()

    def names(self) -> tuple[DotenvName, ...]:
        """Return the names of the project's `.env`, and those that are allowed and missing there.

        Raises:
            ConfigError: It can't be read.
        """
        found = self._dotenv.values(Evidence())
        allowed = self._dotenv.allowed(Evidence())
        return tuple(
            DotenvName(
                name,
                self._state(name, found[name], allowed) if name in found else "missing",
                self._dotenv.needs_naming(name, found.get(name)),
            )
            for name in sorted(found.keys() | allowed)
        )

    def allow(self, *names: str) -> Path:
        """Have names of this project's `.env` set for every tool from now on.

        A name that looks like a credential still reaches only tools whose signed elements ask for
        it.

        Returns:
            The signed file in user space that says so; removing it takes the permission back.

        Raises:
            InputError: No name was passed, or one that isn't a variable's or that no `.env` may
                set.
            SigningError: The author has no key to sign that with.
        """
        if not names:
            raise InputError("No name was passed.", next_step="rye env allow NAME")
        for name in names:
            _check_name(name)
            if not may_set_from_dotenv(name):
                raise InputError(
                    f"{name!r} can't be allowed: it steers programs, so no project's .env sets it.",
                    next_step="Set it in the environment of ryecore itself, if you mean it.",
                )
        return self._write({*self._allowed(Evidence()), *names})

    def forget(self, *names: str) -> Path:
        """Take back what was allowed.

        Raises:
            InputError: A name was not allowed.
            SigningError: The user has no key to sign that with.
        """
        allowed = set(self._allowed(Evidence()))
        for name in names:
            _check_name(name)
            if name not in allowed:
                raise InputError(
                    f"{name!r} was not allowed for {self._project}.",
                    next_step=f"Allowed are: {', '.join(sorted(allowed)) or 'none'}.",
                )
        return self._write(allowed - set(names))

    def _state(self, name: str, value: str | None, allowed: Collection[str]) -> DotenvState:
        if not may_set_from_dotenv(name):
            return "never"
        if name in self._dotenv.environ:
            return "set"
        if value is None:
            return "no_value"
        return "allowed" if name in allowed else "asked"

    def _write(self, names: Collection[str]) -> Path:
        return allow_variables(self._user, self._project, names, self._keys.load())


def _check_name(name: str) -> None:
    if is_variable_name(name):
        return
    name, equals, _ = name.partition("=")  # what stands behind it may be a secret
    if equals and is_variable_name(name):
        raise InputError(
            f"{name}=… is a name with a value, and only names are allowed.",
            next_step=f"Write the value into the project's .env, and here the name alone: {name}",
        )
    raise InputError(
        f"{name!r} is not the name of a variable.",
        next_step="A name holds letters, digits and '_' and doesn't begin with a digit, like "
        "GREETING.",
    )
