"""A working folder that is full of files which programs would take for their own.

Each of them leaves a mark, named by itself, if it ever runs.
"""

import sys
from pathlib import Path
from typing import Final

__all__ = ["NODE_MODULES", "marks", "plant", "relative_search_paths"]

PYTHON_MODULES: Final = sorted(
    sys.stdlib_module_names
    # Modules that start with an interpreter, that older and newer ones have, and ryecore's own.
    | {"__main__", "sitecustomize", "usercustomize", "site", "distutils", "imp", "asyncore"}
    | {"annotationlib", "compression", "pathlib", "string", "_colorize", "_pyrepl", "_sitebuiltins"}
    | {"anyio", "attr", "attrs", "mcp", "ryecore", "sniffio", "tests", "tool", "typing_extensions"}
)
PROGRAMS: Final = ("bash", "cat", "env", "ls", "node", "npm", "npx", "python", "python3", "ruby")
PROGRAMS_ENDED: Final = ("sh", "true", "tsx", "uv", "uvx")
NODE_MODULES: Final = ("esbuild", "fs", "left-pad", "node", "path", "tsx", "typescript")


def plant(folder: Path, where: Path) -> None:
    """Fill a folder.

    Args:
        folder: What programs take for the folder they work in, or one above it.
        where: The folder that gets the marks.
    """
    where.mkdir(exist_ok=True)
    mark = where / folder.name
    for name in PYTHON_MODULES:
        (folder / f"{name}.py").write_text(f"open({f'{mark}.{name}.py'!r}, 'w').close()\n")
    for name in ("encodings", "importlib", "collections", "json", "asyncio"):
        # A package comes before a module of its name.
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(f"open({f'{mark}.{name}'!r}, 'w').close()\n")
    (folder / "planted.pth").write_text(f"import sys; open({f'{mark}.pth'!r}, 'w')\n")
    (folder / "pyvenv.cfg").write_text(f"home = {folder}\ninclude-system-site-packages = true\n")
    (folder / "python311._pth").write_text(".\nimport site\n")
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    for name in (*PROGRAMS, *PROGRAMS_ENDED):
        for place in (folder, bin_folder):
            program = place / f"{name}"
            program.write_text(f"#!/bin/sh\n: > '{mark}.program.{name}'\n")
            program.chmod(0o755)
    shell = f": > '{mark}.shell'\n"
    for name in (".bashrc", ".bash_profile", ".profile", ".bash_env", ".env.sh", ".zshenv"):
        (folder / name).write_text(shell)
    _plant_for_node(folder, mark)


def _plant_for_node(folder: Path, mark: Path) -> None:
    def code(name: str) -> str:
        return f"require('node:fs').writeFileSync({f'{mark}.node.{name}'!r}, '')\n"

    (folder / "planted.cjs").write_text(code("planted"))
    for name in NODE_MODULES:
        module = folder / "node_modules" / name
        module.mkdir(parents=True)
        (module / "index.js").write_text(code(name))
    package = '{"type": "module", "main": "planted.cjs", "imports": {"#own": "./planted.cjs"}}'
    (folder / "package.json").write_text(package)
    (folder / "tsconfig.json").write_text('{"compilerOptions": {"paths": {"*": ["./*"]}}}')
    (folder / "node.config.json").write_text('{"nodeOptions": {"import": ["./planted.cjs"]}}')
    (folder / ".npmrc").write_text("node-options=--require ./planted.cjs\nscript-shell=./sh\n")
    (folder / ".node_repl_history").write_text("")


def relative_search_paths() -> dict[str, str]:
    """Variables of a careless shell, which lead programs to the folder that they work in."""
    lists = ("PATH", "PYTHONPATH", "NODE_PATH", "RUBYLIB", "PERL5LIB", "LD_LIBRARY_PATH")
    lists += ("PERLLIB", "GEM_PATH", "CDPATH", "CLASSPATH")
    files = {"BASH_ENV": ".bash_env", "ENV": ".env.sh", "ZDOTDIR": ".", "PYTHONUSERBASE": "."}
    return dict.fromkeys(lists, ":.:bin:./node_modules:") | files


def marks(where: Path) -> list[str]:
    """What has run of all that was planted."""
    return sorted(path.name for path in where.iterdir())
