"""Results of tools that ran on a node, and errors from there, as a local call has them.

What a node reports is untrusted: it is read with its types, and only what is known of it is kept.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from attrs import field

from ryecore.chain.model import ExecutionResult, ValidChain
from ryecore.convert.strict import RECORDS, ConversionError
from ryecore.errors import RemoteUntrusted
from ryecore.frozen import frozen
from ryecore.remote.ports import Node
from ryecore.remote.protocol.error_documents import map_errors, read_error
from ryecore.remote.protocol.reports import RunReport

__all__ = ["RemoteResult", "errors_at_home", "read_result", "result_of"]

_NO_CHAIN: Final = ValidChain(())
_IN_SPACE: Final = re.compile(
    r"/spaces/[0-9a-f]{64}-\d+/(?P<space>project|user)/(?P<path>\.ai/[^\0]+)\Z"
)
"""A path in a folder of the node that has a copy of a space."""

_SPACE: Final = re.compile(
    r"/spaces/[0-9a-f]{64}-\d{1,7}/(project|user)(?![\w.-]|/\.ai/(?:state|cache)(?![\w.-]))"
)
"""A folder of the node that has a copy of a space, as errors from there name it.

The state and caches in it are the node's own."""


@frozen
class RemoteResult(ExecutionResult):
    """The result of a tool that ran on a node.

    Its chain is that of the node, known here only by `elements`.

    Attributes:
        remote: The name of the remote.
        elements: The elements of the chain, the tool first, as `chain_elements` shows them.
        links: The items that the chain names, as `linked_items` shows them.
    """

    remote: str = ""
    elements: tuple[Mapping[str, object], ...] = field(default=(), repr=False)
    links: tuple[Mapping[str, object], ...] = field(default=(), repr=False)

    def to_dict(self) -> dict[str, object]:
        """Return the response object that models and MCP clients see."""
        document = super().to_dict()
        document["chain"] = [str(one["item_id"]) for one in self.elements]
        document["chain_elements"] = [dict(one) for one in self.elements]
        if self.links:
            document["linked_items"] = [dict(one) for one in self.links]
        return document


@frozen
class _Element:
    item_id: str
    space: str
    integrity: str
    path: str | None = None
    tool_type: str | None = None
    executor_id: str | None = None
    placeholder: str | None = None

    def to_dict(self, spaces: Mapping[str, Path]) -> dict[str, object]:
        document: dict[str, object] = {
            "item_id": self.item_id,
            "path": self._path_in(spaces),
            "space": self.space,
            "tool_type": self.tool_type,
            "executor_id": self.executor_id,
            "integrity": self.integrity,
        }
        if self.placeholder is not None:
            document = {"placeholder": self.placeholder} | document
        return document

    def _path_in(self, spaces: Mapping[str, Path]) -> str | None:
        """Return the path at home of a file that the node has a copy of; else the node's."""
        found = None if self.path is None else _IN_SPACE.search(self.path)
        if found is None or found["space"] != self.space or ".." in found["path"].split("/"):
            return self.path
        return f"{spaces[found['space']]}/{found['path']}"


@frozen
class _Result:
    """A tool's response object, as a node reports it."""

    status: Literal["success", "error"]
    item_id: str
    data: Any = None
    error: str | None = None
    chain_elements: tuple[_Element, ...] = ()
    linked_items: tuple[_Element, ...] = ()
    metadata: Mapping[str, Any] = {}
    effect_unknown: bool = False


def read_result(report: RunReport, node: Node, duration_ms: float) -> RemoteResult:
    """Return the result that a report has.

    Args:
        report: The proved report of the call.
        node: The node that reports it.
        duration_ms: How long the call took here, in milliseconds.

    Raises:
        RyeError: The tool didn't run: the error is of the same class as locally.
        RemoteUntrusted: The result can't be read.
    """
    return result_of(report.result, node.remote, report.item_id, node.spaces, duration_ms)


def result_of(
    result: Mapping[str, Any],
    remote: str,
    item_id: str,
    spaces: Mapping[str, Path],
    duration_ms: float,
) -> RemoteResult:
    """Return the result of a tool as the remote that ran it wrote it.

    Args:
        result: The response object, or that of an error.
        remote: The name of the remote.
        item_id: The tool.
        spaces: The folders at home that the remote has copies of.
        duration_ms: How long the call took here, in milliseconds.

    Raises:
        RyeError: The tool didn't run: the error is of the same class as locally.
        RemoteUntrusted: The result can't be read.
    """
    document = errors_at_home(result, spaces)
    try:
        if "error_type" in document:
            error = read_error(document)
            error.message, error.remote_name = f"On {remote}: {error.message}", remote
            raise error.during(item_id, duration_ms=duration_ms)
        found = RECORDS.read(document, _Result)
    except ConversionError as problem:
        raise RemoteUntrusted(
            f"The result that the node {remote} reports can't be read: {problem}.",
            next_step="See that both ends run the same version of ryecore.",
            remote=remote,
        ) from None
    metadata = {name: value for name, value in found.metadata.items() if name != "duration_ms"}
    return RemoteResult(
        status=found.status,
        item_id=item_id,
        data=found.data,
        error=found.error,
        chain=_NO_CHAIN,
        duration_ms=duration_ms,
        metadata=metadata | {"remote": remote},
        effect_unknown=found.effect_unknown,
        remote=remote,
        elements=tuple(one.to_dict(spaces) for one in found.chain_elements),
        links=tuple(one.to_dict(spaces) for one in found.linked_items),
    )


def errors_at_home(document: Mapping[str, Any], spaces: Mapping[str, Path]) -> Mapping[str, Any]:
    """Return what a node reports, whose errors name folders at home and not the node's copies.

    Args:
        document: A result, or an error's document.
        spaces: The folders at home that the node has copies of.
    """
    return map_errors(document, lambda text: _SPACE.sub(lambda found: str(spaces[found[1]]), text))
