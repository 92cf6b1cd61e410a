"""What a directive may do, read from its `<permissions>` into capabilities.

Source: docs/design/threads.md#harness; decision 41.
"""

import re
from collections.abc import Mapping
from typing import Final

from ryecore.directives.markup import Element
from ryecore.frozen import frozen
from ryecore.policy.permissions import ASK_KINDS

__all__ = ["AcknowledgedRisk", "Permissions", "read_permissions"]

_ITEMS: Final = ("tool", "directive", "knowledge")
_KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "execute": _ITEMS,
    "fetch": _ITEMS,
    "sign": _ITEMS,
    "ask": ASK_KINDS,
}
"""The actions, and the kinds that each is granted for."""

_SEGMENT: Final = r"[A-Za-z0-9_*][A-Za-z0-9_*-]*"
_PATTERN: Final = re.compile(rf"{_SEGMENT}(?:[/.]{_SEGMENT})*")


@frozen
class AcknowledgedRisk:
    """A class of risk that the author knows of, and why it is taken."""

    risk: str
    reason: str = ""


@frozen
class Permissions:
    """The capabilities, as `rye.<action>.<kind>.<dotted id>`, and acknowledged risks."""

    capabilities: tuple[str, ...] = ()
    risks: tuple[AcknowledgedRisk, ...] = ()


def read_permissions(element: Element | None) -> Permissions:
    """Read `<permissions>`; without it, nothing is granted.

    `*` alone grants `rye.*`; `<execute>*</execute>` grants `rye.execute.*`;
    `<execute><tool>acme/*</tool></execute>` grants `rye.execute.tool.acme.*`, and
    `<ask><elicit>acme/*</elicit></ask>` lets these tools ask: `rye.ask.elicit.acme.*`.
    """
    if element is None:
        return Permissions()
    element.check(children=(*_KINDS, "acknowledge"))
    granted: list[str] = []
    risks: list[AcknowledgedRisk] = []
    if element.text:
        if element.text != "*":
            raise element.problem(f"holds the text {element.text[:40]!r}; text in it is * alone")
        granted.append("rye.*")
    for child in element.children:
        if child.tag == "acknowledge":
            child.check(attributes=("risk", "reason"))
            reason = child.text or child.attributes.get("reason", "")
            risks.append(AcknowledgedRisk(child.required("risk"), reason))
        else:
            granted += _granted_by(child)
    return Permissions(tuple(dict.fromkeys(granted)), tuple(risks))


def _granted_by(primary: Element) -> list[str]:
    kinds = _KINDS[primary.tag]
    primary.check(children=kinds)
    granted: list[str] = []
    if primary.text:
        if primary.text != "*":
            raise primary.problem(
                f"holds the text {primary.text[:40]!r}; write *, or name items in "
                f"<{'>, <'.join(kinds[:-1])}> or <{kinds[-1]}>"
            )
        granted.append(f"rye.{primary.tag}.*")
    for item in primary.children:
        item.check()
        if _PATTERN.fullmatch(item.text) is None:
            raise item.problem(
                f"holds {item.text[:40]!r}, which is neither an id nor a pattern such as acme/*"
            )
        granted.append(f"rye.{primary.tag}.{item.tag}.{item.text.replace('/', '.')}")
    if not granted:
        raise primary.problem("grants nothing; write * or name items")
    return granted
