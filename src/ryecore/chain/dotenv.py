"""Read a project's `.env`, and choose the variables that one chain gets.

Source: decision 19; ADR 021.
"""

import io
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ryecore.chain.elements import ChainElement
from ryecore.chain.model import Chain
from ryecore.chain.plan import merge_configs
from ryecore.chain.templating import as_text, with_unknown_parts
from ryecore.display.sanitize import warn
from ryecore.errors import ConfigError
from ryecore.frozen import frozen
from ryecore.items.files import leads_out
from ryecore.lillux.digests import read_digest
from ryecore.lillux.witness import Evidence
from ryecore.policy.command_lines import program_name, read_command_line
from ryecore.policy.environment import (
    InheritEnv,
    may_inherit,
    may_set_from_dotenv,
    variables_named_in,
)

if TYPE_CHECKING:
    from dotenv.parser import Original

__all__ = ["Dotenv", "DotenvReader", "asked_variables"]

_MAX_BYTES: Final = 1024 * 1024
# python-dotenv looks for a comment after each blank anew: half a million blanks take minutes.
_MAX_BLANKS: Final = 200
_MAX_SHOWN: Final = 5
_WHOLE: Final = re.compile(r"\s*\"?\$(?:\{[^}]*\}|\w+)\"?\s*")
_PACKAGE_RUNNERS: Final = frozenset({"npx", "bunx", "pnpx", "uvx"})
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_READ: Final = (
    "The project's .env is a link that leaves the project, and was not read. Put the file itself "
    "into the project, or set its variables in the environment of ryecore."
)


@frozen
class Dotenv:
    """The variables of a project's `.env` that one chain gets, and the ones withheld from it.

    Attributes:
        unasked: Names that no signed element asks for and nobody allowed.
        withheld: Names that only a tool gets that names them, because they look like credentials,
            and that this chain doesn't name, though somebody may have allowed them.
        never: Names that it may not set, whoever asks.
        leads_out: Whether it is a link that leaves the project, and so was not read.
    """

    added: Mapping[str, str] = {}
    unasked: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    leads_out: bool = False

    @property
    def next_step(self) -> str:
        """How a person lets a dropped name reach a tool; empty where none was dropped."""
        if self.leads_out:
            return _NOT_READ
        steps = []
        if self.withheld:
            shown = ", ".join(f'{name}: "${{{name}}}"' for name in self.withheld[:_MAX_SHOWN])
            steps.append(
                f"Add {shown} to the tool's signed env_config.env: a credential reaches only a "
                "tool that names it."
            )
        if self.unasked:
            shown = " ".join(self.unasked[:_MAX_SHOWN])
            steps.append(
                f"Name it in the tool's signed env_config.env, or run: rye env allow {shown}"
            )
        if steps:
            return " ".join(steps)
        if self.never:
            return "Set it in the environment of ryecore itself; a project's .env can't."
        return ""

    @property
    def dropped(self) -> tuple[str, ...]:
        """The names that it did not set."""
        return (*self.unasked, *self.withheld, *self.never)

    def hint(self, text: str, *, is_refusal: bool = False) -> str:
        """Return how a dropped name that a failure names can reach the tool; else nothing.

        Names that no `.env` may set, such as LD_PRELOAD, are left out: nobody can allow them. Where
        it is a refusal, nothing ran, and a `.env` that was not read is mentioned only where the
        text speaks of it.
        """
        if self.leads_out:
            return "" if is_refusal and ".env" not in text else _NOT_READ
        words = set(_WORD.findall(text))
        named = [name for name in self.dropped if name in words and may_set_from_dotenv(name)]
        shown = named[:_MAX_SHOWN]
        if not shown:
            return ""
        more = f" and {len(named) - len(shown)} more" if len(named) > len(shown) else ""
        return (
            f"The project's .env did not set {', '.join(shown)}{more}.\n"
            + self._only(shown).next_step
        )

    def _only(self, names: Collection[str]) -> "Dotenv":
        return Dotenv(
            {},
            tuple(name for name in self.unasked if name in names),
            tuple(name for name in self.withheld if name in names),
            tuple(name for name in self.never if name in names),
        )


