"""The graph of a map: one foreach, made from the options of the call, without a file.

The item that it calls is verified before each call, like that of any node. The options stand in the
run's signed journal, from which a resumed run makes the same graph.

Source: ADR 037.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ryecore.chain.model import ValidChain
from ryecore.errors import InputError
from ryecore.graph.model import Action, ActionForeach, Graph
from ryecore.graph.reading import LoadedGraph
from ryecore.items.refs import ItemRef
from ryecore.policy.expressions import read_template
from ryecore.runs.request import MapOptions

__all__ = ["MAP_REF", "ROWS", "load_map", "recorded_options"]

MAP_REF: Final = ItemRef("tool", "rye/map")
"""The id of every map's graph, by which its runs are listed. No file has it."""

MAP_NODE: Final = "rows"
ROWS: Final = "rows"
"""The key of the state that holds the rows."""

_RECORDED: Final = "map"
_OVER: Final = read_template(f"${{state.{ROWS}}}")
_ROW: Final = read_template("${row}")
_MAY: Final = ("rye.execute.*", "rye.fetch.*")
"""Everything that its caller may; the item's own permissions bound it further."""


def load_map(options: MapOptions | None) -> LoadedGraph:
    """Return the graph of a map; raise InputError without options, as for another graph's run."""
    if options is None:
        raise InputError(
            f"{MAP_REF} is the graph of every map, and has no file.",
            next_step="Map an item over rows: rye map REF FILE, or rye.map(REF, rows).",
        )
    is_directive = options.item.kind == "directive"
    node = ActionForeach(
        id=MAP_NODE,
        over=_OVER,
        as_="row",
        parallel=True,
        max_concurrency=options.concurrency,
        returns_items=False,
        action=Action(
            options.item,
            _ROW,
            thread="fork" if is_directive else "inline",
            model=options.model,
        ),
    )
    digest = hashlib.sha256(json.dumps(options.to_dict(), sort_keys=True).encode()).hexdigest()
    graph = Graph(
        ref=MAP_REF,
        digest=digest,
        path=Path(MAP_REF.id),
        start=MAP_NODE,
        nodes={MAP_NODE: node},
        max_concurrency=options.concurrency,
        on_error="continue",
        state={ROWS: []},
        permissions=_MAY,
        description=f"{options.item} for each row.",
    )
    return LoadedGraph(graph, ValidChain(()))


def recorded_options(started: Mapping[str, Any]) -> MapOptions | None:
    """Return the options of a map from the beginning of its journal; None for another run."""
    recorded = started.get(_RECORDED)
    return MapOptions.from_dict(recorded) if isinstance(recorded, Mapping) else None
