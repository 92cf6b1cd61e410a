"""The suite catches nodes that are wrong, each by the case that is meant for it."""

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ryecore.node.identity import NodeIdentity
from ryecore.remote.protocol.signatures import combine_headers, sign_response
from ryecore.testing.node import CallerGrant, NodeConformance, NodeUnderTest, run_node_conformance
from tests.conformance.nodes import OwnNode, mounted_node

Wrap = Callable[[ASGIApp, NodeIdentity], ASGIApp]
Change = Callable[[Scope, Response, NodeIdentity], None]


def _answering(change: Change) -> Wrap:
    """A node whose answers are changed once they are whole."""

    def wrap(app: ASGIApp, identity: NodeIdentity) -> ASGIApp:
        async def changed(scope: Scope, receive: Receive, send: Send) -> None:
            sent: list[Message] = []

            async def keep(message: Message) -> None:
                sent.append(message)

            await app(scope, receive, keep)
            body = b"".join(one.get("body", b"") for one in sent[1:])
            response = Response(body, sent[0]["status"])
            response.raw_headers = list(sent[0]["headers"])
            change(scope, response, identity)
            await response(scope, receive, send)

        return changed

    return wrap


def _before(change: Callable[[Scope, NodeIdentity], None]) -> Wrap:
    """A node that does something before each request."""

    def wrap(app: ASGIApp, identity: NodeIdentity) -> ASGIApp:
        async def changed(scope: Scope, receive: Receive, send: Send) -> None:
            change(scope, identity)
            await app(scope, receive, send)

        return changed

    return wrap


def _sign(scope: Scope, response: Response, identity: NodeIdentity, body: bytes | None) -> None:
    request = combine_headers(scope["headers"])
    response.headers.update(
        sign_response(
            identity.key,
            status=response.status_code,
            body=body,
            request=request,
            now_s=int(time.time()),
        )
    )


def _leave_unsigned(scope: Scope, response: Response, identity: NodeIdentity) -> None:
    for name in ("signature", "signature-input"):
        del response.headers[name]


def _bind_to_nothing(scope: Scope, response: Response, identity: NodeIdentity) -> None:
    signed = sign_response(
        identity.key,
        status=response.status_code,
        body=bytes(response.body),
        request=None,
        now_s=int(time.time()),
    )
    response.headers.update(signed)


def _tell_why(scope: Scope, response: Response, identity: NodeIdentity) -> None:
    if response.status_code == 401 and "signature" in combine_headers(scope["headers"]):
        document = json.loads(bytes(response.body)) | {"detail": "The signature is wrong."}
        response.body = json.dumps(document).encode()
        response.headers["content-length"] = str(len(response.body))
        _sign(scope, response, identity, response.body)


def _share_objects(scope: Scope, response: Response, identity: NodeIdentity) -> None:
    name = scope["path"].rpartition("/")[2]
    found = [one for one in identity.folder.glob(f"data/*/objects/*/{name}") if len(name) == 64]
    if response.status_code == 404 and found:
        response.body, response.status_code = found[0].read_bytes(), 200
        response.headers["content-length"] = str(len(response.body))
        del response.headers["content-digest"]
        _sign(scope, response, identity, None)


def _let_sites_in(scope: Scope, response: Response, identity: NodeIdentity) -> None:
    response.headers["access-control-allow-origin"] = "*"


def _invent_results(scope: Scope, response: Response, identity: NodeIdentity) -> None:
    document = json.loads(bytes(response.body) or b"{}") if "execute" in scope["path"] else {}
    if isinstance(document, dict) and document.get("report"):
        document["report"]["result"] = {"status": "success", "data": "invented"}
        response.body = json.dumps(document).encode()
        response.headers["content-length"] = str(len(response.body))
        _sign(scope, response, identity, response.body)


def _forget(*tables: str) -> Callable[[Scope, NodeIdentity], None]:
    def forget(scope: Scope, identity: NodeIdentity) -> None:
        with closing(sqlite3.connect(identity.folder / "node.db", timeout=10)) as database:
            for table in tables:
                database.execute(f"DELETE FROM {table}")
            database.commit()

    return forget


def _forget_the_last_event(scope: Scope, identity: NodeIdentity) -> None:
    del MutableHeaders(scope=scope)["last-event-id"]


@pytest.mark.parametrize(
    ("wrap", "name"),
    [
        (_answering(_leave_unsigned), "test_the_identity_is_signed"),
        (_answering(_bind_to_nothing), "test_answers_are_bound_to_their_requests"),
        (_answering(_tell_why), "test_the_one_who_is_not_admitted_learns_nothing"),
        (_answering(_share_objects), "test_callers_are_kept_apart"),
        (_answering(_let_sites_in), "test_other_methods_and_paths"),
        (_answering(_invent_results), "test_a_tool_runs_and_its_report_is_signed"),
        (_before(_forget("nonces")), "test_a_request_counts_once"),
        (_before(_forget("nonces")), "test_a_request_counts_once_over_a_restart"),
        (_before(_forget("runs", "events")), "test_another_request_under_an_id_is_refused"),
        (_before(_forget_the_last_event), "test_events_resume_behind_an_id"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_it_catches_what_a_node_answers(wrap: Wrap, name: str) -> None:
    class Mutant(NodeConformance):
        @contextmanager
        def open_node(self, folder: Path) -> Iterator[NodeUnderTest]:
            with mounted_node(folder, wrap) as node:
                yield node

    _fails(Mutant, name)


@pytest.mark.parametrize(
    ("ignored", "name"),
    [
        ({"scopes": ("rye.execute.*",)}, "test_a_run_may_do_what_caller_and_request_both_say"),
        ({"scopes": ("rye.*",)}, "test_metrics_need_their_scope"),
        ({"not_after": None}, "test_an_expired_and_a_revoked_key_are_unknown"),
        ({"max_runs": 9}, "test_runs_at_once"),
        ({"max_bytes": 2**40}, "test_bytes_of_a_caller"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_it_catches_what_a_node_ignores(ignored: Mapping[str, Any], name: str) -> None:
    class Careless(OwnNode):
        def allow(self, grant: CallerGrant) -> None:
            super().allow(evolve(grant, **ignored))

    class Mutant(NodeConformance):
        @contextmanager
        def open_node(self, folder: Path) -> Iterator[NodeUnderTest]:
            with mounted_node(folder) as node:
                yield Careless(node.address, node.identity)

    _fails(Mutant, name)


def _fails(suite: type[NodeConformance], name: str) -> None:
    (found,) = run_node_conformance(suite, name)
    assert found.outcome == "failed"
    # The node's own task group wraps what ends its block.
    assert isinstance(found.error, AssertionError | ExceptionGroup)
