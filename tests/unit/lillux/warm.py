"""Programs that start warm, for the tests: Python, with a line at which its template stops."""

import json
import time
from collections.abc import Sequence
from typing import Any

from ryecore.items.spaces import built_in_space
from ryecore.lillux import (
    ProcessResult,
    ProcessSpec,
    TemplateStats,
    WarmPool,
    WarmStart,
    run_process_sync,
)
from ryecore.lillux.witness import Witness
from tests.interpreter import PYTHON

from .system import PATH, children

TEMPLATE = (built_in_space().root / "tools/rye/core/runtimes/python/template.py").read_bytes()
FORK_POINT = 'exec(__import__("os").read(3, 1 << 20), {"script": globals()})'
MIB = 1024 * 1024


def python(
    pool: WarmPool | None,
    body: str,
    *,
    template: str | None = None,
    preload: Sequence[str] = (),
    program: bytes = TEMPLATE,
    command: str = PYTHON,
    sealed: Witness | None = None,
    **options: Any,
) -> ProcessSpec:
    """A Python script that is warm in `pool`.

    Args:
        pool: None starts it cold.
        body: What stands behind the fork point.
        template: The template's whole script, in place of what the Python runtimes have.
        preload: What the template imports.
        program: What the template is sent.
        command: The interpreter.
        sealed: What the template may read before it is ready.
        options: Of the spec.
    """
    options.setdefault("cwd", "/")
    options.setdefault("env", PATH)
    options.setdefault("stdin", b"input")
    warm = None
    if pool is not None:
        settings = json.dumps({"preload": [*preload], "tool": None}).encode()
        arg = template if template is not None else f"{FORK_POINT}\n{body}"
        warm = WarmStart(pool, 1, arg, program, settings, sealed)
    return ProcessSpec(command, ("-Bc", f"\n{body}"), warm=warm, **options)


def first_warm(spec: ProcessSpec) -> ProcessResult:
    """Call it again and again until a child of its template serves the call."""
    end = time.monotonic() + 60
    while not (result := run_process_sync(spec)).warm:
        assert spec.warm is not None
        pool = spec.warm.pool
        assert time.monotonic() < end, pool.stats()
        while time.monotonic() < end and any(one.state == "starting" for one in pool.stats()):
            time.sleep(0.001)  # another cold call costs more
    return result


def template_pid(pool: WarmPool) -> int:
    """The only template of the pool, which has one."""
    (stats,) = pool.stats()
    return stats.pid


def spare_pids(pool: WarmPool) -> set[int]:
    """Every child that waits for a call, when nothing else runs."""
    return children() - {stats.pid for stats in pool.stats()}


def one_spare(spec: ProcessSpec) -> int:
    """The spare that serves the next call."""
    assert spec.warm is not None
    pool = spec.warm.pool
    end = time.monotonic() + 60
    while [stats.spares for stats in pool.stats()] != [1]:
        assert time.monotonic() < end, pool.stats()
        time.sleep(0.001)
    (pid,) = spare_pids(pool)
    return pid


def wait_for_spares_alone(pool: WarmPool) -> Sequence[TemplateStats]:
    """Wait until a template and its spares are the only children, and return its figures.

    The reactor's thread forks a spare, or reaps a child, when it comes to it.
    """
    end = time.monotonic() + 10
    while len(children()) != 1 + (stats := pool.stats())[0].spares:
        assert time.monotonic() < end, (children(), stats)
        time.sleep(0.001)
    return stats
