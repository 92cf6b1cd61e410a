"""The node's ASGI application: its routes, and the signature of each response.

Source: docs/design/remote.md#requests; decisions 63, 70 and 82.
"""

import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ryecore.convert.json_text import make_encoder
from ryecore.convert.prometheus import render_metrics
from ryecore.convert.strict import WIRE, ConversionError
from ryecore.frozen import frozen
from ryecore.node.bodies import BRIEF_BYTES, HeldBodies, HeldBody, drain, read_bounded
from ryecore.node.callers import METRICS_SCOPE, Caller
from ryecore.node.gate import Admission, RequestHead, read_head
from ryecore.node.metrics import HELP, RequestMetrics
from ryecore.node.problems import NodeProblem, refusal, refusal_of
from ryecore.node.responses import EventStream, ObjectResponse, read_range
from ryecore.node.routing import RoutedApp
from ryecore.node.service import NodeService, open_node
from ryecore.remote.protocol.models import (
    MAX_BODY_BYTES,
    MAX_PARAMETER_BYTES,
    MAX_SNAPSHOT_BYTES,
    MAX_WAIT_S,
    CancelBody,
    ExecuteBody,
    Problem,
    RunState,
    SnapshotAnswer,
    decode_request,
    is_thread_id,
    read_body,
)
from ryecore.remote.protocol.pieces import read_pieces
from ryecore.remote.protocol.signatures import sign_response
from ryecore.remote.protocol.snapshots import Snapshot, check_snapshot
from ryecore.remote.queue_address import DEFAULT_QUEUE
from ryecore.state.records import canonical_json
from ryecore.state.waiting import run_in_thread

if TYPE_CHECKING:
    from ryecore.agent.deps import AgentRunnerDeps

__all__ = ["create_node_app"]

T = TypeVar("T")

_log: Final = logging.getLogger("ryecore.node")
_encode: Final = make_encoder()  # in ASCII: half a surrogate pair of a tool's result stays one
_MAX_EXECUTE_BYTES: Final = MAX_PARAMETER_BYTES + 4 * 1024 * 1024
_MAX_SMALL_BYTES: Final = 64 * 1024


@frozen
class _Call:
    """A request whose caller and body are proved."""

    service: NodeService
    request: Request
    admission: Admission
    body: bytes

    @property
    def caller(self) -> Caller:
        """Who makes the request."""
        return self.admission.caller


_Handler = Callable[[_Call], Awaitable[Response]]


def create_node_app(
    folder: str | os.PathLike[str], *,
    agent: "AgentRunnerDeps | None" = None, deps_factory: str | None = None,
    environ: Mapping[str, str] | None = None,
    state: str | None = None, queue: str = DEFAULT_QUEUE,
) -> Starlette:  # fmt: skip
    """Return a node as an ASGI application. Its lifespan opens the node, and closes it.

    In another application it is mounted anywhere; that application's lifespan has to run this
    one's: `async with node.router.lifespan_context(node): ...`. Meanwhile `node.state.service` is
    the open `NodeService`.

    Args:
        folder: The node's folder, made by `rye node init`.
        agent: The models that runs may use; None for none.
        deps_factory: `package.module:function`, which gives the processes of graphs the same
            models; without it, graphs in processes of their own have none.
        environ: The environment of the runs, without its credentials; by default this process's.
        state: The address of a shared state, to whose workers runs are handed; None to run them.
        queue: The name of the workers' queue.
    """
    opened = partial(open_node, Path(folder), agent=agent, deps_factory=deps_factory)
    return _NodeApp(partial(opened, environ=environ, state=state, queue=queue)).starlette


