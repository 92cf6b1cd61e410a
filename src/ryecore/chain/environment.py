"""The environment of a tool's process: process < .env < primitive < runtime < tool.

Source: seed 000, "Environment Resolution"; decisions 19 and 20.
"""

import io
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Final, Literal

from ryecore.chain.interpreters import Interpreters
from ryecore.chain.model import Chain, ChainElement
from ryecore.chain.templating import Template
from ryecore.chain.trace import Trace
from ryecore.errors import ConfigError
from ryecore.items.evidence import Evidence
from ryecore.lillux.digests import read_digest
from ryecore.policy.credentials import looks_like_credential

__all__ = ["EnvResolver", "InheritEnv", "may_inherit", "may_set_from_dotenv"]

InheritEnv = Literal["safe", "all", "none"] | Collection[str]
"""What a tool inherits of the environment: all but what looks like a credential (`safe`), all,
only what a process needs to start (`none`), or these names besides."""

_BARE: Final = re.compile(r"PATH|HOME|USER|LOGNAME|LANG|LC_\w+|TZ|TMPDIR|TERM")
_NEVER_FROM_DOTENV: Final = re.compile(
    # the loader and the C library
    r"LD_\w*|DYLD_\w*|GCONV_PATH|LOCPATH|NLSPATH|GLIBC_TUNABLES|MALLOC_\w*|HOSTALIASES|RES_OPTIONS"
    # interpreters and their package managers
    r"|PYTHON\w*|VIRTUAL_ENV|CONDA_\w*|PIP_\w*|UV_\w*|NODE_\w*|NPM_\w*|TSX_\w*|ESBUILD_\w*"
    r"|RUBY\w*|GEM_\w*"
    r"|BUNDLE_\w*|PERL\w*|LUA_\w*|PHP\w*|JAVA_\w*|_JAVA_OPTIONS|JDK_\w*|CLASSPATH|CARGO_\w*|RUST\w*"
    # shells, and what they or pagers run
    r"|BASH\w*|ENV|SHELL\w*|IFS|PS[0-9]|PROMPT_COMMAND|CDPATH|ZDOTDIR|GLOBIGNORE|FPATH"
    r"|LESS\w*|PAGER|MANPAGER|EDITOR|VISUAL|BROWSER|TERMINFO\w*"
    # git, proxies, TLS, remote machines
    r"|GIT_\w*|SSH_\w*|\w*_PROXY|SSL\w*|\w*_CA_BUNDLE|\w*_CA_CERTS|CURL_\w*|OPENSSL_\w*"
    r"|DOCKER_\w*|KUBECONFIG"
    # homes, other people's servers, and ryecore itself
    r"|HOME|XDG_\w*|USERPROFILE|TMPDIR|\w*_BASE_URL|\w*_API_BASE|\w*_ENDPOINT(?:_URL\w*)?"
    r"|OLLAMA_HOST|PATH|RYE_\w*|USER_SPACE",
    re.IGNORECASE,
)
# Where programs, and code to load, are looked for. An entry that is empty or relative would mean
# the working folder of the child, which is the project.
_CODE_PATHS: Final = (
    *("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT", "GCONV_PATH", "CDPATH", "FPATH"),
    *("BASH_ENV", "ENV", "ZDOTDIR", "PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONSTARTUP"),
    *("PYTHONPYCACHEPREFIX", "NODE_PATH", "RUBYLIB", "GEM_PATH", "GEM_HOME", "PERL5LIB", "PERLLIB"),
    "CLASSPATH",
)
# Of these, a bare name is looked for among the libraries of the system.
_LIBRARIES: Final = frozenset({"LD_PRELOAD", "LD_AUDIT"})
# What is no name to a shell can be more than a variable: bash runs BASH_FUNC_ls%% as `ls`.
_VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_DOTENV_BYTES: Final = 1024 * 1024


def may_set_from_dotenv(name: str) -> bool:
    """Whether a project's `.env` may set a variable."""
    return _VARIABLE_NAME.fullmatch(name) is not None and _NEVER_FROM_DOTENV.fullmatch(name) is None


def may_inherit(name: str, rule: InheritEnv) -> bool:
    """Whether a tool's process inherits a variable that no signed element names."""
    if isinstance(rule, str):
        if rule == "all":
            return True
        return (
            _BARE.fullmatch(name) is not None if rule == "none" else not looks_like_credential(name)
        )
    return name in rule or not looks_like_credential(name)


