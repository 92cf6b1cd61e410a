"""Whether the process of a chain can start warm: forked from a template, instead of started anew.

A runtime opts in by what it declares. Where a template forks is said by `{fork_point}` in its
arguments, which is nothing in a cold start.

Source: docs/concepts/runtimes.md#warm-starts.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from ryecore.chain.arguments import FORK_POINT
from ryecore.chain.model import Chain, WarmTemplate
from ryecore.chain.plan import merge_configs, placeholder_names
from ryecore.chain.spec import WarmSpec
from ryecore.chain.templating import as_text, count_of
from ryecore.errors import MetadataError
from ryecore.items.snapshots import SealedTree
from ryecore.items.verification import VerifiedItem
from ryecore.lillux.witness import Witness

__all__ = ["template_of", "warm_of"]


def warm_of(chain: Chain) -> tuple[VerifiedItem, WarmSpec] | None:
    """The item that says how a chain's process starts warm, and what it says.

    Returns:
        The first one that says anything of it; None where nobody does, or that one says no.

    Raises:
        MetadataError: Something rules it out, or there is no place to fork at.
    """
    index = next((i for i, one in enumerate(chain.elements) if one.spec.warm is not None), None)
    if index is None:
        return None
    item, warm = chain.elements[index].item, chain.elements[index].spec.warm
    if item is None or not warm:
        return None
    problems: list[str] = []
    if chain.is_own_process:
        problems.append("its process is ryecore's own (own_process)")
    if merge_configs(chain.elements)[0].get("keep_warm"):
        problems.append("its process is kept for later calls (config.keep_warm)")
    if FORK_POINT in placeholder_names(chain.elements):
        problems.append("a config_schema declares fork_point, which is reserved")
    # An element before it may bring arguments of its own, which then start cold.
    args = merge_configs(chain.elements[index:])[0].get("args")
    texts = args if isinstance(args, list) else []
    count = sum(count_of(FORK_POINT, as_text(text)) for text in texts)
    if count != 1:
        problems.append(f"{{fork_point}} stands {count} times in config.args, instead of once")
    if problems:
        path = item.source.path
        raise MetadataError(
            f"{path} declares warm, and '{chain.head.item_id}' can't start so: "
            f"{'; '.join(problems)}.",
            next_step="Take out warm or what rules it out, and sign it again.",
            path=path,
            problems=tuple(problems),
        )
    return item, warm


def template_of(
    spec: WarmSpec, program: bytes, tool_path: Path, sealed: Sequence[SealedTree]
) -> WarmTemplate:
    """What makes a template.

    Args:
        spec: What the runtime declares.
        program: The verified bytes of the file that it names.
        tool_path: The tool's file, where it runs.
        sealed: The folders that the process may read before it forks.
    """
    told = {"preload": spec.preload, "tool": str(tool_path) if spec.leading_imports else None}
    files = [(tree.root / name, digest) for tree in sealed for name, digest in tree.digests.items()]
    witness = Witness(files, (), [tree.stat for tree in sealed])
    return WarmTemplate(spec.fork_point, program, json.dumps(told).encode(), witness)
