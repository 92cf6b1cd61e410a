"""The types of what calls give back, for annotations and `isinstance`. ryecore alone makes them."""

from typing import TYPE_CHECKING

from ryecore._lazy import lazy_names

if TYPE_CHECKING:
    from ryecore.actions.fetch import FetchedItem
    from ryecore.actions.graphs import Graphs
    from ryecore.actions.launch import LaunchedThread
    from ryecore.actions.results import DirectiveResult
    from ryecore.actions.sign import SignReport
    from ryecore.actions.threads import ThreadReport, Threads
    from ryecore.actions.verify import VerifyReport
    from ryecore.graph.journal.events import GraphEvent
    from ryecore.graph.model import Graph
    from ryecore.graph.reading import GraphReport
    from ryecore.graph.result import GraphResult
    from ryecore.graph.run import GraphRun
    from ryecore.graph.schedule import NodeError
    from ryecore.graph.view.run_view import RunView, StepSeen
    from ryecore.graph.view.seen import NodeSeen, RunSeen
    from ryecore.policy.budget import Account, Amount, Charge, Settled, TreeSum
    from ryecore.runs.limit_hit import LimitHit
    from ryecore.search.model import SearchResult, SearchResults
    from ryecore.state.events import Envelope, EventsMissed, EventStream
    from ryecore.state.model import Cost, ThreadRecord, ThreadRecords
    from ryecore.state.transcript_check import TranscriptReport, TurnReport
    from ryecore.sync import SyncThread
    from ryecore.sync_graphs import SyncGraphRun
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
    "Graph": "graph.model",
    "GraphEvent": "graph.journal.events",
    "GraphReport": "graph.reading",
    "GraphResult": "graph.result",
    "GraphRun": "graph.run",
    "Graphs": "actions.graphs",
    "LaunchedThread": "actions.launch",
    "LimitHit": "runs.limit_hit",
    "NodeError": "graph.schedule",
    "NodeSeen": "graph.view.seen",
    "ReplayReport": "threads.records.replay_report",
    "RunSeen": "graph.view.seen",
    "RunView": "graph.view.run_view",
    "SearchResult": "search.model",
    "SearchResults": "search.model",
    "Settled": "policy.budget",
    "SignReport": "actions.sign",
    "StartedThread": "threads.result",
    "StepSeen": "graph.view.run_view",
    "SyncGraphRun": "sync_graphs",
    "SyncThread": "sync",
    "ThreadEvent": "threads.events",
    "ThreadRecord": "state.model",
    "ThreadRecords": "state.model",
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
    "Graph",
    "GraphEvent",
    "GraphReport",
    "GraphResult",
    "GraphRun",
    "Graphs",
    "LaunchedThread",
    "LimitHit",
    "NodeError",
    "NodeSeen",
    "ReplayReport",
    "RunSeen",
    "RunView",
    "SearchResult",
    "SearchResults",
    "Settled",
    "SignReport",
    "StartedThread",
    "StepSeen",
    "SyncGraphRun",
    "SyncThread",
    "ThreadEvent",
    "ThreadRecord",
    "ThreadRecords",
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
