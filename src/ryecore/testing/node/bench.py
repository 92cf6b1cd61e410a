"""The fixture of the node's suite: a running node, and callers that it allows."""

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

from attrs import evolve

from ryecore.frozen import frozen
from ryecore.items.signature import utc_now
from ryecore.items.signing import sign_content
from ryecore.lillux.keys import PublicKey, SigningKey
from ryecore.state.records import holds
from ryecore.testing.conformance.bench import CaseResult, check, equal, run_cases
from ryecore.testing.node.wire import (
    Address,
    NodeAnswer,
    SignedRequest,
    canonical,
    check_answer,
    exchange,
    problem_of,
)

__all__ = [
    "CallerGrant",
    "NodeCases",
    "NodeUnderTest",
    "Opener",
    "Peer",
    "Tree",
    "node_case",
    "piece",
    "restart_case",
    "run_node_conformance",
    "sha256_of",
]

_SHELL = "rye/core/runtimes/bash/bash"


@frozen
class CallerGrant:
    """What an operator grants to a caller.

    Attributes:
        key: The caller's public key.
        scopes: The capabilities that its runs may have at most.
        not_after: When it ends, in UTC; None for no end.
        max_runs: How many runs it may have at once.
        max_bytes: How many bytes it may keep.
    """

    key: PublicKey
    scopes: tuple[str, ...] = ("rye.execute.*", "rye.fetch.*")
    not_after: str | None = None
    max_runs: int = 16
    max_bytes: int = 2**30


class NodeUnderTest(Protocol):
    """A running node, as its author makes it known to the suite."""

    @property
    def address(self) -> Address:
        """Where it answers."""
        ...

    @property
    def key(self) -> PublicKey:
        """Its public key, from its operator."""
        ...

    def allow(self, grant: CallerGrant) -> None:
        """Allow a caller, from the next request on."""
        ...

    def revoke(self, key: PublicKey) -> None:
        """Allow a caller no longer, from the next request on."""
        ...


class NodeCases:
    """The node under test, and the base of each group of cases.

    Attributes:
        keeps_open: Whether the cases share one node, which is opened once. Some open others, to
            start them anew.
    """

    keeps_open: ClassVar[bool] = True
    _shared: ClassVar[dict[type, tuple[ExitStack, NodeUnderTest]]] = {}

    def open_node(self, folder: Path) -> AbstractContextManager[NodeUnderTest]:
        """Run the node that belongs to a folder, which is empty at first.

        A second opening, after the first has ended, is the same node: with its keys, its callers
        and what it remembers, at the same address.

        Args:
            folder: A folder for the node.
        """
        raise NotImplementedError

    @classmethod
    def teardown_class(cls) -> None:
        """End the node that the cases shared. pytest calls it."""
        stack, _ = cls._shared.pop(cls, (None, None))
        if stack is not None:
            stack.close()

    @classmethod
    def tearDownClass(cls) -> None:
        """End the node that the cases shared. unittest calls it."""
        cls.teardown_class()

    def _node(self) -> NodeUnderTest:
        shared = type(self)._shared
        if type(self) not in shared:
            stack = ExitStack()
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="rye-node-"))
            shared[type(self)] = stack, stack.enter_context(self.open_node(Path(folder)))
        return shared[type(self)][1]


