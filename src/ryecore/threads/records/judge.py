"""The decisions of a thread, recomputed from its records. Pure.

Source: decision 47.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, cast

from attrs import evolve, field

from ryecore.convert.money import write_usd
from ryecore.directives.inputs import Declared
from ryecore.display.text import exact_dollars
from ryecore.errors import TextTooLong
from ryecore.frozen import frozen
from ryecore.llm.parts import ToolCallPart
from ryecore.policy.hooks import Hook, HookLayer
from ryecore.policy.limits import Limits, read_limits
from ryecore.policy.permissions import Action
from ryecore.state.model import Cost
from ryecore.state.transcript_format import Record
from ryecore.threads.calls.item_tools import BUILT_IN_NAMES, grants, needed_for
from ryecore.threads.calls.returning import RETURN_NAMES, Returned, check_outputs
from ryecore.threads.harness import SafetyHarness
from ryecore.threads.records.messages import CognitionOut, read_payload
from ryecore.threads.records.report import About, Difference, ReplayReport

__all__ = ["Today", "judge_records"]

_CLOCKS_APART_S: Final = 1.0
"""The tolerance between deadlines on a monotonic clock and records' times of day."""
_ACTIONS: Final[Mapping[str, Action]] = {name: action for action, name in BUILT_IN_NAMES.items()}
_UNREBUILT: Final = {
    "error": "hooks on errors: what their conditions saw is not recorded",
    "context_window_pressure": "hooks on context pressure: what they saw is not recorded",
    "context_limit_reached": "hooks on a full context: what they saw is not recorded",
}


@frozen
class Today:
    """The current directive, its instructions without the inputs, and the configuration.

    The hooks are its own and those of the configuration, in order.
    """

    directive: str
    body: str = field(repr=False)
    capabilities: frozenset[str]
    hooks: tuple[Hook, ...]
    outputs: tuple[Declared, ...]


def judge_records(
    thread_id: str,
    records: Iterable[Record],
    today: Today | None,
    *,
    recorded_cost: Cost | None,
    project_path: str,
    unchecked: Sequence[str] = (),
) -> ReplayReport:
    """Recompute the decisions of a thread, as far as the current directive can be read.

    Its cost in the registry is None while it runs. `unchecked` are decisions that can't be judged,
    with the caller's reasons.
    """
    judge = _Judge(thread_id, today, project_path, list(unchecked))
    for record in records:
        judge.see(record)
    return judge.report(recorded_cost)


