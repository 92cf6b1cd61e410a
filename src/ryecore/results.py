"""The types of what calls give back, for annotations and `isinstance`. ryecore alone makes them."""

from typing import TYPE_CHECKING

from ryecore._lazy import lazy_names

if TYPE_CHECKING:
    from ryecore.actions.fetch import FetchedItem
    from ryecore.actions.launch import LaunchedThread
    from ryecore.actions.results import DirectiveResult
    from ryecore.actions.sign import SignReport
    from ryecore.actions.threads import ThreadReport, Threads
    from ryecore.actions.verify import VerifyReport
    from ryecore.policy.budget import Account, Amount, Charge, Settled, TreeSum
    from ryecore.runs.limit_hit import LimitHit
    from ryecore.search.model import SearchResult, SearchResults
    from ryecore.state.events import Envelope, EventsMissed, EventStream
    from ryecore.state.model import Cost, ThreadRecord
    from ryecore.state.transcript_check import TranscriptReport, TurnReport
    from ryecore.sync import SyncThread
    from ryecore.threads.events import ThreadEvent
    from ryecore.threads.records.replay_report import Difference, ReplayReport
    from ryecore.threads.result import StartedThread, ThreadResult
    from ryecore.threads.view.tree import TreeNode

_HOMES = {
    "Account": "policy.budget",
    "Amount": "policy.budget",
    "Charge": "policy.budget",
    "Cost": "state.model",
    "Difference": "threads.records.replay_report",
    "DirectiveResult": "actions.results",
    "Envelope": "state.events",
    "EventStream": "state.events",
    "EventsMissed": "state.events",
    "FetchedItem": "actions.fetch",
    "LaunchedThread": "actions.launch",
    "LimitHit": "runs.limit_hit",
    "ReplayReport": "threads.records.replay_report",
    "SearchResult": "search.model",
    "SearchResults": "search.model",
    "Settled": "policy.budget",
    "SignReport": "actions.sign",
    "StartedThread": "threads.result",
    "SyncThread": "sync",
    "ThreadEvent": "threads.events",
    "ThreadRecord": "state.model",
    "ThreadReport": "actions.threads",
    "ThreadResult": "threads.result",
    "Threads": "actions.threads",
    "TranscriptReport": "state.transcript_check",
    "TreeNode": "threads.view.tree",
    "TreeSum": "policy.budget",
    "TurnReport": "state.transcript_check",
    "VerifyReport": "actions.verify",
}

__all__ = [
    "Account",
    "Amount",
    "Charge",
    "Cost",
    "Difference",
    "DirectiveResult",
    "Envelope",
    "EventStream",
    "EventsMissed",
    "FetchedItem",
    "LaunchedThread",
    "LimitHit",
    "ReplayReport",
    "SearchResult",
    "SearchResults",
    "Settled",
    "SignReport",
    "StartedThread",
    "SyncThread",
    "ThreadEvent",
    "ThreadRecord",
    "ThreadReport",
    "ThreadResult",
    "Threads",
    "TranscriptReport",
    "TreeNode",
    "TreeSum",
    "TurnReport",
    "VerifyReport",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES, below="ryecore")