class _NodeApp:
    """The routes of a node, and what it holds in memory for them."""

    def __init__(self, opener: Callable[[], AbstractAsyncContextManager[NodeService]]) -> None:
        self._opener = opener
        self._service: NodeService | None = None
        self._held = HeldBodies()
        self._requests = RequestMetrics()
        route = self._route
        execute = route("POST", "/execute", _execute, _MAX_EXECUTE_BYTES)
        self.starlette: Final = RoutedApp(
            "POST",
            execute.path,
            execute.endpoint,
            routes=[
                execute,
                Route("/health", _health, methods=["GET"]),
                Route("/identity", self._identity, methods=["GET"]),
                route("GET", "/status", _status),
                route("GET", "/metrics", self._metrics),
                route("POST", "/snapshots", _snapshots, MAX_SNAPSHOT_BYTES),
                route("POST", "/objects", _store, MAX_BODY_BYTES),
                route("GET", "/objects/{sha256}", _read_object),
                route("GET", "/runs/{thread_id:path}/events", _events),
                route("POST", "/runs/{thread_id:path}/cancel", _cancel, _MAX_SMALL_BYTES),
                route("GET", "/runs/{thread_id:path}", _state),
            ],
            exception_handlers={HTTPException: self._unknown},
            lifespan=self._lifespan,
        )
        self.starlette.router.redirect_slashes = False  # a redirect would be unsigned

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[Mapping[str, Any]]:
        async with self._opener() as service:
            self._service = self.starlette.state.service = service
            try:
                yield {}
            finally:
                self._service = None
                del self.starlette.state.service

    def _open_service(self) -> NodeService:
        if self._service is None:
            raise refusal(
                "busy",
                "The node isn't open.",
                next_step="Run the lifespan of its application in that of the host.",
                retry_after_s=1,
            )
        return self._service

    async def _identity(self, request: Request) -> Response:
        try:
            service = self._open_service()
        except NodeProblem as refused:
            return _problem(refused)
        return self._sign(_document(service.identity.to_document()), None)

    async def _unknown(self, request: Request, problem: Exception) -> Response:
        del problem
        refused = refusal("not_found", "The node has nothing at this path.")
        return self._sign(_problem(refused), read_head(request.scope).headers)

    async def _metrics(self, call: _Call) -> Response:
        if not call.caller.may(METRICS_SCOPE):
            raise refusal(
                "forbidden",
                "Your scopes don't include the metrics.",
                next_step=f"Ask the node's operator for the scope {METRICS_SCOPE}.",
            )
        samples = [
            *await call.service.samples(),
            ("ryecore_node_body_bytes", (), self._held.size_bytes),
            *self._requests.samples(),
        ]
        return Response(render_metrics(samples, HELP), media_type="text/plain; version=0.0.4")

    def _route(self, method: str, path: str, handle: _Handler, max_bytes: int = 0) -> Route:
        """Return a route that only proved callers may use, whose answers are signed.

        Args:
            method: The method.
            path: The path.
            handle: Answers a call.
            max_bytes: The largest body.
        """
        name = path.replace(":path", "")

        async def answer(request: Request) -> Response:
            head, began, problem = read_head(request.scope), time.perf_counter(), None
            try:
                response = await self._answer(request, head, handle, max_bytes)
            except NodeProblem as refused:
                _log.info(
                    "%s %s: %s (%s)",
                    head.method,
                    ascii(head.path)[:200],
                    refused.problem.type,
                    refused.__cause__ or refused.problem.title,
                )
                response, problem = _problem(refused), refused.problem.type
                if not await drain(request, max_bytes):
                    response.headers["Connection"] = "close"
            except ClientDisconnect:
                return Response(status_code=400)  # nobody reads it
            except Exception as failure:
                failed = refusal_of(failure)
                if failed is None:
                    _log.exception("%s %s failed", head.method, ascii(head.path)[:200])
                    failed = refusal(
                        "failed",
                        "The node failed at this request.",
                        next_step="Tell the node's operator, whose log has the reason.",
                    )
                else:
                    _log.error("%s: %s", failed.problem.title, failure)
                response, problem = _problem(failed), failed.problem.type
            self._requests.count(name, response.status_code, time.perf_counter() - began, problem)
            return self._sign(response, head.headers)

        return Route(path, answer, methods=[method])

    async def _answer(
        self, request: Request, head: RequestHead, handle: _Handler, max_bytes: int
    ) -> Response:
        service = self._open_service()
        is_execute = handle is _execute  # whose nonce is in the transaction of its run
        async with await service.gate.admit(head, is_looked_up=not is_execute) as admission:
            if not is_execute:
                await admission.remember()
            with HeldBody(self._held) as held:
                body = await read_bounded(request, head.headers, max_bytes, held)
                service.gate.check_body(head, body)
                return await handle(_Call(service, request, admission, body))

    def _sign(self, response: Response, request: Mapping[str, str] | None) -> Response:
        if self._service is not None:
            is_stream = isinstance(response, EventStream | ObjectResponse)
            signed = sign_response(
                self._service.identity.key,
                status=response.status_code,
                body=None if is_stream else bytes(response.body),
                request=request,
                now_s=int(time.time()),
            )
            response.raw_headers += [
                (name.lower().encode("ascii"), value.encode("ascii"))
                for name, value in signed.items()
            ]
        return response


