"""A reader of the documentation, who does what a page says in a project of their own."""

import ast
import asyncio
import inspect
import io
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import ryecore
from ryecore.cli.commands import rye as rye_command

__all__ = ["Reader", "assert_printed"]

_HELP = re.compile(r"rye ((?:[\w-]+ )*--help)")
_PROMPT = re.compile(r"(?:(\w+)@\w+)?\$ ")
_URL = re.compile(r"https?://127\.0\.0\.1:\d+")


@dataclass
class Reader:
    """Somebody who does what a page says, in a project of their own."""

    home: Path
    project: Path
    environ: dict[str, str]
    names: dict[str, object] = field(default_factory=dict)
    printed: str = ""
    places: dict[str, Path] = field(default_factory=dict)
    servers: dict[str, tuple[str, subprocess.Popen[str]]] = field(default_factory=dict)

    def console(self, block: str) -> None:
        """Run each command of a block and compare what it prints."""
        for user, command, expected in _commands(block):
            help_of = _HELP.fullmatch(command)
            printed = _help(help_of[1].split()) if help_of else self.shell(command, user)
            assert_printed(printed, expected, self, command)

    def shell(self, command: str, user: str = "") -> str:
        """Run one command; a `cd` in it holds for the user's next one."""
        place = self.home / ".place"
        folder, environ = self._login(user)
        done = subprocess.run(
            ["bash", "-c", f"{{ {self.as_served(command)}\n}} 2>&1; pwd > {place}"],
            cwd=folder,
            env=environ,
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.places[user] = Path(place.read_text().strip())
        self.project = self.places.get("", self.project)
        return done.stdout

    def _login(self, user: str) -> tuple[Path, dict[str, str]]:
        """Return where a user's commands run, and their environment."""
        if not user:
            return self.project, self.environ
        home = self.home.with_name(user)
        home.mkdir(exist_ok=True)
        return self.places.get(user, home), {**self.environ, "HOME": str(home), "LOGNAME": user}

    def serve(self, url: str, command: str, user: str) -> None:
        """Start a server, which prints its URL, and have this one stand for it on the page.

        One that served this URL before is ended first: it is restarted.
        """
        if url in self.servers:
            _, before = self.servers.pop(url)
            before.terminate()
            before.communicate(timeout=30)
        folder, environ = self._login(user)
        server = subprocess.Popen(
            ["bash", "-c", f"exec {command} 2>&1"],
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.servers[url] = "", server
        assert server.stdout is not None
        lines: list[str] = []
        while (found := _URL.search(lines[-1] if lines else "")) is None:
            lines.append(server.stdout.readline())
            assert lines[-1], "".join(lines)
        self.servers[url] = found[0], server

    def prepare(self, note: str, text: str) -> None:
        """Do what a comment of a page says."""
        if note == "serve":
            url, _, text = text.partition(" ")
            prompt = _PROMPT.match(text)
            user, command = (prompt[1] or "", text[prompt.end() :]) if prompt else ("", text)
            self.serve(url, command, user)
        else:
            assert note == "setup", f"{note} isn't a comment that is known"
            ((user, command, _),) = _commands(text if _PROMPT.match(text) else f"$ {text}")
            self.shell(command, user)

    def end_servers(self) -> None:
        """End what runs."""
        for _, server in self.servers.values():
            server.terminate()
        for _, server in self.servers.values():
            server.communicate(timeout=30)

    def as_served(self, text: str) -> str:
        """Text with the real URLs of servers."""
        for url, (real, _) in self.servers.items():
            text = text.replace(url, real)
        return text

    def python(self, block: str, page: Path) -> None:
        """Run a block; names live on in the page's next one, and `await` works as in a notebook."""
        code = compile(
            self.as_served(block), str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        )
        out = io.StringIO()
        with redirect_stdout(out):
            if code.co_flags & inspect.CO_COROUTINE:
                asyncio.run(eval(code, self.names))  # a code object that awaits gives a coroutine
            else:
                exec(code, self.names)
        self.printed = out.getvalue()

    def as_documented(self, text: str) -> str:
        """Text without what differs from machine to machine and from run to run."""
        for real, shown in (
            *((real, url) for url, (real, _) in self.servers.items()),
            (str(self.home.parent), "/home"),
            (str(Path(ryecore.__file__).parent), "/ryecore"),
            (sys.prefix, "/venv"),
        ):
            text = text.replace(real, shown)
        text = re.sub(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME", text)
        text = re.sub(r"\b[0-9a-f]{12,64}\b", "HASH", text)
        text = re.sub(r"\b\d+(\.\d+)? ms\b", "N ms", text)
        return re.sub(r'("duration_ms": )\d+', r"\1N", text)


def assert_printed(printed: str, expected: str, reader: Reader, what: str) -> None:
    """Compare output with what a page shows."""
    wanted = reader.as_documented(expected.strip())
    pattern = re.escape(wanted).replace("…", ".*")
    shown = "\n".join(line.rstrip() for line in reader.as_documented(printed).strip().splitlines())
    assert re.fullmatch(pattern, shown, re.DOTALL), (
        f"{what}\n--- printed:\n{shown}\n--- documented:\n{wanted}"
    )


def _commands(block: str) -> Iterator[tuple[str, str, str]]:
    """The commands of a console block, each with its user and the output that stands behind it."""
    user, command, output = "", "", []
    for line in block.splitlines():
        if prompt := _PROMPT.match(line):
            if command:
                yield user, command, "\n".join(output)
            user, command, output = prompt[1] or "", line[prompt.end() :], []
        elif line.startswith("> ") and not output:
            command += "\n" + line[2:]
        else:
            output.append(line)
    yield user, command, "\n".join(output)


def _help(args: list[str]) -> str:
    """What `rye ... --help` prints. `test_commands.py` shows that a process prints it, too."""
    out = io.StringIO()
    with redirect_stdout(out):
        rye_command.main(args, prog_name="rye", standalone_mode=False)
    return out.getvalue()
