"""The environment of a tool's process: process < .env < primitive < runtime < tool.

Of a project's `.env`, only the variables count that a signed element names or the user allows.

Source: docs/design/chain.md#environment; decisions 19 and 20; ADR 021.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Literal

from attrs import field

from ryecore.chain.dotenv import Dotenv, DotenvReader
from ryecore.chain.elements import ChainElement
from ryecore.chain.interpreters import Interpreters
from ryecore.chain.model import Chain
from ryecore.chain.templating import ConfigTemplate
from ryecore.chain.trace import Trace
from ryecore.errors import ConfigError, InputError
from ryecore.frozen import frozen
from ryecore.items.keys import AuthorKeys
from ryecore.items.project_trust import allow_variables
from ryecore.items.spaces import Space
from ryecore.lillux.witness import Evidence
from ryecore.policy.environment import (
    InheritEnv,
    for_own_process,
    is_short_listed,
    is_variable_name,
    may_inherit,
    may_set_from_dotenv,
    without_project_entries,
)

__all__ = ["DotenvName", "EnvResolver", "Environment", "ProjectEnv", "apply_env_paths"]


@frozen
class Environment:
    """The environment of a chain's process, and the part of the project's `.env` in it.

    An MCP server gets `server_variables`: what every program gets, and what its signed item, or
    that of its tool, names.
    """

    variables: Mapping[str, str] = field(repr=False)
    dotenv: Dotenv = field(factory=Dotenv)
    server_variables: tuple[str, ...] = ()


class EnvResolver:
    """Resolves the environment of a chain."""

    def __init__(
        self,
        environ: Mapping[str, str],
        dotenv: DotenvReader,
        interpreters: Interpreters,
        inherit: InheritEnv = "safe",
    ) -> None:
        self._environ = environ
        self._dotenv = dotenv
        self._interpreters = interpreters
        if isinstance(inherit, str) and inherit not in ("safe", "all", "none"):
            raise ConfigError(
                f"inherit_env is {inherit!r}.",
                next_step='Pass "safe", "all", "none", or a collection of names.',
            )
        self._inherit = inherit

    def resolve(
        self, chain: Chain, context: Mapping[str, object], trace: Trace, evidence: Evidence
    ) -> Environment:
        """Resolve the environment of a chain's process, anchor paths not yet applied.

        The trace names what each element contributes, never a value. A process of ryecore's own
        gets the environment of its host, and narrows it for the tools that it starts.
        """
        if chain.is_own_process:
            return Environment(self._of_own_process(chain, context, trace, evidence))
        whole_path = self._environ.get("PATH", "")
        known, narrowed = self._narrow(self._environ, evidence)
        with trace.failing("resolve_env", contributed_by=".env"):
            dotenv = self._dotenv.read(chain, evidence)
        known |= dotenv.added
        narrow_path = known.get("PATH", "")
        resolved = self._inherited(known)
        withheld = len(known) - len(resolved)
        _record(trace, dotenv, resolved, withheld, narrowed)
        for_servers = set(filter(self._is_for_servers, resolved))
        for element in reversed(chain.all_elements):
            with trace.failing("resolve_env", contributed_by=element.item_id):
                path = known.get("PATH", "")
                # An interpreter is looked for on the whole of it, to say what is passed over.
                path = whole_path if path == narrow_path else path
                contributed, narrowed = self._narrow(
                    self._contribute(element, chain, known, path, context, trace, evidence),
                    evidence,
                )
            known |= contributed
            resolved |= contributed
            if element not in chain.elements[-2:]:
                for_servers |= contributed.keys()
            if contributed:
                facts = {"narrowed": narrowed} if narrowed else {}
                trace.add(
                    "resolve_env",
                    contributed_by=element.item_id,
                    keys=sorted(contributed),
                    **facts,
                )
        for_servers |= set(filter(is_short_listed, resolved))
        return Environment(resolved, dotenv, tuple(sorted(for_servers)))

    def names(self) -> frozenset[str]:
        """Return the variables of the process and the `.env` that a signed element may ask for."""
        return self._dotenv.settable() | self._environ.keys()

    def _of_own_process(
        self, chain: Chain, context: Mapping[str, object], trace: Trace, evidence: Evidence
    ) -> dict[str, str]:
        known = for_own_process(self._environ)
        for element in reversed(chain.all_elements):
            with trace.failing("resolve_env", contributed_by=element.item_id):
                path = known.get("PATH", "")
                known |= self._contribute(element, chain, known, path, context, trace, evidence)
        trace.add("resolve_env", contributed_by="process", own_process=True)
        return known

    def is_project_trusted(self, evidence: Evidence) -> bool:
        """Return whether programs inside the project may run."""
        return self._interpreters.is_project_trusted(evidence)

    def may_search(self, folder: str, evidence: Evidence) -> bool:
        """Return whether a tool may find programs in a folder: not inside an untrusted project."""
        return self._interpreters.may_run(folder, evidence)

    def _inherited(self, known: Mapping[str, str]) -> dict[str, str]:
        return {
            name: value for name, value in known.items() if may_inherit(name, self._inherit, value)
        }

    def _is_for_servers(self, name: str) -> bool:
        if is_short_listed(name) or self._inherit == "all":
            return True
        return not isinstance(self._inherit, str) and name in self._inherit

    def _narrow(
        self, environ: Mapping[str, str], evidence: Evidence
    ) -> tuple[dict[str, str], list[str]]:
        """Remove an untrusted project's folders, and relative ones, from search paths."""
        return without_project_entries(
            environ, lambda folder: self._interpreters.may_run(folder, evidence)
        )

    def _contribute(
        self,
        element: ChainElement,
        chain: Chain,
        known: Mapping[str, str],
        path: str,
        context: Mapping[str, object],
        trace: Trace,
        evidence: Evidence,
    ) -> dict[str, str]:
        contributed: dict[str, str] = {}
        wanted = element.spec.env.interpreter
        if wanted is not None:
            found = self._interpreters.find(
                wanted,
                environ=self._environ,
                child_env=self._inherited(known),
                path=path,
                render=lambda text: ConfigTemplate(known, context).text(text),
                for_system_tool=chain.head.space.startswith("system"),
                evidence=evidence,
            )
            trace.add(
                "find_interpreter",
                item_id=element.item_id,
                var=wanted.var,
                path=found.path,
                how=found.how,
                passed_over=list(found.passed_over),
            )
            contributed[wanted.var] = found.path
        for name, value in element.spec.env.env.items():
            template = ConfigTemplate({**known, **contributed}, context)
            text = template.text(value)
            if template.unknown:
                trace.add("template", item_id=element.item_id, unknown=sorted(template.unknown))
            contributed[name] = text
        return contributed


