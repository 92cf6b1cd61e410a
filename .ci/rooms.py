"""Compare CONTRIBUTING.md's table of rooms with the layers, or write it.

    python .ci/rooms.py [--write]

The layers are those of import-linter, in pyproject.toml. What a room holds, and each folder in it,
is the first paragraph of its docstring. Exits with 1 where the table differs.
"""

import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- rooms -->\n", "<!-- /rooms -->\n"


def layers() -> list[list[str]]:
    """Return the rooms of each layer, the highest layer first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (contract,) = settings["tool"]["importlinter"]["contracts"]
    return [re.split(r" [|:] ", layer) for layer in contract["layers"]]


def row(layer: str, room: str) -> str:
    """Return the line of the table for one room, or for a folder in it.

    Raises:
        SystemExit: There is no such room, or it has no docstring.
    """
    source = ROOT / "src/ryecore"
    module, package = source / f"{room}.py", source / room / "__init__.py"
    path = package if package.exists() else module
    if not path.exists():
        raise SystemExit(f"The layers name {room}, and src/ryecore has no such room.")
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    if not docstring:
        raise SystemExit(
            f"{path.relative_to(ROOT)} has no docstring: say in its first paragraph what it holds."
        )
    holds = " ".join(docstring.split("\n\n")[0].split()).replace("|", "\\|")
    return f"| {layer} | `{room if path is package else path.name}` | {holds} |\n"


def folders(room: str) -> list[str]:
    """Return the folders of a room that are packages, by name."""
    place = ROOT / "src/ryecore" / room
    return [f"{room}/{one.parent.name}" for one in sorted(place.glob("*/__init__.py"))]


def table() -> str:
    """Return the table: each room and its folders once, in the order of the layers."""
    rows = [
        row("" if index or one != room else str(number), one)
        for number, rooms in enumerate(layers(), start=1)
        for index, room in enumerate(rooms)
        for one in (room, *folders(room))
    ]
    return "".join(["| Layer | Room | Holds |\n", "| --- | --- | --- |\n", *rows])


def main(options: list[str]) -> None:
    """Compare the table, or write it.

    Raises:
        SystemExit: The table differs, or it can't be made.
    """
    text = PAGE.read_text()
    if BEGIN not in text or END not in text:
        raise SystemExit(f"{PAGE.name} has no lines {BEGIN.strip()} and {END.strip()}.")
    above, _, rest = text.partition(BEGIN)
    below = rest.partition(END)[2]
    wanted = f"{above}{BEGIN}{table()}{END}{below}"
    if options == ["--write"]:
        PAGE.write_text(wanted)
    elif text != wanted:
        raise SystemExit(
            f"{PAGE.name}'s table of rooms differs from the layers in pyproject.toml, or from the "
            "rooms' docstrings. Write it anew: python .ci/rooms.py --write"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
