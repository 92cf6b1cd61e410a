"""Finding interpreters. One that lies inside the project counts only when the project is trusted.

Source: docs/design/runtimes.md#interpreters; decision 21.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from stat import S_ISREG
from typing import Final

from ryecore.chain.spec import InterpreterSpec
from ryecore.errors import InterpreterNotFound, MissingExtra, SpawnFailed
from ryecore.frozen import frozen
from ryecore.items.paths import find_on_path, is_program, lies_inside
from ryecore.lillux.processes import ProcessSpec, run_process_sync
from ryecore.lillux.witness import Evidence

__all__ = ["FoundInterpreter", "Interpreters"]

_RESOLVE_TIMEOUT_S: Final = 5.0

_PYTHON: Final = frozenset({"python", "python3"})
"""The fallbacks for which the host's own interpreter is taken before any on the PATH."""

_Seen = tuple[str, int, int, int, int]
"""A path, and the device, inode, time of change and mode of what stands there."""


@frozen
class FoundInterpreter:
    """An interpreter that may be used, and what was passed over, with the reason.

    It was found as own, preset, local_binary, system_binary, command, host or fallback.
    """

    path: str
    how: str
    passed_over: tuple[str, ...] = ()


class Interpreters:
    """Finds the interpreters that runtimes ask for; those inside a project only if it is trusted.

    Until then, `resolve_cmd` works in the user's folder.
    """

    def __init__(
        self,
        project: Path,
        is_project_trusted: Callable[[Evidence], bool],
        user_folder: Path = Path("/"),
    ) -> None:
        self._project = project
        self._real_project = os.path.realpath(project)
        self._is_project_trusted = is_project_trusted
        self._user_folder = user_folder
        self._outside: set[_Seen | None] = set()

    def find(
        self,
        wanted: InterpreterSpec,
        *,
        environ: Mapping[str, str],
        child_env: Mapping[str, str],
        path: str,
        render: Callable[[str], str],
        for_system_tool: bool,
        evidence: Evidence,
    ) -> FoundInterpreter:
        """Find an interpreter, or the one preset in `environ`. Commands to ask get `child_env`."""
        if wanted.type == "own":
            return _own_interpreter(wanted)
        if for_system_tool and wanted.system_tools == "own" and sys.executable:
            return FoundInterpreter(sys.executable, "own")
        tried: list[str] = []
        passed_over: list[str] = []
        unusable: tuple[str, ...] = ()
        for how, candidate in self._candidates(
            wanted, environ, child_env, path, render, tried, evidence
        ):
            if not is_program(candidate):
                tried.append(f"{candidate} ({_why_not(candidate)})")
                if how == "preset":  # somebody meant it, so the trace says why it isn't used
                    unusable = (f"{wanted.var}={candidate}: {_why_not(candidate)}",)
                if not os.path.lexists(candidate):
                    evidence.absent(candidate)
            elif self.may_run(candidate, evidence):
                return FoundInterpreter(candidate, how, (*unusable, *passed_over))
            else:
                passed_over.append(f"{candidate}: inside the project, which is not trusted")
        names = ", ".join(wanted.names) or " ".join(wanted.resolve_cmd)
        raise InterpreterNotFound(
            f"No interpreter was found for {wanted.var} ({names}). Tried: "
            + "; ".join([*tried, *passed_over] or ["nothing"])
            + ".",
            next_step=(
                "If you trust this project's own interpreter: rye trust-project"
                if passed_over
                else f"Install it, or set {wanted.var} to its path."
            ),
            tried=(*tried, *passed_over),
        )

    def may_run(self, program: str, evidence: Evidence) -> bool:
        """Return whether a program may run: it lies outside the project, or the project is trusted.

        The interpreter that ryecore itself runs on may, and so may its folder stay on a search
        path: whoever started it has trusted it.
        """
        seen = _seen(program)
        if seen in self._outside:
            return True
        is_own = program in (sys.executable, os.path.dirname(sys.executable))
        if not is_own and lies_inside(program, self._project, self._real_project):
            return self._is_project_trusted(evidence)
        if seen is not None:
            self._outside.add(seen)
        return True

    def may_run_again(self, path: str) -> bool:
        """Return whether a path leads to a program that `may_run` let through, unchanged since.

        No program is asked for but one that can be executed, and no folder is a program.
        """
        seen = _seen(path)
        return seen is not None and seen in self._outside and S_ISREG(seen[-1])

    def is_project_trusted(self, evidence: Evidence) -> bool:
        """Return whether programs inside the project may run."""
        return self._is_project_trusted(evidence)

    def _candidates(
        self,
        wanted: InterpreterSpec,
        environ: Mapping[str, str],
        child_env: Mapping[str, str],
        path: str,
        render: Callable[[str], str],
        tried: list[str],
        evidence: Evidence,
    ) -> Iterator[tuple[str, str]]:
        preset = environ.get(wanted.var)
        if preset and os.path.isabs(preset):
            yield "preset", preset
        if wanted.type == "local_binary":
            # One that names an anchor, where the tool has none, leads nowhere.
            roots = list(filter(os.path.isabs, map(render, wanted.search_roots)))
            for root in roots or [str(self._project)]:
                for folder in wanted.search_paths:
                    for name in wanted.names:
                        yield "local_binary", os.path.normpath(f"{root}/{render(folder)}/{name}")
        elif wanted.type == "system_binary":
            for name in wanted.names:
                yield from self._on_path("system_binary", name, path, tried, evidence)
        else:
            yield from self._by_command(wanted, path, child_env, tried, evidence)
        if wanted.fallback is not None:
            if wanted.fallback in _PYTHON and sys.executable:
                yield "host", sys.executable
            yield from self._on_path("fallback", wanted.fallback, path, tried, evidence)

    def _on_path(
        self, how: str, name: str, path: str, tried: list[str], evidence: Evidence
    ) -> Iterator[tuple[str, str]]:
        found = False
        for candidate in find_on_path(name, path, evidence):
            found = True
            yield how, candidate
        if not found:
            tried.append(f"{name} (not on the PATH)")

    def _folder_to_ask_in(self, evidence: Evidence) -> str:
        if self.is_project_trusted(evidence):
            return str(self._project)
        return str(self._user_folder) if self._user_folder.is_dir() else "/"

    def _by_command(
        self,
        wanted: InterpreterSpec,
        path: str,
        child_env: Mapping[str, str],
        tried: list[str],
        evidence: Evidence,
    ) -> Iterator[tuple[str, str]]:
        evidence.never_remember()  # what a command prints may differ each time
        program, *arguments = wanted.resolve_cmd
        candidates = find_on_path(program, path, evidence)
        found = next((one for one in candidates if self.may_run(one, evidence)), None)
        if found is None:
            tried.append(f"{program} (not on the PATH)")
            return
        try:
            done = run_process_sync(
                ProcessSpec(
                    command=found,
                    args=tuple(arguments),
                    # Version managers choose an interpreter by the files of their working folder.
                    cwd=self._folder_to_ask_in(evidence),
                    env=child_env,
                    timeout_s=_RESOLVE_TIMEOUT_S,
                )
            )
        except SpawnFailed as problem:
            tried.append(f"{program} ({problem.message})")
            return
        lines = done.stdout.decode(errors="replace").split("\n")
        if done.exit_code != 0 or not os.path.isabs(lines[0].strip()):
            tried.append(f"{' '.join(wanted.resolve_cmd)} (printed no path)")
            return
        yield "command", lines[0].strip()


def _own_interpreter(wanted: InterpreterSpec) -> FoundInterpreter:
    for module, extra in wanted.modules.items():
        if find_spec(module) is None:
            raise MissingExtra(
                f"This needs the module {module}, which is not installed.",
                next_step=f"pip install 'ryecore[{extra}]'",
                extra=extra,
            )
    if not sys.executable:
        raise InterpreterNotFound(
            f"No interpreter was found for {wanted.var}: this host isn't a Python program.",
            next_step="Run ryecore under a Python interpreter.",
            tried=("ryecore's own",),
        )
    return FoundInterpreter(sys.executable, "own")


def _seen(path: str) -> _Seen | None:
    """Return what stands at a path, links resolved; None where nothing does."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return path, status.st_dev, status.st_ino, status.st_ctime_ns, status.st_mode


def _why_not(candidate: str) -> str:
    if not os.path.exists(candidate):
        return "not there"
    return "not executable" if os.path.isfile(candidate) else "not a file"
