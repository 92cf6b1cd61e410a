"""A workspace whose remotes.yaml names a node that runs."""

from collections.abc import Mapping
from textwrap import indent
from typing import Any

from ryecore.lillux.keys import PublicKey
from tests.served_node import ServedNode
from tests.workspace import Workspace

__all__ = ["connect", "name_remote"]


def name_remote(
    workspace: Workspace,
    url: str,
    key: PublicKey,
    name: str = "gpu",
    more: Mapping[str, Any] | None = None,
) -> None:
    """Write a remotes.yaml with one remote, and sign it."""
    lines = [f"{option}: {value}" for option, value in (more or {}).items()]
    entry = "\n".join([f"url: {url}", "node_key: |", indent(key.pem.decode(), "  "), *lines])
    workspace.write("config/remotes/remotes.yaml", f"remotes:\n  {name}:\n{indent(entry, '    ')}")


def connect(workspace: Workspace, node: ServedNode, *, url: str | None = None, **more: Any) -> None:
    """Allow the workspace's author on a node, and name it `gpu`; `more` are its settings."""
    node.allow(workspace.key)
    name_remote(workspace, url or node.url, node.identity.key.public, more=more)