class EnvResolver:
    """Resolves the environment of a chain.

    Args:
        project: The project's folder, which may hold a `.env`.
        environ: The process environment, as the host passed it.
        interpreters: Finds interpreters.
        inherit: What a tool inherits.
    """

    def __init__(
        self,
        project: Path,
        environ: Mapping[str, str],
        interpreters: Interpreters,
        inherit: InheritEnv = "safe",
    ) -> None:
        self._project = project
        self._environ = environ
        self._interpreters = interpreters
        if isinstance(inherit, str) and inherit not in ("safe", "all", "none"):
            raise ConfigError(
                f"inherit_env is {inherit!r}.",
                next_step='Pass "safe", "all", "none", or a collection of names.',
            )
        self._inherit = inherit

    def resolve(
        self, chain: Chain, context: Mapping[str, object], trace: Trace, evidence: Evidence
    ) -> dict[str, str]:
        """Resolve the environment of a chain's process.

        Args:
            chain: The chain.
            context: Values for `{name}` in signed strings.
            trace: Told the names that each element contributes, never a value.
            evidence: Told what was seen on disk.

        Returns:
            The whole environment, anchor paths not yet applied. A process of ryecore's own gets
            that of its host, and narrows it for the tools that it starts.

        Raises:
            InterpreterNotFound: An element needs an interpreter that isn't there.
            ConfigError: The `.env` can't be read.
        """
        known = dict(self._environ)
        if chain.is_own_process:
            for element in reversed(chain.all_elements):
                with trace.failing("resolve_env", contributed_by=element.item_id):
                    path = known.get("PATH", "")
                    known |= self._contribute(element, chain, known, path, context, trace, evidence)
            trace.add("resolve_env", contributed_by="process", own_process=True)
            return known
        whole_path = known.get("PATH", "")
        narrowed = self._narrow_code_paths(known, evidence)
        with trace.failing("resolve_env", contributed_by=".env"):
            added, dropped = self._read_dotenv(evidence)
        known |= added
        narrow_path = known.get("PATH", "")
        resolved = self._inherited(known)
        withheld = len(known) - len(resolved)
        if added or dropped:
            trace.add(
                "resolve_env",
                contributed_by=".env",
                keys=sorted(set(added) & set(resolved)),
                dropped=sorted(dropped),
            )
        if withheld or narrowed:
            trace.add("resolve_env", contributed_by="process", withheld=withheld, narrowed=narrowed)
        for element in reversed(chain.all_elements):
            with trace.failing("resolve_env", contributed_by=element.item_id):
                path = known.get("PATH", "")
                # An interpreter is looked for on the whole of it, to say what is passed over.
                path = whole_path if path == narrow_path else path
                contributed = self._contribute(
                    element, chain, known, path, context, trace, evidence
                )
            known |= contributed
            resolved |= contributed
            if contributed:
                trace.add("resolve_env", contributed_by=element.item_id, keys=sorted(contributed))
        return resolved

    def names(self) -> frozenset[str]:
        """The variables that a signed element may ask for: the process's, and those of the `.env`.

        Raises:
            ConfigError: The `.env` can't be read.
        """
        added, _ = self._read_dotenv(Evidence())
        return frozenset((*self._environ, *added))

    def is_project_trusted(self, evidence: Evidence) -> bool:
        """Whether programs inside the project may run."""
        return self._interpreters.is_project_trusted(evidence)

    def may_search(self, folder: str, evidence: Evidence) -> bool:
        """Whether a tool may find programs in a folder: it lies outside an untrusted project."""
        return self._interpreters.may_run(folder, evidence)

    def _inherited(self, known: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in known.items() if may_inherit(name, self._inherit)}

    def _narrow_code_paths(self, environ: dict[str, str], evidence: Evidence) -> list[str]:
        """Take out what would load a project's unverified code; the names that were changed.

        What lies inside the project counts as its interpreters do: when the project is trusted.
        """
        narrowed: list[str] = []
        for name in _CODE_PATHS:
            if name not in environ:
                continue
            entries = re.split("[: ]" if name == "LD_PRELOAD" else ":", environ[name])
            kept = [entry for entry in entries if self._may_load(name, entry, evidence)]
            if kept != entries:
                narrowed.append(name)
                environ[name] = ":".join(kept)
                if not kept:
                    del environ[name]
        return narrowed

    def _may_load(self, name: str, entry: str, evidence: Evidence) -> bool:
        if name in _LIBRARIES and entry and "/" not in entry:
            return True
        return entry.startswith("/") and self._interpreters.may_run(entry, evidence)

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

    def _read_dotenv(self, evidence: Evidence) -> tuple[dict[str, str], list[str]]:
        path = self._project / ".env"
        try:
            content, digest = read_digest(str(path), max_bytes=_MAX_DOTENV_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            evidence.absent(str(path))
            return {}, []
        except IsADirectoryError:  # some call their virtual environment so
            evidence.never_remember()
            return {}, []
        except OSError as problem:
            raise ConfigError(
                f"{path} can't be read: {problem.strerror or problem}.",
                next_step="Mend it or move it away.",
            ) from problem
        evidence.file(str(path), digest)
        from dotenv import dotenv_values  # noqa: PLC0415 - most projects have no .env

        found = dotenv_values(
            stream=io.StringIO(content.decode("utf-8", errors="replace")), interpolate=False
        )
        absent = {
            name: value
            for name, value in found.items()
            if value is not None and name not in self._environ and "\0" not in name + value
        }
        allowed = {name: value for name, value in absent.items() if may_set_from_dotenv(name)}
        refused = {name for name in found if not may_set_from_dotenv(name)}
        return allowed, sorted(refused)


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