async def _read_json(call: _Call, kind: type[T]) -> tuple[T, dict[str, Any]]:
    """Read a body as one of the protocol's documents, and as the JSON that it is."""

    def read() -> tuple[T, dict[str, Any]]:
        try:
            document: Any = decode_request(call.body) if call.body else {}
            return read_body(document, kind), document
        except ConversionError as problem:
            detail = str(problem)[:2000]
        except ValueError as problem:
            detail = str(problem)[:200]
        raise refusal("invalid", "The request can't be read.", detail=detail)

    return read() if len(call.body) <= BRIEF_BYTES else await run_in_thread(read)


# Answers


def _document(value: object, status: int = 200) -> Response:
    return Response(_encode(WIRE.write(value)), status, media_type="application/json")


def _problem(refused: NodeProblem) -> Response:
    problem: Problem = refused.problem
    response = JSONResponse(
        WIRE.write(problem), problem.status, media_type="application/problem+json"
    )
    if refused.retry_after_s is not None:
        response.headers["Retry-After"] = str(refused.retry_after_s)
    return response


async def _health(_: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _status(call: _Call) -> Response:
    return _document(await call.service.status_of(call.caller))


async def _snapshots(call: _Call) -> Response:
    snapshot, _ = await _read_json(call, Snapshot)
    content = call.service.content.of(call.caller)

    def take() -> SnapshotAnswer:
        wrong = check_snapshot(snapshot)
        if wrong is not None:
            raise refusal("invalid", "The snapshot can't be taken.", detail=wrong)
        return SnapshotAnswer(snapshot.id, content.take(snapshot))

    return _document(await call.service.runs.with_room(call.caller, take))


async def _store(call: _Call) -> Response:
    try:
        pieces = tuple(read_pieces(call.body))
    except ValueError as problem:
        raise refusal("invalid", "The pieces can't be read.", detail=str(problem)) from None
    content = call.service.content.of(call.caller)
    store = partial(content.store, pieces)
    return _document(await call.service.runs.with_room(call.caller, store))


async def _read_object(call: _Call) -> Response:
    file = call.service.content.of(call.caller).open(call.request.path_params["sha256"])
    size = os.fstat(file.fileno()).st_size
    try:
        part = read_range(call.request.headers.get("range"), size)
    except ValueError:
        file.close()
        wrong = Problem("invalid", "The range begins behind the end of the object.", 416)
        raise NodeProblem(wrong) from None
    return ObjectResponse(file, size, part)


async def _execute(call: _Call) -> Response:
    if not call.service.is_accepting:
        raise refusal(
            "busy", "The node ends.", next_step="Try again when it is back.", retry_after_s=5
        )
    body, document = await _read_json(call, ExecuteBody)
    document.pop("wait_s", None)
    runs, request = call.service.runs, canonical_json(document)
    return _run_state(await runs.execute(call.caller, body, request, call.admission))


async def _state(call: _Call) -> Response:
    wait_s = _number(call.request.query_params.get("wait_s"), MAX_WAIT_S)
    return _run_state(await call.service.runs.state(call.caller, _run_of(call), wait_s))


async def _cancel(call: _Call) -> Response:
    body, _ = await _read_json(call, CancelBody)
    return _run_state(await call.service.runs.cancel(call.caller, _run_of(call), body))


async def _events(call: _Call) -> Response:
    after = call.request.headers.get("last-event-id", "0")
    if not (after.isascii() and after.isdecimal() and len(after) <= 15):
        raise refusal("invalid", "Last-Event-ID isn't the id of an event.")
    runs, thread_id = call.service.runs, _run_of(call)
    await runs.state(call.caller, thread_id)  # refused before the stream begins
    return EventStream(runs.events(call.caller, thread_id, int(after)))


def _run_of(call: _Call) -> str:
    thread_id: str = call.request.path_params["thread_id"]
    if not is_thread_id(thread_id):
        raise refusal("not_found", "You have no run of this id here.")
    return thread_id


def _number(text: str | None, most: float) -> float:
    try:
        number = float(text or 0)
    except ValueError:
        number = -1.0
    if not number >= 0:
        raise refusal("invalid", "wait_s isn't a number of seconds.")
    return min(number, most)


def _run_state(state: RunState) -> Response:
    return _document(state, 202 if state.report is None else 200)
