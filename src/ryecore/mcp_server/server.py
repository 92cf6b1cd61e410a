"""The MCP server of some projects: what it offers, put together."""

from collections.abc import Iterable
from typing import Any, Final

from mcp.server.lowlevel import Server

from ryecore import __version__
from ryecore.mcp_server.approvals import Approvals
from ryecore.mcp_server.catalog import Catalog, OfferOptions
from ryecore.mcp_server.running import CallRunner
from ryecore.mcp_server.schemas import INSTRUCTIONS
from ryecore.mcp_server.tools import Tools
from ryecore.mcp_server.verbs import Verbs
from ryecore.rye import Rye

__all__ = ["DEFAULT_GRANTS", "create_server"]

DEFAULT_GRANTS: Final = frozenset({"rye.execute.*", "rye.fetch.*"})
"""The capabilities of a client by default."""


def create_server(
    projects: Iterable[Rye],
    *,
    grants: Iterable[str] = DEFAULT_GRANTS,
    approvals: Approvals | None = None,
    tools: Iterable[str] = (),
    verbs: bool = True,
    both: bool = False,
) -> Server[Any]:
    """Make the MCP server of some projects.

    What a project's signed `mcp/serve.yaml` offers is offered, and what is named here.

    Args:
        projects: The open projects, which stay open while the server runs.
        grants: The capabilities of a client, as patterns. What they don't grant isn't listed.
        approvals: Asks the person at the client, where the projects were opened with it as
            `approve`; with it there is `rye_sign`. A client may then ask for any signature, unless
            the grants name some.
        tools: The ids of signed tools, or patterns such as `acme/*`, that become MCP tools of
            their own.
        verbs: Whether there are `rye_execute` and its siblings.
        both: Whether each result is sent as text and as structured content, for clients that show
            a model only one of them.

    Returns:
        The server, of the official SDK: `serve_stdio` or `serve_http` runs it.

    Raises:
        ConfigError: A project's `mcp/serve.yaml` has problems.
        RyeError: It isn't signed by a trusted key.
    """
    opened = tuple(projects)
    runner = CallRunner(frozenset(grants), approvals)
    options = OfferOptions(tuple(tools), verbs, both)
    catalog = Catalog(opened, runner.grants, options)
    for project in catalog.projects:
        project.offer()
    served = Tools(catalog, Verbs(opened, runner, can_sign=approvals is not None), runner)
    return Server(
        "ryecore",
        version=__version__,
        instructions=INSTRUCTIONS,
        get_tool_input_schema=served.input_schema,
        on_list_tools=served.list,
        on_call_tool=served.call,
    )
