"""The fallback chain: ask a plan's entries one after the other until one answers."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from inspect import isawaitable
from typing import Final, TypeAlias

import anyio
import anyio.lowlevel
from attrs import evolve

from ryecore.errors.agents import LlmError, LlmErrorKind
from ryecore.llm.admission import Admission, admission_of
from ryecore.llm.attempt import Attempt
from ryecore.llm.fallback_rules import (
    AttemptOutcome,
    AttemptRecord,
    ChainOptions,
    Failover,
    FallbackPlanEntry,
    GiveUp,
    Refresh,
    Refuse,
    RetryAttempt,
    fetch_key,
    verdict_of,
)
from ryecore.llm.parts import Message, ReasoningPart
from ryecore.llm.request import Contents, LlmRequest, missing_capabilities
from ryecore.llm.result import LlmResult
from ryecore.llm.stream import StreamChunk
from ryecore.policy.cancelling import cancelled_by
from ryecore.policy.context import CancelToken

__all__ = ["FallbackChain"]

_MAX_SAID: Final = 8
_MAX_SAID_CHARS: Final = 160

_Ask: TypeAlias = Callable[[Attempt, str], Awaitable[None]]


class FallbackChain:
    """Asks the entries of a plan in order, until one answers.

    One chain serves one conversation, call after call, and remembers the cooldowns of providers. It
    doesn't take several calls at the same time. It stores no key.

    Args:
        plan: The entries, in order.
        options: Credentials, clocks, hooks and bounds.

    Attributes:
        plan: The entries.
        active_provider: The id of the provider of the current attempt, or of the last one.
        active_model: The model of that attempt.

    Raises:
        ValueError: The plan is empty.

    Source: docs/design/agent-node.md; decisions 50, 51 and 56.
    """

    def __init__(self, plan: Sequence[FallbackPlanEntry], options: ChainOptions) -> None:
        if not plan:
            raise ValueError("A fallback plan needs at least one entry.")
        self.plan = tuple(plan)
        self._ids = tuple(entry.provider.provider_id for entry in self.plan)
        self._options = options
        self._contents = Contents()
        self._cool_until: dict[str, float] = {}
        self._admission = admission_of(self.plan, options)
        self.active_provider = self._ids[0]
        self.active_model = self.plan[0].model

    async def stream(
        self,
        request: LlmRequest,
        on_chunk: Callable[[StreamChunk], None] | None = None,
        *,
        cancellation: CancelToken | None = None,
    ) -> LlmResult:
        """Request a streamed answer.

        Chunks go to a function, and not to an async generator's consumer, because a cancel scope
        guards each attempt and must not span a `yield`. Once a part of the answer has arrived,
        no other entry is asked: the answer is finished or the call fails.

        Args:
            request: The request. Each entry's own model replaces `request.model`; reasoning of
                other providers is left out.
            on_chunk: Called with each chunk as it arrives. Its exceptions end the call.
            cancellation: Ends the call at once, with an error of the kind `cancelled`.

        Returns:
            The whole answer.

        Raises:
            LlmError: No entry could answer; the kind is that of the last failure.
        """
        options = self._options

        def ask(attempt: Attempt, key: str) -> Awaitable[None]:
            return attempt.stream(key, options.media, options.stall_s, on_chunk)

        return await self._call(request, ask, cancellation)

    async def generate(
        self, request: LlmRequest, *, cancellation: CancelToken | None = None
    ) -> LlmResult:
        """Request a whole answer. Prefer `stream` for long answers.

        Args:
            request: The request.
            cancellation: Ends the call at once, with an error of the kind `cancelled`.

        Raises:
            LlmError: No entry could answer; the kind is that of the last failure.
        """
        options = self._options

        def ask(attempt: Attempt, key: str) -> Awaitable[None]:
            return attempt.generate(key, options.media, options.stall_s)

        return await self._call(request, ask, cancellation)

    def _call(
        self, request: LlmRequest, ask: _Ask, cancellation: CancelToken | None
    ) -> Awaitable[LlmResult]:
        walk = _Walk(self, request, ask, cancellation)
        return walk.run() if cancellation is None else self._cancellable(walk, cancellation)

    async def _cancellable(self, walk: "_Walk", cancellation: CancelToken) -> LlmResult:
        if not cancellation.cancelled:
            with cancelled_by(cancellation):
                return await walk.run()
        raise self._cancelled()

    def _cancelled(self) -> LlmError:
        return LlmError(
            "The call to a model was cancelled by its caller.",
            kind="cancelled",
            provider=self.active_provider,
            model=self.active_model,
        )


class _Walk:
    """One call's walk through the plan."""

    __slots__ = (
        "_ask", "_cancellation", "_chain", "_lacking", "_last_resort", "_left", "_number",
        "_options", "_passed_over", "_refreshed", "_request", "_said", "_waited_s",
    )  # fmt: skip

    def __init__(
        self,
        chain: FallbackChain,
        request: LlmRequest,
        ask: _Ask,
        cancellation: CancelToken | None,
    ) -> None:
        self._chain = chain
        self._options = chain._options
        self._request = request
        self._ask = ask
        self._cancellation = cancellation
        chain._contents.look(request.messages)
        if chain._admission is not None:
            chain._admission.look(request)
        self._left = list(range(len(chain.plan)))  # neither tried nor excluded
        self._lacking: set[str] = set()
        self._passed_over: set[int] = set()
        self._said: list[str] = []
        self._number = 0
        self._refreshed = False
        self._last_resort = False
        self._waited_s = 0.0

    async def run(self) -> LlmResult:
        """Ask entry after entry until one answers."""
        error: LlmError | None = None
        while (index := self._next()) is not None:
            if error is not None:
                self._say(error.provider, error.model, error.message)
            entry_result, error = await self._ask_entry(index)
            if entry_result is not None:
                return entry_result
        raise self._told(error) if error is not None else self._unable()

    def _next(self) -> int | None:
        """Return the next entry that is able to answer; one in cooldown only if all others are.

        If all that remain are in cooldown, the one whose cooldown ends first is asked, once.
        """
        cooled: list[int] = []
        for index in tuple(self._left):
            if index not in self._passed_over and (missing := self._missing(index)):
                self._left.remove(index)
                self._lacking.update(missing)
                self._skip(index, f"it can't do: {', '.join(missing)}")
            elif self._cooldown_s(index) > 0:
                cooled.append(index)
            else:
                break
        else:
            if not cooled or self._last_resort:
                self._pass_over(cooled)
                return None
            self._last_resort = True
            index = min(cooled, key=self._cooldown_s)
            cooled.remove(index)
        if cooled:
            self._pass_over(cooled)
        self._left.remove(index)
        return index

    async def _ask_entry(self, index: int) -> tuple[LlmResult | None, LlmError | None]:
        """Ask one entry, with its retries; return the answer, or the reason to ask the next one."""
        chain, options = self._chain, self._options
        entry, provider_id = chain.plan[index], chain._ids[index]
        request = _request_for(self._request, entry.model, provider_id, chain._contents)
        chain.active_provider, chain.active_model = provider_id, entry.model
        attempt, self._waited_s = 1, 0.0
        admission = chain._admission
        while True:
            tried = Attempt(entry.provider, provider_id, request)
            if admission is None or not admission.is_limited(index):
                await self._try(index, request, tried)
            elif too_much := await self._try_within_limit(admission, index, request, tried):
                return None, too_much
            error = tried.error
            if error is None:
                chain._cool_until.pop(provider_id, None)
                return tried.result, None
            verdict = verdict_of(
                error.kind,
                attempt=attempt,
                max_attempts=entry.max_attempts,
                backoff=entry.backoff,
                random=options.random(),
                retry_after_s=error.retry_after_s,
                content_started=tried.has_content,
                refreshed=self._refreshed,
                has_refresh=options.on_auth_error is not None,
                has_other=self._has_other(provider_id),
                cooldown_s=options.cooldown_s,
            )
            match verdict:
                case GiveUp():
                    raise self._told(error)
                case RetryAttempt(delay_s):
                    attempt += 1
                    await options.sleep(delay_s)
                    continue
                case Refresh():
                    self._refreshed = True
                    if await self._refresh(provider_id):
                        continue
                    cooldown_s = options.cooldown_s
                case Failover(cooldown_s):
                    pass
            if cooldown_s > 0:
                chain._cool_until[provider_id] = options.now() + cooldown_s
            return None, error

    async def _try_within_limit(
        self, admission: Admission, index: int, request: LlmRequest, tried: Attempt
    ) -> LlmError | None:
        """Make one attempt once its rate limit has room, or return why that is too late."""
        try:
            admitted = await admission.enter(index)
        except LlmError as error:
            self._record_skipped(index, error.message)
            return error
        except BaseException:
            with suppress(Exception):  # only what ended the wait counts
                self._record_skipped(index, "it was cancelled while it waited for its rate limit")
            raise
        self._waited_s = admitted.waited_s
        try:
            await self._try(index, request, tried)
        finally:
            admitted.leave(tried)
        return None

    async def _try(self, index: int, request: LlmRequest, tried: Attempt) -> None:
        """Make one attempt, and record its outcome, even when cancelled."""
        self._number += 1
        began = self._options.now()
        try:
            await self._send(tried, index, request)
            if tried.error is not None:
                await anyio.lowlevel.checkpoint_if_cancelled()
        except BaseException as problem:
            who = f"The host raised {type(problem).__name__}."
            reason = who if isinstance(problem, Exception) else "The caller cancelled it."
            with suppress(Exception):  # only what ended the attempt counts
                self._record(index, tried, "cancelled", began, "cancelled", reason)
            raise
        error = tried.error
        if error is None:
            self._record(index, tried, "success", began)
            return
        if self._cancellation is not None and self._cancellation.cancelled:
            error = tried.error = self._chain._cancelled()
        outcome: AttemptOutcome = "error"
        if error.kind == "cancelled":
            outcome = "cancelled"
        elif error.kind == "refused":
            outcome = "refused"
        elif tried.has_content:
            outcome = "cut"
        self._record(index, tried, outcome, began, error.kind, error.message)

    async def _send(self, tried: Attempt, index: int, request: LlmRequest) -> None:
        """Fetch the credential, ask the host's gate, and make the attempt."""
        options = self._options
        provider_id = self._chain._ids[index]
        key = await fetch_key(options, provider_id, request.model)
        if isinstance(key, LlmError):
            tried.error = key
            return
        if options.before_attempt is not None:
            verdict = options.before_attempt(self._chain.plan[index], request, self._number)
            if isawaitable(verdict):
                verdict = await verdict
            if isinstance(verdict, Refuse):
                tried.fail("refused", verdict.message, code=verdict.code)
                return
        tried.is_sent = True
        await self._ask(tried, key)

    async def _refresh(self, provider_id: str) -> bool:
        renew = self._options.on_auth_error
        if renew is None:
            return False
        try:
            renewed = renew(provider_id)
            return bool(await renewed if isawaitable(renewed) else renewed)
        except Exception:  # its text may hold a secret
            return False

    def _missing(self, index: int) -> tuple[str, ...]:
        entry = self._chain.plan[index]
        try:
            has = entry.provider.capabilities(entry.model)
        except Exception:  # unknown capabilities count as possible; the attempt will show
            return ()
        return missing_capabilities(self._request, has, self._chain._contents)

    def _cooldown_s(self, index: int) -> float:
        """Return the seconds for which an entry is passed over if another one can be asked.

        A wait for its rate limit counts where it is longer than its `backoff.cap_s`.
        """
        chain = self._chain
        until = chain._cool_until
        if chain._admission is None and not until:
            return 0.0
        cools_s = until.get(chain._ids[index], 0.0) - self._options.now() if until else 0.0
        return max(self._long_wait_s(index), cools_s)

    def _long_wait_s(self, index: int) -> float:
        """Return the seconds for which an entry has no room in its rate limit."""
        admission = self._chain._admission
        return 0.0 if admission is None else admission.long_wait_s(index)

    def _has_other(self, provider_id: str) -> bool:
        ids = self._chain._ids
        return any(
            ids[index] != provider_id and self._cooldown_s(index) <= 0 and not self._missing(index)
            for index in self._left
        )

    def _pass_over(self, indices: list[int]) -> None:
        for index in indices:
            if index not in self._passed_over:
                self._passed_over.add(index)
                is_full = self._long_wait_s(index) > 0
                why = "has no room in its rate limit" if is_full else "is in cooldown"
                self._skip(index, f"its provider {why} for {self._cooldown_s(index):.1f} s")

    def _skip(self, index: int, reason: str) -> None:
        entry, provider_id = self._chain.plan[index], self._chain._ids[index]
        self._say(provider_id, entry.model, f"skipped, because {reason}.")
        self._record_skipped(index, reason)

    def _record_skipped(self, index: int, reason: str) -> None:
        entry, provider_id = self._chain.plan[index], self._chain._ids[index]
        if self._options.on_attempt is not None:
            self._options.on_attempt(
                AttemptRecord(index, provider_id, entry.model, 0, "skipped", None, reason)
            )

    def _record(
        self,
        index: int,
        tried: Attempt,
        outcome: AttemptOutcome,
        began: float,
        kind: LlmErrorKind | None = None,
        reason: str = "",
    ) -> None:
        if self._options.on_attempt is None:
            return
        result, usage = tried.result, tried.usage
        is_counted = outcome == "success" and usage is not None and usage.total_output_tokens > 0
        self._options.on_attempt(
            AttemptRecord(
                index,
                self._chain._ids[index],
                self._chain.plan[index].model,
                self._number,
                outcome,
                kind,
                reason,
                usage=usage,
                text_bytes=0 if is_counted else tried.text_bytes,
                duration_ms=(self._options.now() - began) * 1000,
                stop_reason=None if result is None else result.stop_reason,
                response_model="" if result is None else result.model,
                status=None if tried.error is None else tried.error.status,
                waited_ms=self._waited_s * 1000,
            )
        )

    def _say(self, provider_id: str, model: str, what: str) -> None:
        said = what if len(what) <= _MAX_SAID_CHARS else f"{what[:_MAX_SAID_CHARS]}…"
        self._said.append(f"{provider_id}/{model}: {said}")

    def _told(self, error: LlmError) -> LlmError:
        """Return the error that ends the call, with the failures before it."""
        if self._said and error.kind != "cancelled":
            error.message = f"{error.message} Of the other entries: {_listed(self._said)}"
            error.args = (error.message,)
        return error

    def _unable(self) -> LlmError:
        missing = ", ".join(sorted(self._lacking))
        return LlmError(
            f"No model of the plan can do what the request needs: {missing}.",
            next_step="Add a model that can to the plan, or leave that out of the request.",
            kind="bad_request",
            provider=self._chain._ids[0],
            model=self._chain.plan[0].model,
        )


def _listed(said: list[str]) -> str:
    more = len(said) - _MAX_SAID
    return " ".join(said[:_MAX_SAID]) + (f" And {more} more." if more > 0 else "")


def _request_for(
    request: LlmRequest, model: str, provider_id: str, contents: Contents
) -> LlmRequest:
    """Return the request for one entry: with its model, without other providers' reasoning."""
    messages = request.messages
    if not contents.reasoned_by <= {provider_id}:
        messages = tuple(_stripped(messages, provider_id))
    elif model == request.model:
        return request
    return evolve(request, model=model, messages=messages)


def _stripped(messages: tuple[Message, ...], provider_id: str) -> Iterator[Message]:
    for message in messages:
        kept = tuple(
            part
            for part in message.parts
            if type(part) is not ReasoningPart or part.origin == provider_id
        )
        if len(kept) == len(message.parts):
            yield message
        elif kept:
            yield Message(message.role, kept)
