"""Refuse circles among the modules of `native/core`: each uses only modules below its own.

    python .ci/rust_modules.py [--show]

Tests inside a module don't count. A name of a module below that its parent re-exports counts for
the module that defines it. `--show` prints the modules in layers, the lowest first.
"""

import re
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "native" / "core" / "src"
_TESTS = re.compile(r"^#\[cfg\(test\)\]\nmod \w+ \{.*?^\}", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"//[^\n]*")
_USE = re.compile(r"^\s*(?P<pub>pub(?:\([^)]*\))? )?use (?P<tree>[^;]+);", re.MULTILINE)
_INLINE = re.compile(r"\b(?:crate|super)(?:::\w+)+")


def modules(source: Path) -> dict[str, str]:
    """Return the text of each module by its path, such as `process::run`, without its tests."""
    found: dict[str, str] = {}
    for path in source.rglob("*.rs"):
        parts = path.relative_to(source).with_suffix("").parts
        if parts[-1] in ("testing", "tests"):
            continue
        name = "::".join(parts[:-1] if parts[-1] in ("mod", "lib") else parts)
        found[name] = _COMMENT.sub("", _TESTS.sub("", path.read_text(encoding="utf-8")))
    return found


def leaves(tree: str) -> list[str]:
    """Return the paths that a use declaration names, such as `super::a::B`."""
    tree = re.sub(r"\s+", " ", tree).strip()
    head, brace, rest = tree.partition("{")
    if not brace:
        return [tree.split(" as ")[0].strip()]
    parts, depth, start = [], 0, 0
    inner = rest[: rest.rindex("}")]
    for index, char in enumerate(inner + ","):
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            if part := inner[start:index].strip():
                parts += leaves(part)
            start = index + 1
    return [head + part for part in parts]


def absolute(path: str, module: str) -> list[str] | None:
    """Return a path's parts from the crate's root; None where it names another crate."""
    parts = path.strip().split("::")
    if parts[0] == "crate":
        return parts[1:]
    above = module.split("::") if module else []
    if parts[0] == "self":
        return [*above, *parts[1:]]
    if parts[0] != "super":
        return None
    while parts[0] == "super":
        above, parts = above[:-1], parts[1:]
    return [*above, *parts]


def graph(found: dict[str, str]) -> dict[str, set[str]]:
    """Return the modules that each module uses."""
    exported: dict[tuple[str, str], list[str]] = {}
    used: dict[str, list[list[str]]] = {name: [] for name in found}
    for name, text in found.items():
        above = name.split("::") if name else []
        for use in _USE.finditer(text):
            for leaf in leaves(use["tree"]):
                first = leaf.split("::")[0]
                child = f"{name}::{first}" if name else first
                parts = absolute(leaf, name)
                if parts is None and child in found:  # relative, as in `pub use run::Report`
                    parts = child.split("::") + leaf.split("::")[1:]
                if parts is None:
                    continue
                if use["pub"]:
                    exported[name, parts[-1]] = parts
                if not use["pub"] or parts[: len(above)] != above:
                    used[name].append(parts)
        for inline in _INLINE.finditer(_USE.sub("", text)):
            parts = absolute(inline[0], name)
            if parts is not None:
                used[name].append(parts)
    return {
        name: {home(parts, found, exported) for parts in paths} - {name, ""}
        for name, paths in used.items()
    }


def home(
    parts: list[str], found: dict[str, str], exported: dict[tuple[str, str], list[str]]
) -> str:
    """Return the module that defines what a path names."""
    for end in range(len(parts), -1, -1):
        module = "::".join(parts[:end])
        if module in found:
            rest = parts[end:]
            if rest and (further := exported.get((module, rest[0]))) is not None:
                return home(further, found, exported)
            return module
    return ""


def main(arguments: list[str]) -> int:
    """Check the modules, and show their layers where that is asked for."""
    uses = graph(modules(SOURCE))
    sorter = TopologicalSorter(uses)
    try:
        sorter.prepare()
    except CycleError as problem:
        circle = " -> ".join(reversed(problem.args[1]))
        print(
            f"Modules of native/core use each other in a circle: {circle}.\n"
            "Move what they share into a module below them.",
            file=sys.stderr,
        )
        return 1
    layer = 0
    while sorter.is_active():
        ready = sorter.get_ready()
        if "--show" in arguments:
            print(f"{layer}: {', '.join(sorted(filter(None, ready)))}")
        sorter.done(*ready)
        layer += 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
