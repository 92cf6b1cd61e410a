"""Verification and chains: one file, a chain's files again, 1,000 dependencies, dry runs."""

import asyncio
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen
from nacl import bindings
from ruamel.yaml import YAML

from ryecore.chain.builder import ChainBuilder, FileTypes
from ryecore.chain.dependencies import Dependencies
from ryecore.chain.prepared import Preparer
from ryecore.chain.spec import VerifyDepsSpec
from ryecore.chain.trace import Trace
from ryecore.items import metadata, yaml_loader
from ryecore.items.keys import AuthorKeys
from ryecore.items.refs import ItemRef
from ryecore.items.signature import COMMENT_FORMS, parse_payload, split_content
from ryecore.items.signing import sign_file, sign_item
from ryecore.items.spaces import Space, Spaces, built_in_space, locate
from ryecore.items.trust import TrustStore
from ryecore.items.verification import Verifier
from ryecore.lillux.keys import PublicKey, SigningKey
from ryecore.lillux.witness import Evidence, Witness
from ryecore.rye import Rye
from tests.benchmarks.harness import compare

_DEPENDENCIES = 1000
_BODY = """\
__version__ = "1.0.0"
__executor_id__ = "rye/core/runtimes/python/function"
__tool_description__ = "Count the rows of a CSV file and add up a column."

CONFIG_SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "column": {"type": "string", "default": "amount"}},
}


def execute(params, project_path):
    import csv, os

    with open(os.path.join(project_path, params["path"])) as file:
        rows = list(csv.DictReader(file))
    return {"rows": len(rows), "total": sum(float(row[params["column"]]) for row in rows)}
"""
_CALLS = 20
_SETTLED_S = 0.3  # a folder's time stamps tell of every later change once they are this old


@frozen
class _Bench:
    project: Path
    user: Path
    spaces: Spaces
    key: SigningKey
    trust: TrustStore
    tool: ItemRef
    runtime: ItemRef

    def path(self, ref: ItemRef) -> Path:
        return locate(ref, self.spaces).path


@contextmanager
def _bench() -> Iterator[_Bench]:
    with tempfile.TemporaryDirectory() as folder:
        project, user = Path(folder, "project"), Path(folder, "user")
        spaces = Spaces(
            Space("project", project / ".ai"), Space("user", user / ".ai"), (built_in_space(),)
        )
        key = AuthorKeys(spaces.user, {}).generate("bench")
        tool = ItemRef("tool", "bench/tool")
        path = project / f".ai/tools/{tool.id}.py"
        path.parent.mkdir(parents=True)
        path.write_text(_BODY)
        sign_item(path, key)
        time.sleep(_SETTLED_S)
        yield _Bench(
            project, user, spaces, key, TrustStore(spaces), tool,
            ItemRef("tool", "rye/core/runtimes/python/function"),
        )  # fmt: skip


def _read(path: str | Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, os.fstat(descriptor).st_size + 1)
    finally:
        os.close(descriptor)


def _floor_verify(path: str | Path, relative: str, key: PublicKey) -> None:
    """Read, hash, Ed25519: what no verification can do without."""
    parts = split_content(_read(path), COMMENT_FORMS[".py"])
    signature = parse_payload(parts.line or "")
    if signature is None or signature.content_hash != hashlib.sha256(parts.after).hexdigest():
        raise AssertionError("the bench signed this")
    bindings.crypto_sign_open(signature.value + signature.message("tool", relative), key.raw)


def one_file(bench: _Bench) -> None:
    """Verify one file, its verdict forgotten."""
    verifier = Verifier(bench.trust, remember=False)
    source = locate(bench.tool, bench.spaces)
    compare(
        "verify one file, cold",
        lambda: verifier.verify(source),
        lambda: _floor_verify(source.path, source.relative, bench.key.public),
        goal="<= 1.3x",
        calls=50,
    )


