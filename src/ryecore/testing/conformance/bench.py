"""The fixture of the suite's cases, and how a case is run."""

import json
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, Final, Literal, TypeAlias
from unittest import SkipTest

import anyio
import anyio.to_thread

from ryecore.frozen import frozen
from ryecore.llm import (
    LlmError,
    LlmProvider,
    LlmRequest,
    LlmResult,
    MediaStore,
    MemoryMediaStore,
    Message,
    Part,
    ReasoningPart,
    StreamChunk,
    StreamFold,
    ToolCallPart,
)
from ryecore.testing.conformance.script import Feature, MadeMedia, Script, ScriptPart, Wire
from ryecore.testing.conformance.server import WireServer

__all__ = [
    "KEY",
    "Backend",
    "Bench",
    "CaseResult",
    "Cases",
    "case",
    "check",
    "equal",
    "everything_in",
    "run_cases",
]

KEY: Final = "test-key-5f2d9c81"
_CASE_S: Final = 60.0

Backend: TypeAlias = Literal["asyncio", "trio"]


class Cases:
    """The adapter under test, and the base of each group of cases.

    Attributes:
        wire: The vendor's format.
        model: The model to ask.
        backends: The event loops that the adapter works on.
        cut_step: The step in bytes at which streams are cut; 1 for after every byte.
    """

    wire: ClassVar[Wire]
    model: ClassVar[str] = "model-under-test"
    backends: ClassVar[tuple[Backend, ...]] = ("asyncio", "trio")
    cut_step: ClassVar[int] = 1

    def make_provider(self, base_url: str) -> LlmProvider:
        """Return the adapter for a server at this address. Called in a running loop."""
        raise NotImplementedError

    def needs(self, *features: Feature) -> None:
        """Skip the case if the vendor lacks a feature."""
        for feature in features:
            if feature in self.wire.lacks:
                raise SkipTest(f"This vendor has no {feature.replace('_', ' ')}.")


