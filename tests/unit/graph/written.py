"""Graphs as texts, examined as if they had been verified."""

import re
from pathlib import Path
from textwrap import dedent
from typing import Final

from attrs import frozen

from ryecore.chain.spec import read_spec
from ryecore.graph.reading import GraphReport, examine_graph
from ryecore.items.documents import parse_document
from ryecore.items.refs import ItemRef
from ryecore.items.spaces import ItemSource, Space
from ryecore.items.verification import VerifiedItem

PATH = Path("/project/.ai/tools/acme/flow.yaml")

_REF: Final = re.compile(r"(?<=item_id: )([a-z]+:[\w/]+)")

_CASE: Final = re.compile(r"^--- # (\S+)\n((?:(?!--- # ).*\n)*)", re.M)
_PROBLEMS: Final = Path(__file__).parent / "problems"

HEAD = """\
version: "1.0.0"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: acme
description: What it is for
"""


def written(body: str) -> str:
    """A whole file; where the body grants nothing, everything may be executed.

    A canonical ref needs no quotes here: within braces, YAML's plain texts hold no colon.
    """
    body = _REF.sub(r'"\1"', dedent(body).strip("\n") + "\n")
    grants = "" if "permissions" in body else "permissions: [rye.execute.*]\n"
    return f"{HEAD}{grants}{body}"


@frozen
class Case:
    """A file, and what is to be said of it.

    Attributes:
        text: The file. `#! …` stands above the line that it is said of, `#^ …` says it of the
            first line; what ends in an ellipsis may go on.
        expected: The lines, and what is said of each.
    """

    text: str
    expected: list[tuple[int, "Said"]]


class Said(str):
    """What is said; equal to what it is the beginning of, where it ends in an ellipsis."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if self.endswith("…") and isinstance(other, str):
            return other.startswith(self[:-1])
        return super().__eq__(other)

    __hash__ = str.__hash__


def cases(*names: str) -> dict[str, Case]:
    """The cases of some files in `problems/`, by their names."""
    return {
        name: _case(body)
        for file in names
        for name, body in _CASE.findall((_PROBLEMS / f"{file}.yaml").read_text())
    }


def _case(body: str) -> Case:
    expected, wanted, lines = [], [], []
    for line in written(body).splitlines():
        mark = line.lstrip()
        lines.append(line)
        if mark.startswith("#^ "):
            expected.append((1, Said(mark[3:])))
        elif mark.startswith("#! "):
            wanted.append(Said(mark[3:]))
        else:
            expected += [(len(lines), said) for said in wanted]
            wanted = []
    return Case("\n".join(lines) + "\n", expected)


def item_of(text: str, path: Path = PATH) -> VerifiedItem:
    """The file as an item that was verified."""
    space = Space("project", path.parents[2])
    source = ItemSource(ItemRef("tool", "acme/flow"), path, space, "acme/flow.yaml")
    return VerifiedItem(source, text.encode(), "ab" * 32, "the key")


def examined(text: str, path: Path = PATH) -> GraphReport:
    """What is found in a file."""
    item = item_of(text, path)
    return examine_graph(item, read_spec(parse_document(item.content, path), path))
