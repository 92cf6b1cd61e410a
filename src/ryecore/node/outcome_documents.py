"""The outcome of a run as a JSON document, which its worker writes for the node that enqueued it.

The worker may be of another version of ryecore than the node.

Source: docs/design/queues.md#runs-of-a-node.
"""

import json
from typing import Any, Final

from ryecore.convert.strict import RECORDS, ConversionError
from ryecore.errors import StateError
from ryecore.node.threads import Outcome

__all__ = ["read_outcome", "write_outcome"]

_VERSION: Final = 1


def write_outcome(outcome: Outcome) -> str:
    """Return an outcome as a JSON document with its version."""
    return json.dumps({"version": _VERSION, "outcome": RECORDS.write(outcome)})


def read_outcome(text: str) -> Outcome:
    """Read what `write_outcome` wrote.

    Raises:
        StateError: It has another version, or isn't such a document.
    """
    try:
        document: dict[str, Any] = json.loads(text)
        version = document["version"]
        if version == _VERSION:
            return RECORDS.read(document["outcome"], Outcome)
        problem = f"has version {version}, and this node reads version {_VERSION}"
    except (ValueError, TypeError, KeyError, ConversionError) as error:
        problem = f"can't be read: {type(error).__name__}"
    raise StateError(
        f"The run has ended, but its outcome, which the worker wrote, {problem}.",
        next_step="Install the same version of ryecore for the node and its workers. See what the "
        "run has done before you start it again.",
    )
