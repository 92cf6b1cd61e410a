"""Draw the pictures of the documentation by running what they show: `make pictures`.

Each comes from ryecore itself: graphs, chains and threads as it draws them, and terminals with what
`rye` prints there. Models are scripted. Files named by a page are those of its blocks.
"""

import io
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from unittest.mock import patch

import ryecore
from ryecore import AgentRunnerDeps, SyncRye
from ryecore.chain.picture import chain_picture
from ryecore.cli.commands import rye as rye_command
from ryecore.display import to_svg
from ryecore.display.sanitize import escape_html
from ryecore.display.text import count_columns
from ryecore.graph.picture import graph_picture
from ryecore.llm import LlmRequest, Price, Usage
from ryecore.testing import FunctionProvider, Spoken, call, fail
from ryecore.threads.picture import tree_picture

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs/assets/pictures"

_FILE = re.compile(r'^(`{3,})\w+ title="([^"]+)"\n(.*?)^\1$', re.MULTILINE | re.DOTALL)
_ANSI = re.compile(r"\x1b\[(\d+)m")
_STYLES = {"0": "", "1": "strong", "2": "dim", "31": "bad", "32": "good", "33": "warn", "36": "id"}
_COLUMN, _ROW, _MARGIN = 7.8, 18, 16
_CSS = """
text{font:13px ui-monospace,SFMono-Regular,Menlo,'DejaVu Sans Mono',monospace;white-space:pre}
text{fill:#1f2328}.g{fill:#fdfdfe;stroke:#e3e7eb}.strong,.command{font-weight:600}
.dim{fill:#636c76}.bad{fill:#cf222e}.good,.prompt{fill:#1a7f37}.warn{fill:#8a6100}.id{fill:#0969da}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.g{fill:#0f1318;stroke:#2a3038}
.dim{fill:#9198a1}.bad{fill:#f85149}.good,.prompt{fill:#3fb950}.warn{fill:#d29922}.id{fill:#58a6ff}}
"""


class _Terminal(io.StringIO):
    """What a program takes for a terminal that has colours."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def draw(folder: Path) -> dict[str, str]:
    """Return each picture by its file's name. `folder` is empty; a project is made there."""
    project = folder / "home/ada/shop"
    project.mkdir(parents=True)
    environ = {"HOME": str(project.parent), "PATH": os.environ["PATH"], "COLUMNS": "88"}
    environ["RYE_PYTHON"] = sys.executable
    with chdir(project), patch.dict(os.environ, environ, clear=True):
        return {name: _as_shown(svg) for name, svg in _draw(project)}


def _as_shown(text: str) -> str:
    """Return a text without the places of this machine."""
    home = str(Path.home().parents[1])
    system = str(Path(ryecore.__file__).parent)
    return text.replace(home, "").replace(system, "/…").replace(sys.executable, "/…/python")


def _draw(project: Path) -> Iterator[tuple[str, str]]:
    _write_files(project, "quickstart.md", "how-to/write-a-graph.md", "how-to/start-children.md")
    _rye("keys generate")
    greet = project / ".ai/tools/acme/greet.py"
    shown = [_rye("sign acme/greet"), _rye("execute acme/greet name=Ada")]
    greet.write_text(greet.read_text().replace("Hello", "Hallo"))
    command = "sed -i 's/Hello/Hallo/' .ai/tools/acme/greet.py"
    shown += [(command, ""), _rye("execute acme/greet name=Ada")]
    yield "terminal.svg", _terminal(shown, "A signed tool runs; once changed, it is refused.")

    with SyncRye.open(project, agent=_models()) as rye:
        for items in ("tool:acme/*", "tool:shop/*", "directive:sea/*"):
            rye.sign(items)
        traced = rye.trace("tool:acme/greet")
        yield (
            "chain.svg",
            to_svg(chain_picture(traced.chain.elements, traced.chain.links, traced.events)),
        )
        yield "graph-day.svg", to_svg(graph_picture(rye.graphs.load("tool:shop/day")))
        days = {"days": ["monday", "sunday", "tuesday"]}
        ran = rye.graphs.run("tool:shop/week", days)
        yield "graph-run.svg", to_svg(graph_picture(ran.graph, ran.run_status))
        done = rye.execute("directive:sea/report", thread="fork")
        tree = rye.threads.tree(done.thread_id)
        yield "threads.svg", to_svg(tree_picture([tree], now=time.time()))
        listed = _rye(f"threads tree {done.thread_id}")
    yield "terminal-threads.svg", _terminal([listed], "A tree of threads on a terminal.")
    traced_there = _rye("trace acme/greet")
    yield "terminal-trace.svg", _terminal([traced_there], "The trace of a tool on a terminal.")


