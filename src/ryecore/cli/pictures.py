"""Pictures from the command line: as an SVG file, or as mermaid text."""

import errno
import functools
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import click

from ryecore.cli.output import show, show_piece
from ryecore.display.text import StyledText
from ryecore.errors import InputError
from ryecore.frozen import frozen
from ryecore.lillux.os_errors import failure_of

if TYPE_CHECKING:
    from ryecore.chain.model import ChainTrace
    from ryecore.display import Picture
    from ryecore.graph.model import Graph
    from ryecore.graph.run_view import RunView
    from ryecore.threads.tree_node import TreeNode

__all__ = ["Drawing", "drawing_options"]

_STDOUT: Final = "-"


@frozen
class Drawing:
    """The wanted form of a picture: an SVG file, `-` for the standard output; or mermaid text."""

    svg: str | None
    mermaid: bool

    @property
    def is_wanted(self) -> bool:
        """Whether a picture is asked for."""
        return self.mermaid or self.svg is not None

    def show_chain(self, trace: "ChainTrace") -> None:
        """Draw a tool's chain."""
        from ryecore.chain.picture import chain_picture  # noqa: PLC0415 - other calls need none

        self._show(chain_picture(trace.chain.elements, trace.chain.links, trace.events))

    def show_threads(self, nodes: "Sequence[TreeNode]") -> None:
        """Draw threads with all that they have started."""
        from ryecore.threads.picture import tree_picture  # noqa: PLC0415

        self._show(tree_picture(nodes, now=time.time()))

    def show_graph(self, graph: "Graph", run: "RunView | None" = None) -> None:
        """Draw a graph, by itself or with the statuses of a run's nodes."""
        from ryecore.graph.picture import graph_picture  # noqa: PLC0415

        self._show(graph_picture(graph, None if run is None else run.run_status))

    def _show(self, picture: "Picture") -> None:
        from ryecore.display import to_mermaid, to_svg  # noqa: PLC0415

        if self.svg is None:
            show_piece(to_mermaid(picture))
        elif self.svg == _STDOUT:
            show_piece(to_svg(picture) + "\n")
        else:
            _write(self.svg, to_svg(picture) + "\n")
            text = StyledText()
            text.line("drawn: ", (self.svg, "id"))
            show(text)


def drawing_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command `--svg` and `--mermaid`, which it gets as its argument `drawing`."""

    @click.option("--svg", metavar="FILE", help="Draw it as an SVG file; - is the standard output.")
    @click.option("--mermaid", is_flag=True, help="Print it as mermaid text.")
    @functools.wraps(command)
    def with_drawing(*, svg: str | None, mermaid: bool, as_json: bool, **others: object) -> None:
        if (svg is not None) + mermaid + as_json > 1:
            raise click.UsageError("Pass only one of --svg, --mermaid and --json.")
        command(drawing=Drawing(svg, mermaid), as_json=as_json, **others)

    return with_drawing


def _write(name: str, text: str) -> None:
    try:
        # A clone's link of this name would have the picture replace a file elsewhere.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(name, flags, 0o666), "w", encoding="utf-8") as file:
            file.write(text)
    except (OSError, ValueError) as problem:  # a name with a NUL is a ValueError
        reason = (
            os.strerror(problem.errno)
            if isinstance(problem, OSError) and problem.errno
            else (str(problem))
        )
        number = problem.errno if isinstance(problem, OSError) else None
        raise InputError(
            f"{name!r} can't be written: {'it is a link' if number == errno.ELOOP else reason}.",
            next_step=failure_of(number).next_step
            if number in (errno.ENOSPC, errno.EDQUOT)
            else "Name a file in a folder that is there and that you may write to.",
        ) from None
