"""The types of the results of calls, for annotations and `isinstance`.

Only ryecore makes instances.
"""

from typing import TYPE_CHECKING

from ryecore._lazy import lazy_names

if TYPE_CHECKING:
    from ryecore.actions.cluster import ClusterStatus as ClusterStatus
    from ryecore.actions.cluster import QueueStatus as QueueStatus
    from ryecore.actions.cluster import WorkerStatus as WorkerStatus
    from ryecore.actions.costs import CostRow as CostRow
    from ryecore.actions.costs import CostRows as CostRows
    from ryecore.actions.directive import DirectiveResult as DirectiveResult
    from ryecore.actions.fetch import FetchedItem as FetchedItem
    from ryecore.actions.graphs import Graphs as Graphs
    from ryecore.actions.maps import Map as Map
    from ryecore.actions.maps import MapResult as MapResult
    from ryecore.actions.remotes import RemoteCheck as RemoteCheck
    from ryecore.actions.remotes import Remotes as Remotes
    from ryecore.actions.sign import SignReport as SignReport
    from ryecore.actions.threads import ThreadReport as ThreadReport
    from ryecore.actions.threads import Threads as Threads
    from ryecore.actions.verify import VerifyReport as VerifyReport
    from ryecore.graph.map_progress import MapProgress as MapProgress
    from ryecore.graph.map_result import MapRow as MapRow
    from ryecore.graph.model import Graph as Graph
    from ryecore.graph.projection import NodeStatus as NodeStatus
    from ryecore.graph.projection import RunStatus as RunStatus
    from ryecore.graph.reading import GraphReport as GraphReport
    from ryecore.graph.result import GraphResult as GraphResult
    from ryecore.graph.run import GraphRun as GraphRun
    from ryecore.graph.run_view import RunCheckpoint as RunCheckpoint
    from ryecore.graph.run_view import RunView as RunView
    from ryecore.policy.authorization import AuthorizationRequest as AuthorizationRequest
    from ryecore.policy.authorization import Authorize as Authorize
    from ryecore.policy.budget import Account as Account
    from ryecore.policy.budget import Amount as Amount
    from ryecore.policy.budget import Charge as Charge
    from ryecore.policy.budget import Settled as Settled
    from ryecore.policy.budget import TreeSum as TreeSum
    from ryecore.policy.execution import AuditRecord as AuditRecord
    from ryecore.policy.execution import Execution as Execution
    from ryecore.policy.limits import LimitHit as LimitHit
    from ryecore.policy.reports import ToolLog as ToolLog
    from ryecore.policy.reports import ToolProgress as ToolProgress
    from ryecore.policy.reports import ToolQuestion as ToolQuestion
    from ryecore.remote.changes import PullReport as PullReport
    from ryecore.remote.plan import PushPlan as PushPlan
    from ryecore.remote.push import PushProgress as PushProgress
    from ryecore.search.model import SearchResult as SearchResult
    from ryecore.search.model import SearchResults as SearchResults
    from ryecore.state.approvals import ThreadApproval as ThreadApproval
    from ryecore.state.cost_sums import CostSum as CostSum
    from ryecore.state.events import Envelope as Envelope
    from ryecore.state.events import EventsMissed as EventsMissed
    from ryecore.state.events import EventStream as EventStream
    from ryecore.state.events import RunEvent as RunEvent
    from ryecore.state.model import Cost as Cost
    from ryecore.state.model import ThreadRecord as ThreadRecord
    from ryecore.state.model import ThreadRecords as ThreadRecords
    from ryecore.state.transcript_report import TranscriptReport as TranscriptReport
    from ryecore.state.transcript_report import TurnReport as TurnReport
    from ryecore.sync import SyncMapResult as SyncMapResult
    from ryecore.sync_handles import SyncGraphRun as SyncGraphRun
    from ryecore.sync_handles import SyncThread as SyncThread
    from ryecore.threads.records.report import Difference as Difference
    from ryecore.threads.records.report import ReplayReport as ReplayReport
    from ryecore.threads.result import StartedThread as StartedThread
    from ryecore.threads.result import ThreadResult as ThreadResult
    from ryecore.threads.tree_node import TreeNode as TreeNode
else:
    __getattr__, __dir__ = lazy_names(__name__)
