"""The environment of a tool's process: process < .env < primitive < runtime < tool.

Source: docs/design/chain.md#environment; decisions 19 and 20.
"""

from collections.abc import Callable, Iterable, Mapping

from attrs import field, frozen

from ryecore.chain.dotenv import Dotenv, DotenvReader
from ryecore.chain.interpreters import Interpreters
from ryecore.chain.model import Chain, ChainElement
from ryecore.chain.templating import Template
from ryecore.chain.trace import Trace
from ryecore.errors import ConfigError
from ryecore.lillux.witness import Evidence
from ryecore.policy.inheritance import (
    InheritEnv,
    for_own_process,
    is_short_listed,
    may_inherit,
    without_project_entries,
)

__all__ = ["EnvResolver", "Environment", "apply_env_paths"]


@frozen
class Environment:
    """The environment of a chain's process.

    Attributes:
        variables: All of its variables.
        dotenv: The part of the project's `.env` in it.
        server_variables: The names that an MCP server gets: what every program gets, and what its
            signed item, or that of its tool, names.
    """

    variables: Mapping[str, str] = field(repr=False)
    dotenv: Dotenv = field(factory=Dotenv)
    server_variables: tuple[str, ...] = ()


class EnvResolver:
    """Resolves the environment of a chain.

    Args:
        environ: The process environment, as the host passed it.
        dotenv: Reads the project's `.env`.
        interpreters: Finds interpreters.
        inherit: What a tool inherits.
    """

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
        """Resolve the environment of a chain's process.

        Args:
            chain: The chain.
            context: Values for `{name}` in signed strings.
            trace: Told the names that each element contributes, never a value.
            evidence: Told what was seen on disk.

        Returns:
            The environment, anchor paths not yet applied. A process of ryecore's own gets that of
            its host, and narrows it for the tools that it starts.

        Raises:
            InterpreterNotFound: An element needs an interpreter that isn't there.
            ConfigError: The `.env` can't be read.
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
        """Return the variables that a signed element may ask for: the process's and the `.env`'s.

        Raises:
            ConfigError: The `.env` can't be read.
        """
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
        """Whether programs inside the project may run."""
        return self._interpreters.is_project_trusted(evidence)

    def may_search(self, folder: str, evidence: Evidence) -> bool:
        """Whether a tool may find programs in a folder: it lies outside an untrusted project."""
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
        wish = element.spec.env.interpreter
        if wish is not None:
            found = self._interpreters.find(
                wish,
                environ=self._environ,
                child_env=self._inherited(known),
                path=path,
                render=lambda text: Template(known, context).text(text),
                for_system_tool=chain.head.space.startswith("system"),
                evidence=evidence,
            )
            trace.add(
                "find_interpreter",
                item_id=element.item_id,
                var=wish.var,
                path=found.path,
                how=found.how,
                passed_over=list(found.passed_over),
            )
            contributed[wish.var] = found.path
        for name, value in element.spec.env.env.items():
            template = Template({**known, **contributed}, context)
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
    """Put folders before and behind the value of variables such as PYTHONPATH.

    Args:
        env: The environment.
        changes: Per variable, the templates to put before and behind.
        render: Renders a template; None where it names something that this run doesn't have.

    Returns:
        The environment with these changes, each folder once.
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
