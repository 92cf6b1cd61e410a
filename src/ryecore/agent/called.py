"""Agents that are called on behalf of another one: as its tools, and to summarize for it."""

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Unpack

from attrs import evolve, fields

from ryecore.agent.budgets import SessionBudget, checked_limits
from ryecore.agent.compaction import SUMMARIZER_PROMPT, Compact, Summarize, summary_task
from ryecore.agent.content import check_content
from ryecore.agent.deps import AgentRunnerDeps
from ryecore.agent.events import AgentEvent, Emit
from ryecore.agent.outcome import turn_error
from ryecore.agent.output import typed_answer
from ryecore.agent.reply import Reply, checked_listener, emit_end, failed_end, reply_of
from ryecore.agent.replying import SessionTurns
from ryecore.agent.saved import Asked
from ryecore.errors import AgentTurnError, ConfigError, ToolExecutionError
from ryecore.lillux.digests import sha256_hex
from ryecore.llm.media import MemoryMediaStore
from ryecore.llm.parts import Message
from ryecore.policy.context import CallContext
from ryecore.policy.limits import DEFAULT_LIMITS, Limits
from ryecore.tools.approval import function_text, tool_digest
from ryecore.tools.context import Denied, ToolApprovalRequest, ToolContext
from ryecore.tools.definition import ToolDef, ToolOptions

if TYPE_CHECKING:
    from ryecore.agent.model import Agent

__all__ = ["AgentCaller", "agent_tool", "summarizer"]

_MOST_CALLS: Final = DEFAULT_LIMITS.depth or 0
_TASK: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "task": {
            "type": "string",
            "description": "What to do, with all that has to be known for it: it sees nothing of "
            "this conversation.",
        }
    },
    "required": ["task"],
    "additionalProperties": False,
}
_NOBODY: Final = Denied("nobody can be asked while this agent is called by another one.")


async def ask_agent(
    agent: "Agent[Any]",
    deps: AgentRunnerDeps,
    call: CallContext,
    text: str,
    *,
    tool_deps: object = None,
    limits: Limits | None = None,
    on_event: Emit | None = None,
    may_compact: bool = True,
) -> Reply[Any]:
    """Ask an agent in a conversation of its own, on behalf of a call; raise an AgentTurnError.

    What it costs counts in the caller's budget, and the caller's labels, deadline and cancellation
    hold for it. A call that waits for an approval is denied where the host asks nobody at once.
    """
    if call.depth >= _MOST_CALLS:
        raise turn_error(
            "turn_limit",
            f"Agents may call each other {_MOST_CALLS} deep, so {agent.name} isn't called.",
            next_step="Take the tools that lead back to the same agent from one of them.",
        )
    asking = deps if deps.approve is not None else evolve(deps, approve=_deny)
    check_content([text])
    emit = checked_listener(on_event) if on_event else _ignore
    budget = SessionBudget(agent.name, checked_limits(limits), asking, call.budget)
    own_call = evolve(call, depth=call.depth + 1, budget=budget)
    compact = deps.compact if may_compact else None
    turns = SessionTurns(
        agent,
        asking,
        session_id=agent.name,
        emit=emit,
        call=own_call,
        budget=budget,
        media=MemoryMediaStore(),
        tool_deps=tool_deps,
        compact=compact,
        summarize=summarizer(compact, agent, deps, own_call, tool_deps) if compact else None,
    )
    meter = turns.setup.meter
    try:
        result = await turns.run(Asked(Message.user(text), 0), [], (), None, None)
        reply = reply_of(result, meter.spent)
        emit_end(emit, reply, agent.name)
    except BaseException as problem:
        with suppress(Exception):  # whatever the listener does, the failure is told
            emit(failed_end(problem, agent.name, meter.spent))
        raise
    return reply


def summarizer(
    compact: Compact,
    agent: "Agent[Any]",
    deps: AgentRunnerDeps,
    call: CallContext,
    tool_deps: object = None,
) -> Summarize:
    """Return the function that summarizes the conversation of an agent.

    Where an agent summarizes, what it costs counts in the budget of the call.
    """
    by = compact.by
    if callable(by):
        return by
    asked = by or evolve(
        agent,
        name=f"{agent.name}-summarizer",
        system_prompt=SUMMARIZER_PROMPT,
        tools=(),
        output_type=None,
        output_schema=None,
        output_check=None,
        max_output_tokens=None,
        cache=None,
    )

    async def summarize(messages: tuple[Message, ...]) -> str:
        task = summary_task(messages)
        reply = await ask_agent(asked, deps, call, task, tool_deps=tool_deps, may_compact=False)
        if reply.stop_reason == "length":
            raise turn_error("validation", "The summary was cut off, as it grew too long.")
        return reply.text

    return summarize


def _ignore(_: AgentEvent) -> None:
    return None


