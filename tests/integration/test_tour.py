"""examples/tour.ipynb runs in a real kernel, shows what it says, and leaves nothing behind."""

import re
from pathlib import Path

import nbformat
import pytest
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode

TOUR = Path(__file__).parents[2] / "examples/tour.ipynb"


def read_tour() -> NotebookNode:
    return nbformat.read(TOUR, as_version=4)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tour")
    for name in ("home", "temporary", "jupyter", "here"):
        (root / name).mkdir()
    return root


@pytest.fixture(scope="module")
def tour(place: Path) -> NotebookNode:
    """The notebook as it looks once every cell has run."""
    notebook = read_tour()
    with pytest.MonkeyPatch.context() as environ:
        environ.setenv("HOME", str(place / "home"))
        environ.setenv("TMPDIR", str(place / "temporary"))
        environ.setenv("IPYTHONDIR", str(place / "jupyter/ipython"))
        for kind in ("RUNTIME", "CONFIG", "DATA"):
            environ.setenv(f"JUPYTER_{kind}_DIR", str(place / "jupyter"))
        environ.delenv("USER_SPACE", raising=False)
        # Sockets of this machine's own file system: nothing listens on a network.
        manager = AsyncKernelManager(
            kernel_name=notebook.metadata.kernelspec.name,
            transport="ipc",
            ip=str(place / "jupyter/kernel"),
        )
        client = NotebookClient(
            notebook, km=manager, timeout=90, resources={"metadata": {"path": str(place / "here")}}
        )
        client.execute(cleanup_kc=True)  # else a kernel that is passed in stays
    return notebook


def shown(tour: NotebookNode, code: str) -> list[str]:
    """What each cell shows that holds this code: HTML where it has it, else text."""
    return [
        "".join(map(_text_of, cell.outputs))
        for cell in tour.cells
        if cell.cell_type == "code" and code in cell.source
    ]


def _text_of(output: NotebookNode) -> str:
    data = output.get("data", {})
    return str(output.get("text") or data.get("text/html") or data["text/plain"])


def test_it_is_stored_without_what_it_shows() -> None:
    """Ids, times and folders differ each time, so they would say nothing in a diff but that."""
    for cell in read_tour().cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)


def test_a_tool_shows_its_signature_its_plan_its_chain_and_its_refusal(tour: NotebookNode) -> None:
    (signed,) = shown(tour, 'sign("tool:shop/total")')
    assert signed.startswith("# rye:signed:")

    planned, done, refused = shown(tour, 'execute("tool:shop/total", {"path"')
    assert "would run" in planned
    assert "&quot;total&quot;: 7.75" in done
    assert planned.count("<svg") == done.count("<svg") == 1
    assert "was changed after the key" in refused
    assert "next: If you have read the change" in refused


def test_a_thread_and_its_tree_are_drawn_and_a_budget_refuses(tour: NotebookNode) -> None:
    (thread,) = shown(tour, 'sign("directive:shop/*")')
    assert "Monday brought 7.75." in thread
    (tree,) = shown(tour, "threads.tree(")
    assert tree.count("<svg") == 1
    assert "shop/add_up" in tree
    (refused,) = shown(tour, "limits=")
    assert refused.startswith("0 requests\n")
    assert "Insufficient budget" in refused


def test_a_graph_is_drawn_and_run_and_ends_at_a_tool_that_was_altered(tour: NotebookNode) -> None:
    (drawn,) = shown(tour, "graphs.load(")
    assert drawn.count("<svg") == 1
    assert "result.count" in drawn
    done, ended = shown(tour, "graphs.run(")
    assert done.count("<svg") == ended.count("<svg") == 1
    assert "completed" in done
    assert "best: monday" in re.sub(r"<[^>]+>", "", done)
    assert "was changed after the key" in ended


def test_nothing_is_left_behind(tour: NotebookNode, place: Path) -> None:
    assert [*(place / "here").iterdir(), *(place / "temporary").iterdir()] == []
    assert [one for one in (place / "home").iterdir() if one.name != ".cache"] == []
