"""What a graph may do, against what it does."""

import re
from collections.abc import Mapping
from typing import Final

from ryecore.graph.model import AgentVertex
from ryecore.graph.validation.drafts import Draft
from ryecore.graph.validation.problems import Place, Problems, did_you_mean
from ryecore.policy.capabilities import allows, capability_of
from ryecore.policy.hooks import Hook

__all__ = ["check_permissions"]

_SEGMENT: Final = re.compile(r"[A-Za-z0-9_*][A-Za-z0-9_*-]*")
_ACTIONS: Final = ("execute", "fetch", "sign")
_KINDS: Final = ("tool", "directive", "knowledge")
_FORM: Final = "it is rye.<execute|fetch|sign>.<tool|directive|knowledge>.<dotted id>"


def check_permissions(
    declared: tuple[str, ...] | None,
    drafts: Mapping[str, Draft],
    hooks: tuple[Hook, ...],
    agents_have_tools: bool,
    problems: Problems,
) -> None:
    """Note permissions of a wrong form, actions that none covers, and those that cover nothing.

    Args:
        declared: The graph's permissions; None where they can't be read.
        drafts: Its nodes.
        hooks: Its hooks, which act within the same permissions.
        agents_have_tools: Whether agents of it call tools, which need permissions too.
        problems: Told what is wrong.
    """
    if declared is None:
        return
    for index, one in enumerate(declared):
        why = _what_is_wrong(one)
        if why:
            problems.error(("permissions", index), f"{one!r} is no permission: {why}")
    needed: list[tuple[Place, str, str]] = [
        (
            draft.at("action"),
            capability_of("execute", draft.item.kind, draft.item.id),
            str(draft.item),
        )
        for draft in drafts.values()
        if draft.item is not None
    ]
    needed += [
        (("config", "hooks"), capability_of(action.primary, action.item.kind, action.item.id),
         f"{action.item} of the hook {hook.id!r}")
        for hook in hooks
        for action in hook.actions
        if action.primary is not None and action.item is not None
    ]  # fmt: skip
    for place, capability, item in needed:
        if not allows(declared, capability):
            problems.error(place, f"No permission covers {item}: add {capability}.")
    _warn_of_tools(declared, drafts, problems)
    if agents_have_tools or any(
        d.item is not None and d.item.kind != "tool" for d in drafts.values()
    ):
        return  # what those call is not known here
    used = {capability for _, capability, _ in needed}
    for index, one in enumerate(declared):
        if "*" not in one and one not in used and not _what_is_wrong(one):
            problems.warn(("permissions", index), f"No action of the graph needs {one}.")


def _warn_of_tools(
    declared: tuple[str, ...], drafts: Mapping[str, Draft], problems: Problems
) -> None:
    """Warn of signed tools that an agent is offered and may not call.

    What a function of the host needs is the host's to say.
    """
    for draft in drafts.values():
        if not isinstance(draft.vertex, AgentVertex):
            continue
        narrowed = draft.vertex.node.tools
        for name in draft.vertex.agent.tools if narrowed is None else narrowed:
            if not name.startswith("tool:"):
                continue
            capability = capability_of("execute", "tool", name.removeprefix("tool:"))
            if not allows(declared, capability):
                problems.warn(
                    draft.at("tools" if narrowed is not None else "agent_ref"),
                    f"No permission covers {name}, which the agent may call: add {capability}.",
                )


def _what_is_wrong(permission: str) -> str:
    """What is wrong with a permission; empty where nothing is."""
    if "/" in permission:
        return f"ids are dotted here, as in {permission.replace('/', '.')}."
    parts = permission.split(".")
    if parts[0] != "rye" or len(parts) == 1:
        return f"{_FORM}, or rye.* for everything."
    if not all(_SEGMENT.fullmatch(part) for part in parts):
        return f"{_FORM}, with * for any text."
    for part, known in zip(parts[1:], (_ACTIONS, _KINDS), strict=False):
        if "*" not in part and part not in known:
            return f"{part!r} is none of {', '.join(known)}.{did_you_mean(part, known)}"
    if parts[1] == "sign" and "*" in permission:
        return "no wildcard grants signing; name the item."
    if len(parts) < 4 and "*" not in parts[-1]:
        return f"{_FORM}."
    return ""