def chain_again(bench: _Bench) -> None:
    """Verify tool and runtime again, verdicts remembered; then the whole cached chain."""
    verifier, evidence = Verifier(bench.trust), Evidence()
    for ref in (bench.tool, bench.runtime):
        verifier.verify(locate(ref, bench.spaces), evidence)
    paths = [bench.path(bench.tool), bench.path(bench.runtime)]

    def floor() -> None:
        for path in paths:
            hashlib.sha256(_read(path)).digest()

    files: Witness = evidence.witness()
    compare("verify tool and runtime again", files.holds, floor, goal="<= 1.6x", calls=200)
    prepared = _preparer(bench).prepare(bench.tool, Trace())
    time.sleep(_SETTLED_S)
    compare(
        "cached chain, with changes and new shadows noticed",
        prepared.holds,
        floor,
        goal="<= 30 us beside a floor of 11 us: 2.7x",
        calls=200,
    )


def chain_cold(bench: _Bench) -> None:
    """Build a chain with every parse and verdict forgotten; the floor parses YAML in C.

    The floor's parser is ruamel's own, as any program would call it.
    """
    content = _read(bench.path(bench.runtime)).decode()
    yaml = YAML(typ="safe")

    def ours() -> None:
        metadata._parse.cache_clear()
        yaml_loader._remembered.cache_clear()
        verifier = Verifier(bench.trust, remember=False)
        builder = ChainBuilder(bench.spaces, verifier, FileTypes(bench.spaces, bench.trust))
        builder.build(bench.tool, Trace(), Evidence())

    tool = bench.path(bench.tool)

    def floor() -> None:
        yaml.load(content)
        for _ in range(2):
            _floor_verify(tool, f"{bench.tool.id}.py", bench.key.public)

    compare("chain built cold", ours, floor, goal="<= 1.3 ms beside 0.94 ms: 1.4x", calls=5)


def dry_run(bench: _Bench) -> None:
    """A dry run in a warm process: parses remembered, every signature checked anew."""
    tool = bench.path(bench.tool)

    def floor() -> None:
        for _ in range(2):
            _floor_verify(tool, f"{bench.tool.id}.py", bench.key.public)

    with asyncio.Runner() as runner:
        rye = Rye.open(bench.project, user_space=bench.user)

        def ours() -> None:
            runner.run(repeat())

        async def repeat() -> None:
            for _ in range(_CALLS):
                await rye.execute(bench.tool, {}, dry_run=True)

        time.sleep(_SETTLED_S)
        compare(
            f"dry run, warm ({_CALLS} in one loop)",
            ours,
            lambda: [floor() for _ in range(_CALLS)],
            goal="<= 0.35 ms beside 0.14 ms: 2.5x",
        )
        runner.run(rye.aclose())


def dependencies(bench: _Bench) -> None:
    """Verify and seal 1,000 dependency files; then the sealed anchor again, by stat."""
    anchor = bench.project / ".ai/tools/many"
    anchor.mkdir()
    for number in range(_DEPENDENCIES):
        path = anchor / ("__init__.py" if number == 0 else f"module_{number}.py")
        path.write_text(_BODY)
        sign_file(path, "tool", f"many/{path.name}", bench.key)
    paths = sorted(anchor.iterdir())
    tool = ItemRef("tool", "many/module_1")
    prepared = _preparer(bench).prepare(tool, Trace())
    owner = Verifier(bench.trust).verify(locate(tool, bench.spaces))
    wish = VerifyDepsSpec(enabled=True, extensions=(".py",))

    def ours() -> None:
        Dependencies(Verifier(bench.trust, remember=False)).verify_tree(
            anchor, wish, owner, Evidence()
        )

    def floor() -> None:
        for path in paths:
            _floor_verify(path, f"many/{path.name}", bench.key.public)

    compare(
        f"verify {_DEPENDENCIES} dependency files",
        ours, floor, goal="<= 1.3x on one core, less on two", rounds=5, unit="ms",
    )  # fmt: skip
    time.sleep(_SETTLED_S)
    compare(
        f"a sealed anchor of {_DEPENDENCIES} files again, by stat",
        prepared.holds,
        lambda: [os.stat(path) for path in paths],
        goal="<= 1 ms",
        rounds=10,
        unit="ms",
    )


def _preparer(bench: _Bench) -> Preparer:
    rye = Rye.open(bench.project, user_space=bench.user)
    return rye._parts._executor._preparer


def run() -> None:
    """Print the figures."""
    with _bench() as bench:
        for measure in (one_file, chain_again, chain_cold, dry_run, dependencies):
            measure(bench)


if __name__ == "__main__":
    run()
