"""A tool on a warm node beside the same tool here, and a push beside a copy of the files."""

import asyncio
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx2

from ryecore.lillux.keys import PublicKey
from ryecore.remote.protocol.signatures import check_response, combine_headers, sign_request
from tests.benchmarks.harness import report
from tests.remotes import connect
from tests.served_node import ServedNode, served_node
from tests.workspace import Workspace

_ROUNDS = 200
_FILES = 5000
_AT_ONCE = 200
_BODY = b'{"item_id":"tool:acme/two","parameters":{},"thread":"inline"}'


async def _timed_ms(call: Callable[[], Awaitable[object]]) -> float:
    begun = time.perf_counter_ns()
    await call()
    return (time.perf_counter_ns() - begun) / 1e6


@contextmanager
def _bare(workspace: Workspace) -> Iterator[tuple[str, PublicKey]]:
    """A bare server that proves and signs, and nothing else."""
    started = subprocess.Popen(
        [
            sys.executable, "-m", "tests.benchmarks.floor.signed_post",
            workspace.key.public.pem.decode(),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert started.stdout is not None
    try:
        port, pem = started.stdout.readline().split(" ", 1)
        yield f"http://127.0.0.1:{port}/execute", PublicKey.from_pem(pem.replace("|", "\n"))
    finally:
        started.kill()
        started.wait()
        started.stdout.close()


async def _post(web: httpx2.AsyncClient, url: str, node: PublicKey, workspace: Workspace) -> None:
    """Make the same call by hand: sign, post, and prove the answer."""
    headers = sign_request(
        workspace.key,
        method="POST",
        authority=url.split("/")[2],
        path="/execute",
        query="",
        body=_BODY,
        node=node.fingerprint,
        now_s=int(time.time()),
    )
    answer = await web.post(url, content=_BODY, headers=headers)
    check_response(
        node,
        status=answer.status_code,
        headers=combine_headers(answer.headers.raw),
        body=answer.content,
        request={name.lower(): value for name, value in headers.items()},
    )


async def _measure_calls(workspace: Workspace, ref: str) -> None:
    here: list[float] = []
    there: list[float] = []
    bare: list[float] = []
    with _bare(workspace) as (url, node):
        async with workspace.open() as rye, httpx2.AsyncClient() as web:
            for _ in range(_ROUNDS + 10):
                here.append(await _timed_ms(lambda: rye.execute(ref)))
                there.append(await _timed_ms(lambda: rye.execute(ref, target="remote")))
                bare.append(await _timed_ms(lambda: _post(web, url, node, workspace)))
    pairs = zip(here[10:], there[10:], strict=True)
    overhead = statistics.median(remote - local for local, remote in pairs)
    base = statistics.median(bare[10:])
    report(
        "inline tool on a warm node, over the local call", overhead, "ms", floor=base,
        ratio=overhead / base, goal="at most 3 ms where a bare signed POST takes 1.5",
        local=statistics.median(here[10:]),
    )  # fmt: skip


async def _measure_many(workspace: Workspace, ref: str) -> None:
    async with workspace.open() as rye:

        async def once(target: str) -> float:
            async def all_at_once() -> None:
                calls = [rye.execute(ref, target=target) for _ in range(_AT_ONCE)]
                await asyncio.gather(*calls)

            return await _timed_ms(all_at_once)

        await rye.execute(ref, target="remote")
        there, here = await once("remote"), await once("local")
    name = f"{_AT_ONCE} remote calls at once"
    report(name, there, "ms", floor=here, ratio=there / here, against="the same calls here")


async def _measure_push(workspace: Workspace) -> None:
    folder = workspace.project / "data"
    folder.mkdir()
    for number in range(_FILES):
        (folder / f"{number:04}.txt").write_text(f"{number}\n" * 100)
    copy = workspace.root / "copy"
    async with workspace.open() as rye:
        first = await _timed_ms(rye.remotes.push)
        begun = time.perf_counter_ns()
        shutil.copytree(folder, copy)
        copied = (time.perf_counter_ns() - begun) / 1e6
        name = f"push of {_FILES} files"
        report(name, first, "ms", floor=copied, ratio=first / copied, against="shutil.copytree")
        await _report_rsync(folder, copy)
        unchanged = await _timed_ms(rye.remotes.push)
        report(f"{name}, unchanged", unchanged, "ms")
        (folder / "0000.txt").write_text("changed")
        report(f"{name}, one changed", await _timed_ms(rye.remotes.push), "ms")


async def _report_rsync(folder: Path, copy: Path) -> None:
    program = shutil.which("rsync")
    if program is None:
        return
    shutil.rmtree(copy)
    for name in ("first", "unchanged"):
        command = [program, "-a", "--checksum", f"{folder}/", str(copy)]
        copying = partial(subprocess.run, command, check=True)
        taken = await _timed_ms(partial(asyncio.to_thread, copying))
        report(f"rsync of {_FILES} files, {name}", taken, "ms")


def run() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        for name in ("work", "operator"):
            (folder / name).mkdir()
        workspace = Workspace(folder / "work")
        ref = workspace.python("acme/two", "def execute(params, project_path):\n    return 2")
        with served_node(folder / "operator" / "node") as node:
            _name(workspace, node)
            asyncio.run(_measure_calls(workspace, ref))
            asyncio.run(_measure_many(workspace, ref))
            asyncio.run(_measure_push(workspace))


def _name(workspace: Workspace, node: ServedNode) -> None:
    connect(workspace, node, push='{include: ["data/**"]}')
    node.allow(workspace.key, max_runs=2 * _AT_ONCE)


if __name__ == "__main__":
    run()
