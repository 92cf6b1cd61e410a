"""Errors of items, graphs, signatures, chains, configuration and processes."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from ryecore.errors.base import RyeError
from ryecore.frozen import frozen

__all__ = [
    "AmbiguousItem",
    "AnchorError",
    "BadSignature",
    "ChainError",
    "ChainTooDeep",
    "CircularDependency",
    "ConfigError",
    "ContentChanged",
    "ExecutorNotFound",
    "GraphInvalid",
    "GraphProblem",
    "IncompatibleChain",
    "IntegrityError",
    "InterpreterNotFound",
    "InvalidItemId",
    "ItemError",
    "ItemNotFound",
    "LinkLeavesSpace",
    "MalformedSignature",
    "MetadataError",
    "MissingExecutorId",
    "PlaceholderInScript",
    "ProcessError",
    "RevokedKey",
    "SigningError",
    "SpawnFailed",
    "StoreError",
    "UnresolvedPlaceholder",
    "UnsignedItem",
    "UntrustedKey",
]


class ItemError(RyeError):
    """An item can't be found, named or read."""

    error_type = "item"


class InvalidItemId(ItemError, ValueError):
    """An item id or canonical ref has an invalid form."""

    error_type = "invalid_item_id"


class ItemNotFound(ItemError, LookupError):
    """No space holds the item."""

    error_type = "not_found"
    searched: tuple[str, ...] = ()
    similar: tuple[str, ...] = ()


class AmbiguousItem(ItemError):
    """One name matches two files of one stem, or two kinds of one id."""

    error_type = "ambiguous"
    candidates: tuple[str, ...] = ()


class MetadataError(ItemError):
    """An item's source can't be parsed as its extension says."""

    error_type = "metadata"
    path: Path
    line: int | None = None


class LinkLeavesSpace(ItemError):
    """A write would follow a link that leads out of its space. Nothing was written."""

    error_type = "link"
    path: Path
    leads_to: Path


class IntegrityError(RyeError):
    """A file is not what a trusted key signed. Nothing ran."""

    error_type = "integrity"
    path: Path


class UnsignedItem(IntegrityError):
    """The item has no signature."""


class MalformedSignature(IntegrityError):
    """The signature line has an invalid form."""


class ContentChanged(IntegrityError):
    """The content differs from the content that was signed."""


class BadSignature(IntegrityError):
    """The signature is invalid for this content, place and time."""


class UntrustedKey(IntegrityError):
    """The key that signed is not trusted here."""

    fingerprint: str


class RevokedKey(UntrustedKey):
    """The key that signed was revoked, or has expired."""

    is_expired: bool = False


class SigningError(RyeError):
    """A key or a signature can't be made or read."""

    error_type = "signing"


class ChainError(RyeError):
    """The chain from tool to primitive is invalid."""

    error_type = "chain"


class ChainTooDeep(ChainError):
    """A chain of executors, or of directives that extend each other, is too long."""


class CircularDependency(ChainError):
    """An executor, or a directive that others extend, leads back to itself."""


class ExecutorNotFound(ChainError, ValueError):
    """An element names an executor that no space holds."""

    executor_id: str


class MissingExecutorId(ChainError):
    """An element names no executor."""


class IncompatibleChain(ChainError):
    """Neighbours in the chain don't fit: spaces, inputs and outputs, or versions."""

    problems: tuple[str, ...] = ()


class InterpreterNotFound(ChainError):
    """No permitted interpreter was found."""

    tried: tuple[str, ...] = ()


class AnchorError(ChainError):
    """A tool's dependency tree can't be anchored or sealed."""


class ConfigError(RyeError):
    """A configuration file or an option can't be used."""

    error_type = "config"


class PlaceholderInScript(ConfigError):
    """A placeholder stands inside a program, where its value would become code.

    Attributes:
        placeholder: Its name, or the expression.
    """

    placeholder: str = ""


class UnresolvedPlaceholder(ConfigError):
    """A placeholder of a command line has no value. Nothing ran.

    Attributes:
        placeholders: The names.
    """

    placeholders: tuple[str, ...] = ()


class ProcessError(RyeError):
    """An operation of the native extension failed."""

    error_type = "process"


class SpawnFailed(ProcessError):
    """A process can't be started."""

    command: str
    errno: int | None = None


class StoreError(ProcessError):
    """The content store can't be read or written."""


_MAX_SHOWN = 50


@frozen
class GraphProblem:
    """A problem of a graph.

    Attributes:
        line: The line, counted from 1; None where unknown.
        key: The path of the key, such as `config.nodes.load.next[0].to`.
    """

    message: str
    path: Path
    line: int | None = None
    node: str | None = None
    key: str = ""

    def __str__(self) -> str:
        place = f"{self.path}, line {self.line}" if self.line else str(self.path)
        named = f"{place}, {self.key}" if self.key else place
        return f"{named}: {self.message}"

    def to_dict(self) -> dict[str, object]:
        """Return the problem in its JSON form."""
        return {
            "message": self.message,
            "path": str(self.path),
            "line": self.line,
            "node": self.node,
            "key": self.key,
        }


class GraphInvalid(ItemError):
    """A state graph has problems that keep it from running; each is listed.

    Attributes:
        problems: What keeps the graph from running, in the order of the file.
        warnings: What looks wrong, but does not keep the graph from running.
    """

    error_type: ClassVar[str] = "graph_invalid"
    problems: tuple[GraphProblem, ...] = ()
    warnings: tuple[GraphProblem, ...] = ()

    @classmethod
    def of(
        cls,
        ref: object,
        problems: Sequence[GraphProblem],
        warnings: Sequence[GraphProblem] = (),
    ) -> "GraphInvalid":
        """Make the error of a graph with these problems."""
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        shown = [f"\n  {problem}" for problem in problems[:_MAX_SHOWN]]
        if len(problems) > _MAX_SHOWN:
            shown.append(f"\n  … and {len(problems) - _MAX_SHOWN} more.")
        return cls(
            f"{ref} has {count}:{''.join(shown)}",
            next_step="Mend the file and sign it again.",
            problems=tuple(problems),
            warnings=tuple(warnings),
        )

    def __str__(self) -> str:
        gap = "\n" if "\n" in self.message else " "
        return f"{self.message}{gap}{self.next_step}".rstrip()

    def to_dict(self) -> dict[str, object]:
        """Return the error object, with its problems."""
        return super().to_dict() | {"problems": [one.to_dict() for one in self.problems]}
