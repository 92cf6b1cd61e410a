"""The MCP server of some projects: what it offers, put together."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

import anyio
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp_types import CallToolRequestParams, NotificationParams, SetLevelRequestParams

from ryecore import __version__
from ryecore.mcp_server.approvals import Approvals
from ryecore.mcp_server.catalog import Catalog, OfferOptions
from ryecore.mcp_server.changes import ChangeNotifier
from ryecore.mcp_server.completion import Completions
from ryecore.mcp_server.offer import OfferReader
from ryecore.mcp_server.peers import Peers
from ryecore.mcp_server.prompts import Prompts
from ryecore.mcp_server.resources import Resources
from ryecore.mcp_server.running import CallRunner, Transport
from ryecore.mcp_server.schemas import INSTRUCTIONS, INSTRUCTIONS_WITHOUT_VERBS
from ryecore.mcp_server.subscriptions import Subscriptions
from ryecore.mcp_server.task_requests import TaskRequests
from ryecore.mcp_server.tasks import Tasks
from ryecore.mcp_server.tools import Tools
from ryecore.mcp_server.verbs import Verbs
from ryecore.rye import Rye

__all__ = ["ProjectServer", "create_server", "origins_of"]

DEFAULT_GRANTS: Final = frozenset({"rye.execute.*", "rye.fetch.*", "rye.ask.*"})
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
    peers = Peers()
    runner = CallRunner(frozenset(grants), approvals, peers)
    options = OfferOptions(tuple(tools), verbs, both)
    catalog = Catalog(opened, runner.grants, options)
    for project in catalog.projects:
        project.offer()
    tasks = Tasks(catalog, runner.grants)
    verbs_served = Verbs(opened, runner, can_sign=approvals is not None)
    served = Tools(catalog, verbs_served, runner, tasks)
    requests = TaskRequests(tasks, served)
    resources = Resources(catalog, runner)
    prompts = Prompts(catalog, runner, resources)
    notifier = ChangeNotifier(catalog, peers, resources.stamp)
    subscriptions = Subscriptions(peers, notifier, resources)

    server = ProjectServer(
        requests,
        "ryecore",
        version=__version__,
        instructions=INSTRUCTIONS if catalog.has_verbs else INSTRUCTIONS_WITHOUT_VERBS,
        lifespan=_lifespan(notifier, subscriptions),
        get_tool_input_schema=served.input_schema,
        on_list_tools=served.list,
        on_list_resources=resources.list,
        on_list_resource_templates=resources.list_templates,
        on_read_resource=resources.read,
        on_subscribe_resource=subscriptions.subscribe,
        on_unsubscribe_resource=subscriptions.unsubscribe,
        on_subscriptions_listen=subscriptions.listen,
        on_list_prompts=prompts.list,
        on_get_prompt=prompts.get,
        on_completion=Completions(catalog, prompts, resources).complete,
    )
    # Not as an argument, whose type has no tasks among the results of a call.
    server.add_request_handler("tools/call", CallToolRequestParams, served.call)
    requests.add_to(server)
    # As arguments these two would warn that protocols from 2026 on have no such request.
    server.add_request_handler("logging/setLevel", SetLevelRequestParams, subscriptions.set_level)
    server.add_notification_handler(
        "notifications/initialized", NotificationParams, subscriptions.initialized
    )
    return server


def _lifespan(
    notifier: ChangeNotifier, subscriptions: Subscriptions
) -> Callable[[Server[Any]], AbstractAsyncContextManager[object]]:
    """Return what a server does around each transport: changes are told, then forgotten."""

    @asynccontextmanager
    async def lifespan(_: Server[Any]) -> AsyncIterator[object]:
        async with anyio.create_task_group() as tasks:
            transport = Transport(tasks)
            tasks.start_soon(notifier.run)
            try:
                yield transport
            finally:
                tasks.cancel_scope.cancel()
                subscriptions.forget(transport)

    return lifespan


def origins_of(projects: Iterable[Rye]) -> frozenset[str]:
    """Return the origins of web pages that the projects' `mcp/serve.yaml` allow to call a server.

    Raises:
        ConfigError: A project's `mcp/serve.yaml` has problems.
        RyeError: It isn't signed by a trusted key.
    """
    return frozenset(one for rye in projects for one in OfferReader(rye.configs)().allowed_origins)


class ProjectServer(Server[Any]):
    """The SDK's server, which says of every transport that it tells of changed lists.

    Args:
        tasks: Serves the requests about tasks.
        name: The server's name.
        options: Those of the SDK's server.
    """

    def __init__(self, tasks: TaskRequests, name: str, **options: Any) -> None:
        super().__init__(name, **options)
        self._tasks = tasks

    def serve_anonymous_clients(self) -> None:
        """Serve clients that can't be told apart, so that none may list tasks."""
        self._tasks.refuse_lists()

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """Return the options with which each connection begins."""
        told = notification_options or NotificationOptions(
            prompts_changed=True, resources_changed=True, tools_changed=True
        )
        made = super().create_initialization_options(told, experimental_capabilities, extensions)
        capabilities = self._tasks.with_legacy_tasks(made.capabilities)
        return made.model_copy(update={"capabilities": capabilities})
