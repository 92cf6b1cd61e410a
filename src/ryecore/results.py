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
    from ryecore.search.model import SearchResult, SearchResults
    from ryecore.state.events import Envelope, EventsMissed, EventStream
    from ryecore.state.model import ThreadRecord

_HOMES = {
    "DirectiveResult": "actions.results",
    "Envelope": "state.events",
    "EventStream": "state.events",
    "EventsMissed": "state.events",
    "FetchedItem": "actions.fetch",
    "LaunchedThread": "actions.launch",
    "SearchResult": "search.model",
    "SearchResults": "search.model",
    "SignReport": "actions.sign",
    "ThreadRecord": "state.model",
    "ThreadReport": "actions.threads",
    "Threads": "actions.threads",
    "VerifyReport": "actions.verify",
}

__all__ = [
    "DirectiveResult",
    "Envelope",
    "EventStream",
    "EventsMissed",
    "FetchedItem",
    "LaunchedThread",
    "SearchResult",
    "SearchResults",
    "SignReport",
    "ThreadRecord",
    "ThreadReport",
    "Threads",
    "VerifyReport",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES, below="ryecore")
