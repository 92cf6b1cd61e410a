"""The rules that neighbours in a chain obey. Pure: elements in, verdict out."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ryecore.chain.model import Chain, ChainElement, ValidChain
from ryecore.chain.spec import EnvSpec, VersionRange
from ryecore.errors import IncompatibleChain

if TYPE_CHECKING:
    from packaging.version import Version

__all__ = ["ChainValidator"]

_NAMES = {3: "project", 2: "user", 1: "system"}


class ChainValidator:
    """Checks every adjacent pair (child, parent) of a chain.

    Source: docs/design/chain.md#validation; decisions 14, 15 and 18.
    """

    def validate_chain(self, chain: Chain) -> ValidChain:
        """Check a chain.

        Returns:
            The same chain, as one that may be planned.

        Raises:
            IncompatibleChain: A pair doesn't fit; every problem is listed.
        """
        problems: list[str] = []
        warnings: list[str] = []
        pairs = list(zip(chain.elements, chain.elements[1:], strict=False))
        for child, parent in pairs:
            problems += _space_problems(child, parent)
            problems += _io_problems(child, parent)
            _check_version(child, parent, problems, warnings)
        by_id = {element.item_id: element for element in chain.elements}
        for link in chain.links:
            problems += _space_problems(by_id[link.named_by], link.element)
        problems += _own_process_problems(chain.elements)
        if problems:
            raise IncompatibleChain(
                f"Chain validation failed: {'; '.join(problems)}.",
                next_step=f"Look at the chain with: rye trace tool:{chain.head.item_id}",
                problems=tuple(problems),
            )
        return ValidChain(
            chain.elements,
            chain.links,
            validated_pairs=tuple((child.item_id, parent.item_id) for child, parent in pairs),
            warnings=tuple(warnings),
        )


def _space_problems(child: ChainElement, parent: ChainElement) -> list[str]:
    if child.precedence >= parent.precedence:
        return []
    low, high = _NAMES[child.precedence], _NAMES[parent.precedence]
    if child.precedence == 1:
        return [
            f"system tool '{child.item_id}' cannot delegate to mutable {high} "
            f"tool '{parent.item_id}'"
        ]
    return [
        f"'{child.item_id}' from {low} space cannot depend on '{parent.item_id}' from {high} "
        "space, which another project doesn't have"
    ]


def _own_process_problems(elements: Sequence[ChainElement]) -> list[str]:
    """Whatever could steer a process that holds the host's keys is refused, not passed over.

    Source: decision 20. ryecore's own process is not a tool.
    """
    problems: list[str] = []
    for index, element in enumerate(elements):
        if not element.spec.own_process:
            continue
        if element.item is None or not element.item.source.space.is_built_in:
            problems.append(
                f"'{element.item_id}' declares own_process, which only ryecore's own bundle may"
            )
        if index != 1:
            problems.append(f"'{element.item_id}' executes one tool directly, and here it does not")
        for one in elements[:index]:
            steering = {
                "env_config": one.spec.env != EnvSpec(),
                "anchor": one.spec.anchor is not None,
                "verify_deps": one.spec.verify_deps is not None,
                "warm": one.spec.warm is not None,
            }
            problems += [
                f"'{one.item_id}' declares {name}, which '{element.item_id}' does not take"
                for name, is_declared in steering.items()
                if is_declared
            ]
    return problems


def _io_problems(child: ChainElement, parent: ChainElement) -> list[str]:
    if not parent.spec.inputs or not child.spec.outputs:
        return []
    missing = sorted(parent.spec.inputs - child.spec.outputs)
    if not missing:
        return []
    return [
        f"'{parent.item_id}' requires inputs {missing} that '{child.item_id}' does not provide "
        f"(outputs: {sorted(child.spec.outputs)})"
    ]


def _check_version(
    child: ChainElement, parent: ChainElement, problems: list[str], warnings: list[str]
) -> None:
    constraints: Sequence[VersionRange] = [
        parent.spec.child_constraints[key]
        for key in ("", child.item_id)
        if key in parent.spec.child_constraints
    ]
    if not constraints:
        return
    version = _parse(child.spec.version)
    if version is None:
        declared = child.spec.version
        warnings.append(
            f"'{parent.item_id}' constrains the version of '{child.item_id}', which declares "
            + ("none" if declared is None else f"{declared!r}, not a version")
        )
        return
    for limits in constraints:
        for bound in (limits.min_version, limits.max_version):
            if bound is not None and _parse(bound) is None:
                problems.append(f"'{parent.item_id}' declares {bound!r}, not a version")
        least, most = _parse(limits.min_version), _parse(limits.max_version)
        found = f"'{child.item_id}' version {version} is"
        if least is not None and version < least:
            problems.append(f"{found} below {least}, the least '{parent.item_id}' accepts")
        if most is not None and version > most:
            problems.append(f"{found} above {most}, the most '{parent.item_id}' accepts")


def _parse(text: str | None) -> "Version | None":
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415 - for constraints alone

    try:
        return None if text is None else Version(text)
    except InvalidVersion:
        return None