class Peer:
    """A caller of the node.

    Args:
        node: The node.
        key: The caller's key; by default a fresh one.

    Attributes:
        node: The node.
        key: The caller's key.
    """

    def __init__(self, node: NodeUnderTest, key: SigningKey | None = None) -> None:
        self.node = node
        self.key: SigningKey = key or SigningKey.generate()

    @classmethod
    def allowed(cls, node: NodeUnderTest, **grant: Any) -> "Peer":
        """Return a caller that the node allows, with these scopes and quotas."""
        peer = cls(node)
        node.allow(evolve(CallerGrant(peer.key.public), **grant))
        return peer

    def request(self, method: str, target: str, body: bytes = b"") -> SignedRequest:
        """Return the right signature of a request to be."""
        address = self.node.address
        path, _, query = (address.prefix + target).partition("?")
        return SignedRequest(
            self.key, self.node.key.fingerprint, method, address.authority, path, query, body
        )

    def send(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        *,
        more: Mapping[str, str] | None = None,
        signed: SignedRequest | None = None,
        stream: bool = False,
        first_bytes: int | None = None,
    ) -> NodeAnswer:
        """Send a request, and prove its answer.

        Args:
            method: The method.
            target: Path and query.
            body: The body.
            more: Further headers.
            signed: What is signed, where that isn't what is sent.
            stream: Whether the answer may have no digest.
            first_bytes: How many bytes of a stream are awaited, before the connection is ended;
                None for all.
        """
        headers = (signed or self.request(method, target, body)).headers()
        sent = {**headers, **(more or {})}
        answer = exchange(self.node.address, method, target, sent, body, first_bytes=first_bytes)
        is_stream = stream and answer.status in (200, 206)
        check_answer(answer, self.node.key, headers, stream=is_stream)
        return answer

    def get(self, target: str, **more: str) -> NodeAnswer:
        """Get a path, with headers whose names have `_` for `-`."""
        named = {name.replace("_", "-"): value for name, value in more.items()}
        is_object = target.startswith("/objects/")
        return self.send("GET", target, more=named, stream=is_object)

    def post(self, target: str, document: object) -> NodeAnswer:
        """Post a document."""
        return self.send("POST", target, canonical(document))

    def found(self, target: str) -> Any:
        """Return the document at a path."""
        answer = self.get(target)
        equal(answer.status, 200, f"the status of GET {target}: {answer.body[:300]!r}")
        return answer.document()

    def refused(self, answer: NodeAnswer, problem: str, *statuses: int) -> NodeAnswer:
        """Check that an answer refuses a request, and why."""
        shown = f"{answer.status} {answer.body[:300]!r}"
        check(answer.status in statuses, f"Not refused with {statuses}, but: {shown}")
        equal(problem_of(answer), problem, f"the problem in {shown}")
        return answer

    # Content

    def store(self, *pieces: bytes) -> Any:
        """Store pieces, and return the answer's document."""
        answer = self.send("POST", "/objects", b"".join(pieces))
        equal(answer.status, 200, f"the status of pieces: {answer.body[:300]!r}")
        return answer.document()

    def push(self, tree: "Tree") -> str:
        """Push a tree, and return the id of its snapshot."""
        answer = self.post("/snapshots", tree.snapshot())
        equal(answer.status, 200, f"the status of a snapshot: {answer.body[:300]!r}")
        missing = {one["sha256"] for one in answer.document()["missing"]}
        bodies = [piece(one) for one in tree.contents() if sha256_of(one) in missing]
        if bodies:
            self.store(*bodies)
        snapshot: str = answer.document()["snapshot"]
        return snapshot

    # Runs

    def execute_body(
        self, snapshot: str, item_id: str, thread_id: str, **more: Any
    ) -> dict[str, Any]:
        """Return the body of a request to run a tool."""
        return {
            "thread_id": thread_id,
            "item_id": item_id,
            "parameters": {},
            "thread": "inline",
            "snapshot": snapshot,
            "ryecore": self.found_version(),
            "wait_s": 30,
        } | more

    def found_version(self) -> str:
        """Return the node's own version."""
        answer = exchange(self.node.address, "GET", "/identity")
        version: str = answer.document()["ryecore"]
        return version

    def execute(self, body: Mapping[str, Any]) -> Any:
        """Run an item, and return the state; a report in it is proved."""
        answer = self.post("/execute", body)
        check(answer.status in (200, 202), f"{answer.status}: {answer.body[:500]!r}")
        return self.proved_state(answer, str(body["thread_id"]))

    def state(self, thread_id: str, wait_s: float = 0) -> Any:
        """Return the state of a run; a report in it is proved."""
        answer = self.get(f"/runs/{thread_id}?wait_s={wait_s:g}")
        return self.proved_state(answer, thread_id)

    def proved_state(self, answer: NodeAnswer, thread_id: str) -> Any:
        """Return an answer's state of a run; a report in it is proved."""
        state = answer.document()
        shown = f"{answer.status} {answer.body[:300]!r}"
        equal(state.get("thread_id"), thread_id, f"the id in {shown}")
        has_ended = state["status"] != "running"
        equal(answer.status, 200 if has_ended else 202, f"the status of {shown}")
        equal(state["report"] is not None, has_ended, f"whether there is a report in {shown}")
        if has_ended:
            self.prove(state["report"], thread_id)
            equal(state["report"]["status"], state["status"], "the status in the report")
        return state

    def prove(self, report: Mapping[str, Any], thread_id: str) -> None:
        """Prove that the node made a report about this caller's run."""
        check(
            holds("node-report", report, self.node.key),
            f"A report isn't signed by the node's key: {report}",
        )
        equal(report["thread_id"], thread_id, "the run in its report")
        equal(report["caller"], self.key.public.fingerprint, "the caller in the report")
        equal(report["node"], self.node.key.fingerprint, "the node in the report")
        check(report["created_at"] <= report["ended_at"] <= utc_now(), "A report has odd times.")