class Bench:
    """A server, and a provider that uses it.

    Attributes:
        server: The server; `server.answer` sets its answers.
        provider: The adapter under test.
        wire: The vendor's format.
        model: The model to ask.
        backend: The event loop that runs.
        media: The store of media.
    """

    def __init__(
        self, server: WireServer, provider: LlmProvider, cases: Cases, backend: Backend
    ) -> None:
        self.server = server
        self.provider = provider
        self.wire = cases.wire
        self.model = cases.model
        self.cut_step = cases.cut_step
        self.backend: Backend = backend
        self.media: MediaStore = MemoryMediaStore()

    def request(self, text: str = "Hello?", **settings: Any) -> LlmRequest:
        """Return a request with one message of the user, or with these settings."""
        settings.setdefault("messages", (Message.user(text),))
        return LlmRequest(self.model, **settings)

    async def chunks(self, request: LlmRequest | None = None, key: str = KEY) -> list[StreamChunk]:
        """Return all chunks of one streamed answer."""
        stream = self.provider.stream(request or self.request(), key=key, media=self.media)
        return [chunk async for chunk in stream]

    async def streamed(self, request: LlmRequest | None = None, key: str = KEY) -> LlmResult:
        """Return a streamed answer, folded. It must end in order."""
        chunks = await self.chunks(request, key)
        fold = StreamFold(self.provider.provider_id, self.model)
        for chunk in chunks:
            check(fold.end is None, "A chunk follows the StreamEnd.")
            fold.add(chunk)
        check(fold.end is not None, "The stream ends without a StreamEnd.")
        return fold.result()

    async def generated(self, request: LlmRequest | None = None, key: str = KEY) -> LlmResult:
        """Return a whole answer."""
        return await self.provider.generate(request or self.request(), key=key, media=self.media)

    async def both(self, script: Script, request: LlmRequest | None = None) -> LlmResult:
        """Ask for the script as a stream and as a whole; both must say what it says."""
        self.server.answer(script)
        streamed = await self.streamed(request)
        generated = await self.generated(request)
        for how, result in (("streamed", streamed), ("generated", generated)):
            equal(_plain(result.parts), _plain(self.expected(script)), f"the {how} parts")
            equal(result.stop_reason, script.stop_reason, f"the {how} stop reason")
            equal(result.usage, script.usage, f"the {how} usage")
            equal(result.model, script.model, f"the {how} answer's model")
            equal(result.provider, self.provider.provider_id, f"the {how} answer's provider")
        return streamed

    def expected(self, script: Script) -> tuple[Part, ...]:
        """Return the parts that a script should become."""
        return tuple(self._expected(part) for part in script.parts)

    def _expected(self, part: ScriptPart) -> Part:
        if isinstance(part, MadeMedia):
            return self.media.put(part.content, part.media_type)
        if isinstance(part, ReasoningPart):
            return ReasoningPart(part.text, self.provider.provider_id, part.opaque)
        return part

    async def failed(
        self, request: LlmRequest | None = None, key: str = KEY, *, stream: bool = True
    ) -> LlmError:
        """Send a request, and return its error: an LlmError that names provider and model.

        Args:
            request: The request; by default, one with a short text.
            key: The credential.
            stream: Whether to request a stream.
        """
        how = "stream" if stream else "generate"
        try:
            await (self.chunks(request, key) if stream else self.generated(request, key))
        except LlmError as error:
            failed = error
        except Exception as error:
            raise AssertionError(f"{how} raised {error!r} instead of an LlmError.") from error
        else:
            raise AssertionError(f"{how} returned an answer for a failure.")
        equal(failed.provider, self.provider.provider_id, f"the provider of {how}'s error")
        equal(failed.model, self.model, f"the model of {how}'s error")
        check(key not in everything_in(failed), f"The key stands in {how}'s error.")
        return failed

    async def wait_until(self, condition: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Wait until something holds at the server.

        Raises:
            AssertionError: The time is up.
        """
        held = await anyio.to_thread.run_sync(self.server.wait_until, condition, timeout_s)
        check(held, f"Within {timeout_s:g} s this did not happen: {what}.")


def case(
    *features: Feature,
) -> Callable[[Callable[[Any, Bench], Awaitable[None]]], Callable[[Any], None]]:
    """Make a test of an async method: once on each event loop, with a server and a provider.

    The test is a plain method without arguments, so that any runner can call it.

    Args:
        features: The features that the vendor must have.
    """

    def decorate(method: Callable[[Any, Bench], Awaitable[None]]) -> Callable[[Any], None]:
        def test(self: Cases) -> None:
            self.needs(*features)
            for backend in self.backends:
                with WireServer(self.wire) as server:
                    try:
                        anyio.run(_run, self, method, server, backend, backend=backend)
                    finally:
                        if server.problems:
                            raise server.problems[0]

        test.__name__, test.__qualname__ = method.__name__, method.__qualname__
        test.__doc__, test.__module__ = method.__doc__, method.__module__
        return test

    return decorate


async def _run(
    cases: Cases,
    method: Callable[[Any, Bench], Awaitable[None]],
    server: WireServer,
    backend: Backend,
) -> None:
    provider = cases.make_provider(server.base_url)
    try:
        with anyio.fail_after(_CASE_S):
            await method(cases, Bench(server, provider, cases, backend))
    finally:
        with anyio.CancelScope(shield=True):
            await close(provider)


async def close(provider: LlmProvider) -> None:
    """Close a provider, if it can be closed."""
    if (aclose := getattr(provider, "aclose", None)) is not None:
        await aclose()


def check(holds: bool, otherwise: str) -> None:
    """Fail the case unless something holds.

    Raises:
        AssertionError: It doesn't.
    """
    if not holds:
        raise AssertionError(otherwise)


def equal(actual: object, expected: object, what: str) -> None:
    """Fail the case unless two things are equal.

    Raises:
        AssertionError: They aren't.
    """
    if actual != expected:
        raise AssertionError(
            f"Not as expected: {what}.\n  came:     {actual!r}\n  expected: {expected!r}"
        )


def everything_in(error: BaseException) -> str:
    """Return all texts in an error and its causes, as a log, a debugger or a pickle shows them."""
    texts: list[str] = []
    seen: set[int] = set()
    pending: list[object] = [error]
    while pending:
        one = pending.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, BaseException):
            texts += [*traceback.format_exception_only(one), repr(one), str(one)]
            pending += [*one.args, one.__cause__, one.__context__, *vars(one).values()]
        elif isinstance(one, dict):
            pending += [*one, *one.values()]
        elif isinstance(one, (list, tuple, set, frozenset)):
            pending += one
        else:
            headers = getattr(one, "headers", None)
            texts += [str(one), repr(one), str(getattr(headers, "raw", ""))]
            pending.append(getattr(one, "request", None))
    return "\n".join(texts)


def _plain(parts: tuple[Part, ...]) -> list[object]:
    """Return parts to compare, with the values of arguments that are JSON."""
    return [
        ("call", part.call_id, part.name, _value(part.arguments_json))
        if isinstance(part, ToolCallPart)
        else part
        for part in parts
    ]


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return ("no JSON", text)


@frozen
class CaseResult:
    """The result of one case.

    Attributes:
        name: The case.
        outcome: Whether it passed, failed, or was skipped.
        error: Why it failed or was skipped; None where it passed.
    """

    name: str
    outcome: Literal["passed", "failed", "skipped"]
    error: BaseException | None = None


def run_cases(suite: type[object], names: Sequence[str]) -> tuple[CaseResult, ...]:
    """Run the named cases of a suite, or all, one after another."""
    cases = names or [name for name in dir(suite) if name.startswith("test_")]
    return tuple(_result(suite, name) for name in cases)


def _result(suite: type[object], name: str) -> CaseResult:
    try:
        getattr(suite(), name)()
    except SkipTest as skipped:
        return CaseResult(name, "skipped", skipped)
    except Exception as error:
        return CaseResult(name, "failed", error)
    return CaseResult(name, "passed")