def _record(
    trace: Trace, dotenv: Dotenv, resolved: Mapping[str, str], withheld: int, narrowed: list[str]
) -> None:
    """Record in the trace which names come from the `.env` and from the process."""
    dropped = sorted(dotenv.dropped)
    if dotenv.added or dropped or dotenv.leads_out:
        facts: dict[str, object] = {"never": list(dotenv.never)} if dotenv.never else {}
        if dotenv.leads_out:
            facts["not_read"] = "a link that leaves the project"
        if dotenv.next_step:
            facts["next_step"] = dotenv.next_step
        keys = sorted(dotenv.added.keys() & resolved.keys())
        trace.add("resolve_env", contributed_by=".env", keys=keys, dropped=dropped, **facts)
    if withheld or narrowed:
        trace.add("resolve_env", contributed_by="process", withheld=withheld, narrowed=narrowed)


def apply_env_paths(
    env: Mapping[str, str],
    changes: Mapping[str, tuple[Iterable[str], Iterable[str]]],
    render: Callable[[str], str | None],
) -> dict[str, str]:
    """Put folders before and behind the value of variables such as PYTHONPATH, each folder once.

    A template that names something that this run doesn't have renders as None, and is left out.
    """
    changed = dict(env)
    for name, (before, behind) in changes.items():
        parts = [
            *map(render, before),
            *changed.get(name, "").split(":"),
            *map(render, behind),
        ]
        changed[name] = ":".join(dict.fromkeys(part for part in parts if part))
        if not changed[name]:
            del changed[name]
    return changed


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
    """The names that a project's `.env` may set: `rye.env`."""

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
        """Return whether the `.env` is a link that leaves the project, and so is not read."""
        return self._dotenv.leads_out()

    def names(self) -> tuple[DotenvName, ...]:
        """Return the names in the project's `.env`, and allowed names that are missing there.

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
