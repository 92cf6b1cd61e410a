"""What a tool's result depends on, as one key. Pure, but for a look at the program's file.

The verified bytes that run stand in sealed snapshots, which are named by their digests, and the
plan names these. So the plan, the chain's hashes and the program are all that ryecore knows of.

Source: docs/design/graphs.md#remembered-results; decision 16.
"""

import hashlib
import hmac
import os
from typing import Final

from ryecore.chain.model import Chain
from ryecore.lillux.keys import SigningKey
from ryecore.policy.context import CALL_ID, THREAD_ID, THREAD_MARK
from ryecore.runs.ports import Planned
from ryecore.state.records import canonical_json

__all__ = ["result_key", "secret_of", "why_unkeyed"]

_VERSION: Final = "rye-graph-result-v1"
_SHELLS_OWN: Final = frozenset({"_", "SHLVL", "PWD", "OLDPWD", "COLUMNS", "LINES"})
"""What a shell says of itself and its window, which differs from one to the next."""


def secret_of(key: SigningKey) -> bytes:
    """What keys are made with: this user's alone, so that no value can be guessed from a key."""
    return hashlib.sha256(f"{_VERSION}\n".encode() + key.pem).digest()


_IGNORED: Final = frozenset({*_SHELLS_OWN, CALL_ID, THREAD_ID, THREAD_MARK})


def why_unkeyed(planned: Planned) -> str:
    """Why the result of a call can't be remembered; empty where it can."""
    chain, plan = planned.chain, planned.plan
    if planned.is_served_here:
        return "it is served by ryecore itself, from what it knows at the time"
    if chain.is_own_process:
        return "it is a graph, whose own nodes are remembered instead"
    if chain.is_pinned is not None:
        return "an MCP server answers it, which can answer otherwise each time"
    if plan.keep is not None:
        return "its process is kept for later calls, and may know of earlier ones"
    if not chain.is_verified:
        return "its chain is not verified"
    if plan.deps == "unverified":
        return "it can import packages that no signed lock vouches for"
    return ""


def result_key(secret: bytes, planned: Planned) -> str:
    """The key of a call's result: 64 hex digits.

    Its time limit and whatever names this very call are no part of it.
    """
    plan = planned.plan
    seen = {
        "version": _VERSION,
        "chain": _hashes(planned.chain),
        "command": plan.command,
        "program": _program(plan.command),
        "args": list(plan.args),
        "cwd": plan.cwd,
        "env": {name: value for name, value in plan.env.items() if name not in _IGNORED},
        "stdin": hashlib.sha256(plan.stdin).hexdigest(),
        "max_output_bytes": plan.max_output_bytes,
    }
    return hmac.new(secret, canonical_json(seen), hashlib.sha256).hexdigest()


def _hashes(chain: Chain) -> list[list[str]]:
    return [[one.item_id, one.space, one.integrity] for one in chain.all_elements]


def _program(command: str) -> list[object]:
    """Which file the program is, as far as looking at it tells."""
    real = os.path.realpath(command)
    try:
        seen = os.stat(real)
    except OSError:  # it is gone: the call itself will say so
        return [real]
    return [real, seen.st_size, seen.st_mtime_ns]
