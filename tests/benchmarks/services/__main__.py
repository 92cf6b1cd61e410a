"""The help desk of each library: its lines of code, and its requests a second.

    python -m tests.benchmarks.services [--python /path/to/a/python ...]

Each must do the same: keep tenants apart, stream, ask for an approval that survives a restart,
and write a typed ticket. Then new conversations of one message are sent, 20 at once; each is two
answers of the fake model, a tool, a stream of 20 pieces and a row in SQLite. The services take
turns. One that no Python has is reported as absent.
"""

import argparse
import ast
import asyncio
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tokenize
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.benchmarks.harness import report

SERVICES = {"bare": "bare_desk", "ryecore": "ryecore_desk", "pydantic-ai": "pydantic_desk"}
AT_ONCE, REQUESTS, PASSES = 20, 600, 5
_FOLDER = Path(__file__).parent
_ROOT = _FOLDER.parents[2]
_IGNORED = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(path: Path) -> int:
    """Count the lines of a module that hold code: no blank line, comment or docstring."""
    text = path.read_text()
    lines = set()
    with path.open("rb") as source:
        for token in tokenize.tokenize(source.readline):
            if token.type not in _IGNORED and token.type != tokenize.ENCODING:
                lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                lines.difference_update(range(node.lineno, (node.end_lineno or 0) + 1))
    return len(lines)


@contextmanager
def served(python: str, name: str, folder: Path) -> Iterator[int]:
    """Serve a help desk that keeps its conversations in a folder, and yield its port."""
    command = [python, "-m", "tests.benchmarks.services.serve", name]
    paths = f"{_ROOT}:{_ROOT / 'src'}" if python == sys.executable else str(_ROOT)
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline()
            if not port:
                raise RuntimeError(f"{name} didn't start")
            yield int(port)
        finally:
            process.terminate()


def has(python: str, name: str) -> bool:
    """Whether a Python has what a help desk imports."""
    code = f"import tests.benchmarks.services.{name}"
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [python, "-c", code],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            capture_output=True,
            check=False,
        )
    return done.returncode == 0


def _post(port: int, path: str, tenant: str, given: object) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    headers = {"x-tenant": tenant, "content-type": "application/json"}
    connection.request("POST", path, json.dumps(given), headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def _told(answer: tuple[int, str]) -> tuple[str, list[Any]]:
    """Return the text of a stream of events, and the calls that wait for an approval."""
    assert answer[0] == 200, answer
    events = [json.loads(line[6:]) for line in answer[1].splitlines() if line]
    text = "".join(event.get("text", "") for event in events)
    return text, [event["approve"] for event in events if "approve" in event]


def check(python: str, name: str) -> None:
    """Show that a help desk does what is asked of it, over a restart."""
    question = {"text": "Where is order 7?"}
    with tempfile.TemporaryDirectory() as folder:
        with served(python, name, Path(folder)) as port:
            assert _post(port, "/chats/1", "nobody", question)[0] == 403
            assert _told(_post(port, "/chats/1", "acme", question))[0].endswith("on its way")
            assert _told(_post(port, "/chats/1", "globex", question))[0].endswith("delivered")
            _, [call] = _told(_post(port, "/chats/1", "acme", {"text": "A refund, please."}))
            assert call["arguments"] == {"order": 7, "usd": 20.0}, call
            status, ticket = _post(port, "/chats/2/ticket", "acme", {})
            assert json.loads(ticket) == {"order": 7, "mood": "calm"}, (status, ticket)
        given = {"id": call["id"], "approve": True}
        with served(python, name, Path(folder)) as port:
            assert _post(port, "/chats/1/answer", "globex", given)[0] == 409
            text, _ = _told(_post(port, "/chats/1/answer", "acme", given))
            assert text.endswith("20.0 USD paid back for order 7 of acme"), text


async def _send(port: int, numbers: Iterator[int], end: int) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    events = 0
    body = b'{"text": "Where is order 7?"}'
    for number in numbers:
        if number >= end:
            break
        writer.write(
            b"POST /chats/c%d HTTP/1.1\r\nhost: here\r\nx-tenant: acme\r\n"
            b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
            % (number, len(body), body)
        )
        answer = await reader.readuntil(b"\r\n0\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"data: {}" in answer
        events += answer.count(b"data: ")
    writer.close()
    return events


async def _at_once(port: int, begin: int, count: int) -> tuple[float, int]:
    numbers = iter(range(begin, begin + count + AT_ONCE))
    started = time.perf_counter()
    events = await asyncio.gather(*(_send(port, numbers, begin + count) for _ in range(AT_ONCE)))
    return count / (time.perf_counter() - started), sum(events)


def rate(python: str, name: str) -> tuple[float, float]:
    """Measure the requests a second of a new server, and the events of one."""
    with tempfile.TemporaryDirectory() as folder, served(python, name, Path(folder)) as port:
        asyncio.run(_at_once(port, 0, 100))
        each_second, events = asyncio.run(_at_once(port, 1_000, REQUESTS))
    return each_second, events / REQUESTS


def run(pythons: Sequence[str]) -> None:
    """Report each service: its lines, and its rate beside that of the bare one."""
    found: dict[str, str] = {}
    for service, name in SERVICES.items():
        python = next((one for one in pythons if has(one, name)), None)
        if python is None:
            report(f"help desk: {service}", 0, "absent")
            continue
        found[service] = python
        if service != "bare":
            check(python, name)
    rates: dict[str, list[float]] = {service: [] for service in found}
    events: dict[str, float] = {}
    for _ in range(PASSES):
        for service, python in found.items():
            each_second, events[service] = rate(python, SERVICES[service])
            rates[service].append(each_second)
    for service, each in rates.items():
        report(
            f"help desk: {service}",
            statistics.median(each),
            "/s",
            best=max(each),
            of_bare=statistics.median(
                one / bare for one, bare in zip(each, rates["bare"], strict=True)
            ),
            events=events[service],
            code_lines=code_lines(_FOLDER / f"{SERVICES[service]}.py"),
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", action="append", help="a Python that has libraries")
    run([sys.executable, *(parser.parse_args().python or ())])