async def _deny(_: ToolApprovalRequest) -> Denied:
    return _NOBODY


def agent_tool(
    agent: "Agent[Any]",
    deps: AgentRunnerDeps | None,
    *,
    name: str | None,
    description: str | None,
    limits: Limits | None,
    on_event: Emit | None,
    **options: Unpack[ToolOptions],
) -> ToolDef:
    """Return the tool that asks an agent; see `Agent.as_tool`."""
    if deps is not None and not isinstance(deps, AgentRunnerDeps):
        raise ConfigError(
            f"as_tool needs AgentRunnerDeps, not a {type(deps).__name__}.",
            next_step="Pass them, or leave them out for those of the agent that calls.",
        )
    if options.get("timeout_s") is None:
        options["timeout_s"] = math.inf  # its caller's time bounds it, and its own turns
    return ToolDef(
        name=agent.name if name is None else name,
        description=description or agent.description or f"Ask the agent {agent.name}.",
        parameters=_TASK,
        run=AgentCaller(agent, deps, limits, on_event),
        source=f"the agent {agent.name}",
        **options,
    )


class AgentCaller:
    """Asks an agent, as the function of a tool."""

    __slots__ = ("_agent", "_deps", "_limits", "_on_event")

    def __init__(
        self,
        agent: "Agent[Any]",
        deps: AgentRunnerDeps | None,
        limits: Limits | None,
        on_event: Emit | None,
    ) -> None:
        self._agent = agent
        self._deps = deps
        self._limits = limits
        self._on_event = on_event

    async def __call__(self, arguments: Mapping[str, Any], ctx: ToolContext[Any]) -> object:
        """Ask the agent, and return its output."""
        try:
            reply = await ask_agent(
                self._agent,
                self._of_call(ctx),
                ctx.call,
                arguments["task"],
                tool_deps=ctx.deps,
                limits=self._limits,
                on_event=self._on_event,
            )
        except AgentTurnError as error:
            problem = f"The agent {self._agent.name} failed ({error.code}): {error}"
        else:
            output: object = reply.output
            return {"text": output, "media": list(reply.media)} if reply.media else output
        raise ToolExecutionError(problem, tool_name=self._agent.name)

    def _of_call(self, ctx: ToolContext[Any]) -> AgentRunnerDeps:
        """Return the agent's own dependencies, or those of its caller, with what it inherits."""
        deps = self._deps or _deps_above(ctx)
        if deps is None:
            raise ToolExecutionError(
                f"The agent {self._agent.name} has no providers here.",
                next_step="Write agent.as_tool(deps), for it isn't called by another agent.",
                tool_name=self._agent.name,
            )
        above = _deps_above(ctx)
        approve = deps.approve or (above and above.approve)
        return evolve(deps, approve=approve or None, media=deps.media or ctx.media)

    async def digest(self, ctx: ToolContext[Any], seen: list[object]) -> str:
        """Return the digest of what decides what the agent does, for approvals of the tool.

        An agent that was seen before, with the same dependencies, counts by its place.
        """
        deps = self._deps or _deps_above(ctx)
        compact = None if deps is None else deps.compact
        this = (id(self), id(deps and deps.registry), id(compact))
        if this in seen:
            return f"agent {seen.index(this)}"
        seen.append(this)
        inner = evolve(ctx, agent_deps=deps)
        parts = [repr(self._limits), await _agent_text(self._agent, inner, seen)]
        if compact is not None:
            by = compact.by
            parts.append(repr(evolve(compact, by=None)))
            if by is not None:
                parts.append(
                    function_text(by) if callable(by) else await _agent_text(by, inner, seen)
                )
        return sha256_hex(json.dumps(parts).encode())


def _deps_above(ctx: ToolContext[Any]) -> AgentRunnerDeps | None:
    return ctx.agent_deps if isinstance(ctx.agent_deps, AgentRunnerDeps) else None


async def _agent_text(agent: "Agent[Any]", ctx: ToolContext[Any], seen: list[object]) -> str:
    """Return what decides what an agent does as text, with the digest of each of its tools."""
    deps = _deps_above(ctx)
    declared = {one.name: getattr(agent, one.name) for one in fields(type(agent))}
    for name in ("description", "cache"):  # which decide only what callers read, and the price
        del declared[name]
    if agent.output_type is not None:
        typed = typed_answer(agent.output_type)
        declared["output_type"] = None if typed is None else typed.schema
    if agent.output_check is not None:
        declared["output_check"] = function_text(agent.output_check)
    declared["tools"] = tools = list[object]()
    for one in agent.tools:
        tool = one if isinstance(one, ToolDef) else deps.registry.get(one) if deps else None
        if tool is None:
            tools.append(one)  # which the host lacks, so that the agent fails
        else:
            tools.append([await tool_digest(tool, ctx, seen), tool.needs_approval])
    return json.dumps(declared, sort_keys=True, default=repr)
