"""The typed front of the native extension: processes, content store, digests, watching, keys."""

from typing import TYPE_CHECKING

from ryecore._lazy import lazy_names

if TYPE_CHECKING:
    from ryecore._native import monotonic_ns as monotonic_ns
    from ryecore._native import now_ns as now_ns
    from ryecore.lillux.digests import ContentStore as ContentStore
    from ryecore.lillux.digests import TreeDigest as TreeDigest
    from ryecore.lillux.digests import TreeFilter as TreeFilter
    from ryecore.lillux.digests import digest_tree as digest_tree
    from ryecore.lillux.digests import list_tree as list_tree
    from ryecore.lillux.digests import read_digest as read_digest
    from ryecore.lillux.digests import read_files as read_files
    from ryecore.lillux.digests import sha256_file as sha256_file
    from ryecore.lillux.digests import stat_tree as stat_tree
    from ryecore.lillux.keys import BoxKey as BoxKey
    from ryecore.lillux.keys import PublicKey as PublicKey
    from ryecore.lillux.keys import SigningKey as SigningKey
    from ryecore.lillux.keys import open_envelope as open_envelope
    from ryecore.lillux.keys import seal_envelope as seal_envelope
    from ryecore.lillux.processes import ProcessId as ProcessId
    from ryecore.lillux.processes import ProcessResult as ProcessResult
    from ryecore.lillux.processes import ProcessSpec as ProcessSpec
    from ryecore.lillux.processes import RunningProcess as RunningProcess
    from ryecore.lillux.processes import TemplateStats as TemplateStats
    from ryecore.lillux.processes import WarmPool as WarmPool
    from ryecore.lillux.processes import WarmStart as WarmStart
    from ryecore.lillux.processes import current_process as current_process
    from ryecore.lillux.processes import kill_process as kill_process
    from ryecore.lillux.processes import process_status as process_status
    from ryecore.lillux.processes import run_process as run_process
    from ryecore.lillux.processes import run_process_sync as run_process_sync
    from ryecore.lillux.processes import spawn_detached as spawn_detached
    from ryecore.lillux.schema import SchemaFailure as SchemaFailure
    from ryecore.lillux.schema import SchemaValidator as SchemaValidator
    from ryecore.lillux.watching import Watcher as Watcher
    from ryecore.lillux.watching import wait_for_change as wait_for_change
    from ryecore.lillux.watching import watch as watch
    from ryecore.lillux.witness import TreeStat as TreeStat
    from ryecore.lillux.witness import Witness as Witness
else:
    __getattr__, __dir__ = lazy_names(__name__)