class DotenvReader:
    """Reads a project's `.env`. `allowed` returns the names that host or user allowed for it."""

    def __init__(
        self,
        project: Path,
        environ: Mapping[str, str],
        allowed: Callable[[Evidence], Collection[str]],
        inherit: InheritEnv = "safe",
    ) -> None:
        self._path = project / ".env"
        self._inherit = inherit
        self.environ = environ
        self.allowed = allowed

    def read(self, chain: Chain, evidence: Evidence) -> Dotenv:
        """Read the variables that a chain gets."""
        found = self.values(evidence)
        if not found:
            return Dotenv(leads_out=self.leads_out())
        asked, steering = asked_variables(chain)
        counting = asked | frozenset(self.allowed(evidence))
        never = {name for name in found if not may_set_from_dotenv(name) or name in steering}
        dropped = {
            name
            for name in found.keys() - never - asked - self.environ.keys()
            if name not in counting or self.needs_naming(name, found[name])
        }
        withheld = {name for name in dropped if self.needs_naming(name, found[name])}
        added = {
            name: value
            for name, value in found.items()
            if value is not None
            and "\0" not in value
            and name in counting - never - withheld
            and name not in self.environ
        }
        return Dotenv(
            added,
            tuple(sorted(dropped - withheld)),
            tuple(sorted(withheld)),
            tuple(sorted(never)),
        )

    def needs_naming(self, name: str, value: str | None) -> bool:
        """Return whether only tools that name a variable get it, allowed or not."""
        return not may_inherit(name, self._inherit, value or "")

    def settable(self) -> frozenset[str]:
        """Return the names that it sets for any chain that asks for them."""
        found = self.values(Evidence())
        return frozenset(filter(may_set_from_dotenv, found))

    def leads_out(self) -> bool:
        """Return whether it is a link that leaves the project, and so is not read."""
        return self._path.is_symlink() and leads_out(self._path, self._path.parent)

    def values(self, evidence: Evidence) -> Mapping[str, str | None]:
        """Return all its variables; None where a name has no value."""
        if self.leads_out():
            evidence.never_remember()
            return {}
        try:
            content, digest = read_digest(str(self._path), max_bytes=_MAX_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            evidence.absent(str(self._path))
            return {}
        except IsADirectoryError:  # some virtual environments have this name
            evidence.never_remember()
            return {}
        except OSError as problem:
            raise ConfigError(
                f"{self._path} can't be read: {problem.strerror or problem}.",
                next_step="Repair it, or move it away.",
            ) from problem
        evidence.file(str(self._path), digest)
        from dotenv.parser import parse_stream  # noqa: PLC0415 - most projects have no .env

        text = content.decode("utf-8", errors="replace")
        if any(len(blanks) > _MAX_BLANKS for blanks in re.findall(r"[^\S\r\n]+", text)):
            raise ConfigError(
                f"{self._path} has a line with more than {_MAX_BLANKS} blanks in a row.",
                next_step="Take them out.",
            )
        statements = tuple(parse_stream(io.StringIO(text)))
        if broken := [_first_line(one.original) for one in statements if one.error]:
            lines = ", ".join(map(str, broken[:_MAX_SHOWN]))
            more = f" and {len(broken) - _MAX_SHOWN} more" if len(broken) > _MAX_SHOWN else ""
            warn(
                f"{self._path}, line{'s' if len(broken) > 1 else ''} {lines}{more}: passed over. "
                "Write NAME=value, with quotes that are closed."
            )
        return {one.key: one.value for one in statements if one.key is not None}


def _first_line(original: "Original") -> int:
    """Return the number of a statement's first line that isn't blank."""
    text = original.string
    return original.line + text[: len(text) - len(text.lstrip())].count("\n")


def asked_variables(chain: Chain) -> tuple[frozenset[str], frozenset[str]]:
    """Return the variables that a chain's signed elements ask for, and the ones that steer it.

    A variable steers a chain where it decides which program runs or where code comes from: it
    stands in the command, an interpreter, an anchor, or in the value of a variable that a `.env`
    may not set. No `.env` sets such a variable, though a signed element names it.
    """
    elements = chain.all_elements
    asked = frozenset[str]().union(*map(_asked_by, elements))
    steering = _choosing_code(chain).union(*map(_steering_of, elements))
    env = [item for element in elements for item in element.spec.env.env.items()]
    while True:
        feeding = frozenset[str]().union(
            *(
                variables_named_in(value) - {name}
                for name, value in env
                if name in steering or not may_set_from_dotenv(name)
            )
        )
        if feeding <= steering:
            return asked - steering, steering
        steering |= feeding


def _choosing_code(chain: Chain) -> frozenset[str]:
    """Return the variables that are a chain's program, or the script or file that it runs."""
    config, bound = merge_configs(chain.elements)
    interpreters = {
        one.var: (*one.names, one.fallback, "python")[0] or ""
        for one in (element.spec.env.interpreter for element in chain.elements)
        if one is not None
    }
    scripts = [one for one in bound.values() if isinstance(one, str) and _WHOLE.fullmatch(one)]
    return variables_named_in(scripts) | _code_of(config, interpreters)


def _code_of(
    config: Mapping[str, object], interpreters: Mapping[str, str] = MappingProxyType({})
) -> frozenset[str]:
    """Return the variables of a command line that are its program, a script or a script's file."""
    command, args = config.get("command"), config.get("args")
    found = variables_named_in(command)
    if not isinstance(command, str) or not isinstance(args, list):
        return found
    program = next((interpreters[one] for one in found if one in interpreters), command)
    words = list(map(as_text, args))
    read = read_command_line(list(map(with_unknown_parts, [program, *words])))
    first = next((i for i, word in enumerate(words, 1) if not word.startswith("-")), 0)
    for index, word in enumerate(words, start=1):
        is_package = index == first and program_name(program) in _PACKAGE_RUNNERS
        is_script = index in read.programs and _WHOLE.fullmatch(word) is not None
        if index in read.files or is_package or is_script:
            found |= variables_named_in(word)
    return found


def _asked_by(element: ChainElement) -> frozenset[str]:
    spec = element.spec
    cwd = spec.anchor.cwd if spec.anchor is not None else None
    return (
        frozenset(spec.env.env)
        | variables_named_in(list(spec.env.env.values()))
        | variables_named_in(spec.config)
        | variables_named_in(cwd)
    )


def _steering_of(element: ChainElement) -> frozenset[str]:
    """Return the variables with which one element chooses a program, or where code comes from."""
    spec = element.spec
    found = frozenset[str]()
    if spec.env.interpreter is not None:
        one = spec.env.interpreter
        found |= {one.var} | variables_named_in(
            [*one.search_paths, *one.search_roots, *one.resolve_cmd, one.fallback]
        )
    if spec.anchor is not None:
        found |= variables_named_in([list(map(list, c)) for c in spec.anchor.env_paths.values()])
    if spec.tool_type == "mcp_server":
        found |= _code_of(spec.config)
    return found