class _Judge:
    """The judge of a thread, which follows its records and recomputes each decision."""

    def __init__(
        self, thread_id: str, today: Today | None, project_path: str, unchecked: list[str]
    ) -> None:
        self._thread_id = thread_id
        self._today = today
        self._project_path = project_path
        self._unchecked = unchecked
        self._differences: list[Difference] = []
        self._no_more: list[Difference] = []
        self._decisions = 0
        self._turn = 0
        self._asked: set[int] = set()
        self._cost = Cost()
        self._is_counted = self._was_allowed = False
        self._harness = SafetyHarness(Limits(), ())
        self._started_at = 0.0
        self._now = 0.0
        self._began: Mapping[str, Any] = {}
        self._tools: Mapping[str, object] | None = None
        self._continues = ""
        self._has_begun = False
        self._held: dict[int, tuple[int, int, str]] = {}
        self._was_refused = False
        self._overspent: list[int] = []
        self._is_stopped = False
        self._calls: dict[str, list[ToolCallPart]] = {}
        self._returns: list[Mapping[str, object]] = []
        self._has_returned = False
        self._has_results = False
        self._is_nudge = False
        self._hooks: list[Mapping[str, Any]] = []
        self._waiting: list[tuple[str, Mapping[str, object]]] = []

    # Records

    def see(self, record: Record) -> None:
        """Judge the next record."""
        self._now = record.timestamp
        said = record.payload
        match record.type:
            case "thread_started":
                self._begin(record, said)
            case "thread_resumed" | "thread_forked":
                self._continues = str(said.get("from", ""))
            case "cognition_in":
                self._read_in()
            case "model_call":
                self._ask(said)
            case "model_call_end":
                self._charge(said)
            case "budget_overspent":
                if self._overspent:
                    self._overspent.pop()
                self._is_stopped = True
            case "cognition_out":
                self._answer(said)
            case "tool_call_result":
                self._result(said)
            case "directive_return":
                self._return(said)
            case "limit_reached":
                self._limit(said)
            case "hook":
                self._hooks.append(said)
            case "checkpoint":
                self._close()
            case _ if record.type.removeprefix("thread_") in (
                "completed", "error", "cancelled", "continued", "killed",
            ):  # fmt: skip
                self._end(record.type.removeprefix("thread_"), said)
            case _:
                pass

    def _begin(self, record: Record, said: Mapping[str, Any]) -> None:
        self._began, self._started_at = said, record.timestamp
        try:
            limits = read_limits(said.get("limits") or {})
        except ValueError as problem:  # from a later version
            self._unchecked.append(f"limits: {problem}")
            limits = Limits()
        capabilities = said.get("capabilities")
        self._harness = SafetyHarness(
            limits,
            map(str, capabilities if isinstance(capabilities, list) else ()),
            started=record.timestamp,
            now=lambda: self._now,
        )
        tools = said.get("tools")
        self._tools = tools if isinstance(tools, dict) else None

    def _read_in(self) -> None:
        self._is_nudge = True
        if self._has_begun:
            return
        self._has_begun = True
        context: dict[str, object] = {
            "directive": self._began.get("directive"),
            "directive_body": self._today.body if self._today else "",
            "model": self._began.get("model"),
            "limits": self._harness.limits.to_dict(),
            "inputs": self._began.get("inputs") or {},
            "thread_id": self._thread_id,
        }
        if self._continues:
            context["previous_thread_id"] = self._continues
        self._judge_hooks("thread_continued" if self._continues else "thread_started", context)

    # Limits and money

    def _ask(self, said: Mapping[str, Any]) -> None:
        """Judge a try: its limits, and its hold."""
        self._is_nudge = False
        turn = _whole(said.get("turn"))
        if turn not in self._asked:
            self._check_returned()
            self._turn = turn
            self._was_refused = False
            self._decisions += 1
            hit = self._harness.check_limits(self._cost)
            if hit is not None and not self._is_within(hit.code, hit.current, hit.maximum):
                self._differ("limits", "the model was asked", hit.message)
            if self._is_stopped:
                said_why = "a try had cost more than was held for it, so nothing may be asked"
                self._differ("limits", "the model was asked", said_why)
            self._asked.add(turn)
            self._is_counted = self._was_allowed = False
        if not self._is_counted:
            self._count_turn(1)
        spend = _whole(said.get("held_spend_microcents"))
        tokens = _whole(said.get("held_tokens"))
        self._held[_whole(said.get("attempt"))] = (spend, tokens, self._above(spend, tokens))

    def _is_within(self, code: str, current: float, maximum: float) -> bool:
        return code == "duration_exceeded" and current < maximum + _CLOCKS_APART_S

    def _above(self, spend: int, tokens: int) -> str:
        """Return why the thread's own account can't hold an amount; empty if it can."""
        limits, cost = self._harness.limits, self._cost
        used = cost.tokens
        if limits.tokens is not None and used + tokens > limits.tokens:
            return f"{limits.tokens - used:,} tokens were left of {limits.tokens:,}"
        most = limits.spend_microcents
        if most is not None and cost.spend_microcents + spend > most:
            left = exact_dollars(most - cost.spend_microcents)
            return f"{left} were left of {exact_dollars(most)}"
        return ""

    def _count_turn(self, by: int) -> None:
        self._cost = evolve(self._cost, turns=self._cost.turns + by)
        self._is_counted = by > 0

    def _charge(self, said: Mapping[str, Any]) -> None:
        """Judge the cost of a try."""
        spend, tokens, above = self._held.pop(_whole(said.get("attempt")), (0, 0, ""))
        read, written = _whole(said.get("input_tokens")), _whole(said.get("output_tokens"))
        actual = _whole(said.get("spend_microcents"))
        self._decisions += 1
        if said.get("outcome") == "refused":
            self._was_refused = True
            if not self._was_allowed:  # so the turn doesn't count
                self._count_turn(-1)
            return
        self._was_allowed = True
        if above:
            self._differ("holds", f"{tokens:,} tokens and {exact_dollars(spend)} were held", above)
        if actual > spend or read + written > tokens:
            self._overspent.append(self._turn)
        cost = self._cost
        self._cost = Cost(
            cost.turns,
            cost.input_tokens + read,
            cost.output_tokens + written,
            cost.spend_microcents + actual,
            cost.estimated or said.get("mark") in ("estimated", "assumed"),
            cost.cached_tokens + _whole(said.get("cached_tokens")),
            cost.unpriced + (said.get("priced") is False),
            cost.cache_saved_microcents + _whole(said.get("cache_saved_microcents")),
        )

    def _limit(self, said: Mapping[str, Any]) -> None:
        code, cost, limits = said.get("limit_code"), self._cost, self._harness.limits
        current, most = said.get("current_value"), said.get("current_max")
        self._decisions += 1
        used: float
        allowed: float | None
        met = True
        if code == "turns_exceeded":
            used, allowed = cost.turns, limits.turns
            met = allowed is None or used >= allowed
        elif code == "tokens_exceeded":
            used, allowed = cost.tokens, limits.tokens
            met = self._was_refused or self._is_stopped or allowed is None or used >= allowed
        elif code == "spend_exceeded":
            used = write_usd(cost.spend_microcents)
            most = limits.spend_microcents
            allowed = None if most is None else write_usd(most)
            met = self._was_refused or self._is_stopped or allowed is None or used >= allowed
        elif code == "duration_exceeded":
            used = self._now - self._started_at
            allowed = None if limits.duration_s is None else float(limits.duration_s)
            met = allowed is None or used >= allowed - _CLOCKS_APART_S
        else:
            return
        is_clock = code == "duration_exceeded"
        if not met or (not is_clock and not (_same(used, current) and _same(allowed, most))):
            self._differ(
                "limits", f"{code}: {_shown(current)} of {_shown(most)}",
                f"{_shown(used)} of {_shown(allowed)}",
            )  # fmt: skip
        facts = {"limit_code": code, "current_value": current, "current_max": most}
        self._waiting.append(
            ("limit", {**facts, "cost": cost.to_dict(), "thread_id": self._thread_id})
        )

    # Calls

    def _answer(self, said: Mapping[str, Any]) -> None:
        self._is_nudge = False
        self._calls.clear()
        for one in read_payload(said, CognitionOut).parts:
            if not isinstance(one, ToolCallPart):
                continue
            self._calls.setdefault(one.call_id, []).append(one)
            if one.name in RETURN_NAMES and self._today is not None:
                checked = check_outputs(self._today.outputs, one.arguments_json)
                self._decisions += 1
                if isinstance(checked, Returned):
                    self._returns.append(dict(checked.outputs))

    def _result(self, said: Mapping[str, Any]) -> None:
        self._has_results = True
        name, calls = str(said.get("tool", "")), self._calls.get(str(said.get("call_id")))
        if said.get("is_error") is True or not calls or name in RETURN_NAMES:
            return
        call = calls.pop(0)
        needed = self._needed(call)
        if needed is None:
            return
        self._decisions += 1
        if not needed:
            self._differ("permissions", f"{name} ran", "no such tool was offered to the model")
            return
        if not any(grants(self._harness.capabilities, one) for one in needed):
            self._differ("permissions", f"{name} ran", f"the thread lacked {needed[0]}")
        elif self._today is not None and not any(
            grants(self._today.capabilities, one) for one in needed
        ):
            self._no_more.append(
                Difference(
                    self._turn,
                    "permissions",
                    f"{name} ran",
                    f"{self._today.directive} doesn't grant {needed[0]}",
                )
            )

    def _needed(self, call: ToolCallPart) -> tuple[str, ...] | None:
        """Return the capabilities of which a call needs one; None if it needs none or is unknown.

        The result is empty if the model had no such tool.
        """
        action = _ACTIONS.get(call.name)
        if action is not None:
            return needed_for(action, call.arguments_json)
        if self._tools is None:
            return None
        if call.name not in self._tools:
            return ()
        capability = self._tools[call.name]
        return (capability,) if isinstance(capability, str) else None

    def _return(self, said: Mapping[str, Any]) -> None:
        outputs = said.get("outputs")
        self._has_returned = True
        if self._today is not None:
            self._decisions += 1
            expected = self._returns.pop(0) if self._returns else None
            if expected != outputs:
                self._differ(
                    "outputs", f"returned {_json(outputs)}",
                    "the outputs don't hold" if expected is None else f"returned {_json(expected)}",
                )  # fmt: skip
        context = {"outputs": outputs, "cost": self._cost.to_dict(), **self._who()}
        self._waiting.append(("directive_return", context))

    def _check_returned(self) -> None:
        for outputs in self._returns:
            self._differ("outputs", "nothing was returned", f"returned {_json(outputs)}")
        self._returns.clear()

    # Hooks

    def _close(self) -> None:
        """Judge a checkpoint: a turn with calls ends after its hooks."""
        self._flush()
        if self._has_results and not self._is_nudge and not self._has_returned:
            self._judge_hooks("after_step", {"cost": self._cost.to_dict(), **self._who()})
        self._has_results = False

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        for event, context in waiting:
            self._judge_hooks(event, context)

    def _judge_hooks(self, event: str, context: Mapping[str, object]) -> None:
        """Compare the hooks that would answer an event with those that did."""
        told = [one for one in self._hooks if one.get("event") == event]
        self._hooks = [one for one in self._hooks if one.get("event") != event]
        if self._today is None:
            return
        self._decisions += 1
        muted = self._began.get("muted_hooks") or ()
        expected: list[str] = []
        is_steered = False
        by_id = {str(one.get("id")): one for one in told}
        for hook in self._today.hooks:
            answers = True
            with suppress(TextTooLong):  # the thread has recorded such a hook as failed
                answers = hook.answers(event, context)
            if hook.key in muted or not answers:
                continue
            if is_steered and event == "limit" and hook.layer is not HookLayer.INFRASTRUCTURE:
                continue
            expected.append(hook.id)
            one = by_id.get(hook.id, {})
            is_steered = is_steered or ("control" in one and "ignored" not in one)
        acted = [str(one.get("id")) for one in told]
        if sorted(expected) != sorted(acted):
            self._differ(
                "hooks",
                f"{event}: {', '.join(acted) or 'no hook'} acted",
                f"{event}: {', '.join(expected) or 'no hook'} would act",
            )

    def _who(self) -> dict[str, object]:
        return {"thread_id": self._thread_id, "directive": self._began.get("directive")}

    # The end

    def _end(self, status: str, said: Mapping[str, Any]) -> None:
        self._flush()
        self._check_returned()
        cost = self._cost.to_dict()
        self._judge_hooks(
            "after_complete",
            {
                "thread_id": self._thread_id,
                "directive": self._began.get("directive"),
                "status": "completed" if status == "continued" else status,
                "cost": cost,
                "project_path": self._project_path,
            },
        )
        self._decisions += 1
        recorded = said.get("cost")
        if isinstance(recorded, dict) and recorded != cost:
            self._differ("cost", _json(recorded), _json(cost))
        required = [one.name for one in self._today.outputs if one.required] if self._today else []
        if status == "completed" and required and not self._has_returned:
            self._differ(
                "outputs", "completed", f"{', '.join(required)} had to be returned, and were not"
            )

    def report(self, recorded_cost: Cost | None) -> ReplayReport:
        """Return the report."""
        for turn in self._overspent:
            self._turn = turn
            self._differ("holds", "no record of it", "the try cost more than was held for it")
        if recorded_cost is not None and recorded_cost != self._cost:
            self._differ(
                "cost", f"the registry says {_json(recorded_cost.to_dict())}",
                _json(self._cost.to_dict()),
            )  # fmt: skip
        if self._tools is None:
            self._unchecked.append("the permissions of tools by name: they were not recorded")
        for event in dict.fromkeys(str(one.get("event")) for one in self._hooks):
            self._unchecked.append(
                _UNREBUILT.get(event, f"hooks on {event}: it is not known what they saw")
            )
        return ReplayReport(
            self._thread_id,
            len(self._asked),
            self._decisions,
            tuple(self._differences),
            tuple(self._no_more),
            tuple(self._unchecked),
        )

    def _differ(self, about: About, recorded: str, recomputed: str) -> None:
        self._differences.append(Difference(self._turn, about, recorded, recomputed))


def _whole(value: object) -> int:
    return value if type(value) is int else 0


def _same(one: float | None, other: object) -> bool:
    if one is None or not isinstance(other, int | float):
        return one is None and not other
    return abs(one - other) <= 1e-8


def _shown(value: object) -> str:
    return f"{cast('float', value):g}" if isinstance(value, int | float) else "no limit"


def _json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 200 else text[:197] + "..."
