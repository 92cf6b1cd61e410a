"""A conversation longer than the model's context: summaries take the place of its beginning.

A scripted model answers, within a context of 3,000 tokens; a second one summarizes.
"""

import re

import anyio

from ryecore import Agent, AgentRunnerDeps, AgentSession, AgentTurnLimits, tool
from ryecore.agent import AgentEvent, Compact, ConversationCompacted
from ryecore.llm import Capabilities, LlmRequest, Price, Usage
from ryecore.testing import FunctionProvider, ScriptedProvider, call

PLACES = 60
WINDOW = Capabilities(context_tokens=3_000)


@tool
async def sound(place: int) -> str:
    """The depth of the water at a place, and all that the sensor says."""
    return f"Place {place}: {place % 7 + 3} metres. " + "Raw data follow. " * 25


def summarize(request: LlmRequest) -> str:
    task = request.messages[0].text  # a real model would read it
    earlier = sum(map(int, re.findall(r"(\d+) places are sounded", task)))
    return f"{earlier + task.count('sound returned')} places are sounded; none is below 3 metres."


def show(event: AgentEvent) -> None:
    if isinstance(event, ConversationCompacted):
        print(f"{event.tokens_before:,} tokens become {event.tokens_after:,}")


async def main() -> None:
    script = [*(call("sound", {"place": place}) for place in range(PLACES)), "All are sounded."]
    models = {
        "large": ScriptedProvider(script, capabilities=WINDOW),
        "small": FunctionProvider(summarize, usage=Usage(2_000, 30)),
    }
    deps = AgentRunnerDeps(
        resolve_provider=models.get,
        key_for=lambda _: "",
        limits=AgentTurnLimits(max_tool_turns=PLACES),
        price_of=lambda provider, _: Price("3", "15") if provider == "large" else Price("1", "5"),
    )
    pilot = Agent(name="pilot", provider="large", model="large-1", tools=[sound])
    scribe = Agent(name="scribe", provider="small", model="small-1")
    session = AgentSession(pilot, deps, compact=Compact(at=0.8, by=scribe), on_event=show)
    reply = await session.send(f"Sound the {PLACES} places of the harbour.")
    print(f"{reply} {reply.turns} turns, {len(session.messages)} messages, ${reply.cost_usd:.4f}")
    print(session.messages[0].text)


anyio.run(main)
