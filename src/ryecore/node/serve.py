"""A node served by this process, over HTTP with or without TLS. Needs asyncio."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from ryecore.errors import InputError
from ryecore.node.app import create_node_app
from ryecore.node.identity import TlsFiles, load_node
from ryecore.remote.queue_address import DEFAULT_QUEUE
from ryecore.serving import is_loopback, listen, load_tls, renew_tls, serve_app, url_of

if TYPE_CHECKING:
    from ryecore.agent.deps import AgentRunnerDeps
    from ryecore.node.service import NodeService

__all__ = ["serve_node"]


async def serve_node(
    folder: Path,
    *,
    agent: "AgentRunnerDeps | None" = None,
    deps_factory: str | None = None,
    host: str | None = None,
    port: int | None = None,
    tls: TlsFiles | None = None,
    insecure_http: bool = False,
    announce: Callable[[str], None] = lambda _: None,
    stop: anyio.Event | None = None,
    state: str | None = None,
    queue: str = DEFAULT_QUEUE,
) -> None:
    """Serve until cancelled or stopped. The next start recovers runs that have not ended then.

    Args:
        folder: The node's folder.
        agent: The models that its runs may use; None for none.
        deps_factory: `package.module:function`, which gives the processes of graphs the same
            models.
        host: The address to listen at; by default the one of node.yaml.
        port: The port; by default the one of node.yaml, 0 for any free one.
        tls: The certificate and its key; by default those of node.yaml, if any.
        insecure_http: Whether plain HTTP is served beyond this machine, as behind a proxy.
        announce: Called with the URL once the node takes requests.
        stop: Once it is set, the node takes no new runs, lets running tools end for the time that
            node.yaml sets, and returns.
        state: The address of a shared state, to whose workers runs are handed; None to run them in
            this process.
        queue: The name of the workers' queue.

    Raises:
        InputError: Others would reach the node by plain HTTP, and that isn't asked for.
        ConfigError: There is no node, another process serves it, or it can't listen there.
    """
    settings = load_node(folder).settings
    host = settings.host if host is None else host
    tls = settings.tls if tls is None else tls
    if tls is None and not is_loopback(host) and not insecure_http:
        raise InputError(
            f"At {host} others reach this node by plain HTTP, and could read what is sent.",
            next_step="Name a certificate with --tls-certificate and --tls-key; or pass "
            "--insecure-http where a proxy in front of the node ends TLS.",
        )
    context = None if tls is None else load_tls(tls.certificate, tls.key)
    app = create_node_app(folder, agent=agent, deps_factory=deps_factory, state=state, queue=queue)
    with listen(host, settings.port if port is None else port) as listening:
        url = url_of(listening, host, tls=tls is not None)
        async with app.router.lifespan_context(app), anyio.create_task_group() as tasks:
            tasks.start_soon(
                partial(
                    serve_app,
                    app,
                    listening,
                    tls=context,
                    max_connections=settings.max_connections,
                    runs_lifespan=False,
                    announce=lambda: announce(url),
                )
            )
            if tls is not None and context is not None:
                tasks.start_soon(renew_tls, context, tls.certificate, tls.key)
            service: NodeService = app.state.service
            try:
                await (stop or anyio.Event()).wait()
                await service.finish()
            finally:
                # While connections can still be answered: who waits for a run learns that it runs.
                with anyio.CancelScope(shield=True):
                    await service.stop()
                tasks.cancel_scope.cancel()