def _write_files(project: Path, *pages: str) -> None:
    for page in pages:
        for _, name, text in _FILE.findall((ROOT / "docs" / page).read_text()):
            file = project / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)


def _models() -> AgentRunnerDeps:
    """A model that has three children look something up; it refuses one of them."""

    def answer(request: LlmRequest) -> Spoken:
        usage = Usage(700 + 400 * len(request.messages), 60)
        topics = iter(("tides", "the moon", "secrets"))
        if "secrets" in request.messages[0].text:
            return fail("content_filter", "The provider's filter refused it.")
        if "about" in request.messages[0].text:
            said = {"answer": "Every 12 h 25 min."}
            return call("rye_directive_return", said, usage=usage)
        for _ in [one for one in request.messages if one.role == "assistant"]:
            next(topics)
        topic = next(topics, None)
        if topic is None:
            return call("rye_directive_return", {"answer": "Twice a day."}, usage=usage)
        child = {
            "item_id": "directive:sea/look_up",
            "thread": "fork",
            "parameters": {"topic": topic},
        }
        return call("rye_execute", child, usage=usage)

    model = FunctionProvider(answer, provider_id="anthropic")
    return AgentRunnerDeps(
        resolve_provider=lambda provider_id: model,
        key_for=lambda provider_id: "",
        price_of=lambda provider_id, model_id: Price(input="3", output="15"),
    )


def _rye(command: str) -> tuple[str, str]:
    """Return a command, and what it prints on a terminal."""
    out = _Terminal()
    with redirect_stdout(out), redirect_stderr(out), suppress(SystemExit):
        rye_command.main(command.split(), prog_name="rye", standalone_mode=False)
    return f"rye {command}", _as_shown(out.getvalue())


def _terminal(shown: list[tuple[str, str]], title: str) -> str:
    rows: list[list[tuple[str, str]]] = []
    for command, printed in shown:
        rows.append([("$ ", "prompt"), (command, "command")])
        rows += [_styled(line) for line in printed.rstrip().splitlines()]
    columns = max(sum(count_columns(text) for text, _ in row) for row in rows)
    width, height = columns * _COLUMN + 2 * _MARGIN, len(rows) * _ROW + 2 * _MARGIN
    body = [f'<rect class="g" x=".5" y=".5" width="{width - 1:g}" height="{height - 1}" rx="8"/>']
    for at, row in enumerate(rows):
        column = 0
        for text, style in row:
            taken = count_columns(text)
            kind = f' class="{style}"' if style else ""
            if text.strip():
                body.append(
                    f'<text{kind} x="{_MARGIN + column * _COLUMN:g}" y="{_MARGIN + 13 + at * _ROW}"'
                    f' textLength="{taken * _COLUMN:g}">{escape_html(text)}</text>'
                )
            column += taken
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:g}" height="{height}"'
        f' viewBox="0 0 {width:g} {height}"><title>{escape_html(title)}</title>'
        f"<style>{_CSS}</style>{''.join(body)}</svg>"
    )


def _styled(line: str) -> list[tuple[str, str]]:
    """Return the pieces of a line, each with the name of its style."""
    text, *rest = _ANSI.split(line)
    found = [(text, "")]
    for code, piece in zip(rest[::2], rest[1::2], strict=True):
        found.append((piece, _STYLES[code]))
    return found


if __name__ == "__main__":
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        for name, svg in draw(Path(made)).items():
            (PICTURES / name).write_text(svg + "\n")
            sys.stdout.write(f"drawn: docs/assets/pictures/{name}\n")