class Tree:
    """The files of a snapshot, with tools that a key signs."""

    def __init__(self, key: SigningKey) -> None:
        self.key = key
        self.files: dict[tuple[str, str], bytes] = {}

    def write(
        self, path: str, content: bytes, space: Literal["project", "user"] = "project"
    ) -> None:
        """Add a file."""
        self.files[space, path] = content

    def shell(self, item_id: str, script: str, *, key: SigningKey | None = None) -> str:
        """Add a shell tool, signed, and return its ref."""
        text = f"# __executor_id__ = {_SHELL!r}\n\n{script}\n".encode()
        relative = f"{item_id}.sh"
        content, _, _ = sign_content(text, ".sh", "tool", relative, key or self.key)
        self.write(f".ai/tools/{relative}", content)
        return f"tool:{item_id}"

    def snapshot(self) -> dict[str, Any]:
        """Return the snapshot's document."""
        return {
            "version": 1,
            "files": [
                {
                    "space": space,
                    "path": path,
                    "sha256": sha256_of(content),
                    "size_bytes": len(content),
                    "executable": False,
                }
                for (space, path), content in sorted(self.files.items())
            ],
        }

    def contents(self) -> Iterable[bytes]:
        """Return the contents of the files."""
        return self.files.values()


def sha256_of(content: bytes) -> str:
    """Return the SHA-256 of a content, as hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def piece(
    content: bytes,
    *,
    whole: bytes | None = None,
    offset: int = 0,
    sha256: str | None = None,
    size_bytes: int | None = None,
) -> bytes:
    """Return a piece as the body of `POST /objects` holds it.

    Args:
        content: Its bytes.
        whole: The object that it is a part of; by default it is the whole.
        offset: Where it begins.
        sha256: The hash that it claims.
        size_bytes: The length of the object that it claims.
    """
    whole = content if whole is None else whole
    name, size = sha256 or sha256_of(whole), len(whole) if size_bytes is None else size_bytes
    head = f'{{"sha256":"{name}","size_bytes":{size},"offset":{offset},"length":{len(content)}}}\n'
    return head.encode() + content


Case: TypeAlias = Callable[[Any, NodeUnderTest], None]
Opener: TypeAlias = "Callable[[], AbstractContextManager[NodeUnderTest]]"
RestartCase: TypeAlias = "Callable[[Any, Opener, Path], None]"


def node_case(body: Case) -> Callable[[Any], None]:
    """Make a test method of a case. The cases share one node, and each has callers of its own."""

    @wraps(body)
    def method(self: NodeCases) -> None:
        if self.keeps_open:
            body(self, self._node())
            return
        with (
            tempfile.TemporaryDirectory(prefix="rye-node-") as folder,
            self.open_node(Path(folder)) as node,
        ):
            body(self, node)

    del method.__wrapped__  # a runner would ask for its arguments
    return method


def restart_case(body: RestartCase) -> Callable[[Any], None]:
    """Make a test method of a case that opens a node of its own, and opens it again.

    It also gets a folder, for what the node's tools leave there.
    """

    @wraps(body)
    def method(self: NodeCases) -> None:
        with tempfile.TemporaryDirectory(prefix="rye-node-") as folder:
            place = Path(folder, "node")
            place.mkdir()
            body(self, lambda: self.open_node(place), Path(folder))

    del method.__wrapped__
    return method


def run_node_conformance(suite: type[NodeCases], *names: str) -> tuple[CaseResult, ...]:
    """Run the suite without a test runner, one case after another.

    Args:
        suite: The subclass for a node.
        names: The cases to run; all where none is named.

    Returns:
        The result of each case.
    """
    try:
        return run_cases(suite, names)
    finally:
        suite.teardown_class()
