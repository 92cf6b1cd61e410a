"""The making of media at endpoints of their own, at once or by a job.

Source: docs/design/agent-node.md#media; decision 59.
"""

import base64
import json
from collections.abc import Awaitable, Sequence
from typing import Final

from ryecore.agent.assembly import chain_options, plan_entry
from ryecore.agent.costs import CostMeter
from ryecore.agent.deps import AgentRunnerDeps, Egress
from ryecore.agent.node import TurnBudget
from ryecore.agent.outcome import NodeOutcome, turn_error
from ryecore.agent.policies import ask_gate
from ryecore.errors import LlmError
from ryecore.frozen import frozen
from ryecore.llm.admission import admission_of
from ryecore.llm.attempt import AskForMedia, call_for_media
from ryecore.llm.fallback_rules import FallbackPlanEntry, Refuse
from ryecore.llm.media import MediaStore
from ryecore.llm.provider import (
    LlmProvider,
    MediaJob,
    MediaOutcome,
    MediaProvider,
    MediaRequest,
)
from ryecore.llm.token_estimates import text_tokens
from ryecore.policy.context import CallContext

__all__ = ["MediaFork"]

_ANY_IMAGE: Final = "image/*"
_JOB: Final = "media:"


@frozen
class MediaFork:
    """Makes the media of one node. Only one provider is asked, without a fallback."""

    deps: AgentRunnerDeps
    call: CallContext
    node_id: str
    meter: CostMeter
    budget: TurnBudget | None = None

    async def generate(
        self, name: str, entry: FallbackPlanEntry, prompt: str, wanted: Sequence[str]
    ) -> NodeOutcome:
        """Make media of at most one wanted type, or start a job.

        `name` is the one by which the host resolves the provider.
        """
        if len(wanted) > 1:
            raise turn_error(
                "validation",
                f"'{self.node_id}' wants {' and '.join(wanted)}, but a model makes one at a time.",
                next_step="Make a vertex of each.",
            )
        maker, store = self._able(entry.provider)
        await self._gate(entry.provider.provider_id, entry.model)
        request = MediaRequest(entry.model, prompt, wanted[0] if wanted else _ANY_IMAGE)

        def ask(key: str) -> Awaitable[MediaOutcome]:
            return maker.generate_media(request, key=key, media=store)

        admission = admission_of((entry,), chain_options(self.deps, self.call, self.meter))
        if admission is None or not admission.is_limited(0):
            await self._hold(entry, prompt)
            return await self._outcome(name, entry, ask)
        admitted = await admission.enter(0)
        try:
            await self._hold(entry, prompt)
        except BaseException:
            admitted.give_back()
            raise
        error: LlmError | None = None
        try:
            return await self._outcome(name, entry, ask, admitted.waited_s)
        except LlmError as problem:
            error = problem
            raise
        finally:
            admitted.settle(0, error)  # only the request counts, as its tokens aren't known before

    async def poll(self, job_id: str) -> NodeOutcome:
        """Check a job by the id of a pending outcome."""
        name, model, job = _read_job(job_id)
        entry = plan_entry(self.deps, self.call, name, model)
        maker, store = self._able(entry.provider)
        return await self._outcome(
            name, entry, lambda key: maker.poll_media(job, key=key, media=store)
        )

    def _able(self, provider: LlmProvider) -> tuple[MediaProvider, MediaStore]:
        if not isinstance(provider, MediaProvider):
            raise turn_error(
                "internal",
                f"'{self.node_id}' needs generate_media, which {provider.provider_id} lacks.",
                next_step="Choose a provider that makes media, or correct resolve_media_surface.",
            )
        if self.deps.media is None:
            raise turn_error(
                "internal",
                f"'{self.node_id}' needs a media store, which the host doesn't offer.",
                next_step="Pass AgentRunnerDeps(media=FolderMediaStore(folder)).",
            )
        return provider, self.deps.media

    async def _gate(self, provider_id: str, model: str) -> None:
        """Ask the host's gate, with an estimate of zero, as media don't cost tokens."""
        if self.deps.pre_egress is None:
            return
        egress = Egress(self.node_id, provider_id, model, None, 0, None)
        refused = await ask_gate(self.deps.pre_egress, egress)
        if refused is not None:
            raise turn_error("budget_exceeded", refused.message)

    async def _hold(self, entry: FallbackPlanEntry, prompt: str) -> None:
        """Hold the possible cost. That of a job is settled once a poll has seen its end."""
        if self.budget is None:
            return
        await self.budget.begin_turn(1, entry, None)
        provider_id, tokens = entry.provider.provider_id, text_tokens(prompt)
        said = await self.budget.before_media(provider_id, entry.model, tokens)
        if isinstance(said, Refuse):
            raise turn_error("budget_exceeded", said.message)

    async def _outcome(
        self, name: str, entry: FallbackPlanEntry, ask: AskForMedia, waited_s: float = 0.0
    ) -> NodeOutcome:
        provider_id = entry.provider.provider_id
        made = await call_for_media(
            provider_id,
            entry.model,
            chain_options(self.deps, self.call, self.meter),
            ask,
            timeout_s=self.deps.limits.media_timeout_s,
            waited_s=waited_s,
        )
        if isinstance(made, MediaJob):
            job_id = _write_job(name, entry.model, made.job_id)
            return NodeOutcome("pending", tokens_used=self.meter.tokens_used, job_id=job_id)
        if not made.media:
            raise turn_error("provider_unavailable", f"{provider_id} made nothing.")
        return NodeOutcome(
            "completed", {"text": "", "media": list(made.media)}, self.meter.tokens_used
        )


def _write_job(provider: str, model: str, job: str) -> str:
    text = json.dumps([provider, model, job])
    return _JOB + base64.urlsafe_b64encode(text.encode()).decode()


def _read_job(job_id: str) -> tuple[str, str, str]:
    try:
        if not job_id.startswith(_JOB):
            raise ValueError
        read = json.loads(base64.urlsafe_b64decode(job_id.removeprefix(_JOB)))
        provider, model, job = read
        if not all(isinstance(one, str) for one in read):
            raise ValueError
    except (ValueError, TypeError):
        raise turn_error(
            "validation",
            f"{job_id[:80]!r} isn't the job of a pending outcome.",
            next_step="Pass NodeOutcome.job_id as it is.",
        ) from None
    return provider, model, job
