"""The typed front of the native extension: processes, store, digests, watching, time; keys too."""

from ryecore.lillux.clock import monotonic_ns, now_ns
from ryecore.lillux.digests import (
    TreeDigest,
    TreeFilter,
    digest_tree,
    list_tree,
    read_digest,
    read_files,
    sha256_file,
    stat_tree,
)
from ryecore.lillux.envelopes import BoxKey, open_envelope, seal_envelope
from ryecore.lillux.keys import PublicKey, SigningKey
from ryecore.lillux.processes import (
    ProcessId,
    ProcessResult,
    ProcessSpec,
    current_process,
    kill_process,
    process_status,
    run_process,
    run_process_sync,
    spawn_detached,
)
from ryecore.lillux.schema import SchemaFailure, SchemaValidator
from ryecore.lillux.store import ContentStore
from ryecore.lillux.watch import Watcher, wait_for_change, watch
from ryecore.lillux.witness import TreeStat, Witness

__all__ = [
    "BoxKey",
    "ContentStore",
    "ProcessId",
    "ProcessResult",
    "ProcessSpec",
    "PublicKey",
    "SchemaFailure",
    "SchemaValidator",
    "SigningKey",
    "TreeDigest",
    "TreeFilter",
    "TreeStat",
    "Watcher",
    "Witness",
    "current_process",
    "digest_tree",
    "kill_process",
    "list_tree",
    "monotonic_ns",
    "now_ns",
    "open_envelope",
    "process_status",
    "read_digest",
    "read_files",
    "run_process",
    "run_process_sync",
    "seal_envelope",
    "sha256_file",
    "spawn_detached",
    "stat_tree",
    "wait_for_change",
    "watch",
]
