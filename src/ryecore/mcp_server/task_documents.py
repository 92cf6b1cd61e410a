"""Tasks as both eras of the protocol write them. Pure.

Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks;
https://modelcontextprotocol.io/seps/2663-tasks-extension.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from attrs import field
from mcp_types import CallToolResult, ErrorData

from ryecore.frozen import frozen
from ryecore.mcp_server.asking import ClientRequest

__all__ = [
    "EXTENSION",
    "FIRST_WITH_TASKS",
    "RELATED_TASK",
    "TaskState",
    "TaskStatus",
    "created_document",
    "detailed_document",
    "legacy_document",
]

EXTENSION: Final = "io.modelcontextprotocol/tasks"
"""The extension of 2026 that tasks are."""

FIRST_WITH_TASKS: Final = "2025-11-25"
"""The version of the protocol whose core has tasks; no other one has."""

RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
"""Where the `_meta` of a message of 2025 names the task that it belongs to."""

_YOUNG_S: Final = 5.0
_YOUNG_POLL_MS: Final = 200
_POLL_MS: Final = 1000

TaskStatus: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]


@frozen
class TaskState:
    """A task, as it is now.

    Attributes:
        task_id: Its id.
        status: Its status by the rules of 2026, where a tool's own failure is a result.
        created_at: When it was created, by ISO 8601.
        updated_at: When its status last changed.
        message: What it does, or why it ended so, for people.
        requests: What its client has to respond to, by key; only with `input_required`.
        result: The result of its tool; only with `completed`.
        error: Why there is no result; only with `failed` and `cancelled`.
        age_s: The seconds since it was created.
    """

    task_id: str
    status: TaskStatus
    created_at: str
    updated_at: str
    message: str = ""
    requests: Mapping[str, ClientRequest] = field(factory=dict)
    result: CallToolResult | None = None
    error: ErrorData | None = None
    age_s: float = 0.0

    @property
    def poll_ms(self) -> int:
        """In how many milliseconds it should be asked for again; a young one sooner."""
        return _YOUNG_POLL_MS if self.age_s < _YOUNG_S else _POLL_MS

    @property
    def has_ended(self) -> bool:
        """Whether its status is final."""
        return self.status in ("completed", "failed", "cancelled")


def created_document(task: TaskState) -> dict[str, Any]:
    """Return the result of a call of 2026 that became a task."""
    return {"resultType": "task", **_modern(task)}


def detailed_document(task: TaskState) -> dict[str, Any]:
    """Return a task of 2026 with what its status brings: requests, a result, or an error."""
    document = _modern(task)
    if task.status == "input_required":
        document["inputRequests"] = {key: _plain(one) for key, one in task.requests.items()}
    elif task.result is not None:
        document["result"] = _plain(task.result)
    elif task.status == "failed" and task.error is not None:
        document["error"] = _plain(task.error)
    return document


def legacy_document(task: TaskState) -> dict[str, Any]:
    """Return a task of 2025-11-25."""
    return {
        **_head(task),
        "status": legacy_status(task),
        "ttl": None,
        "pollInterval": task.poll_ms,
    }


def legacy_status(task: TaskState) -> TaskStatus:
    """Return the status by the rules of 2025-11-25, where a tool's own failure is one, too."""
    is_failure = task.result is not None and task.result.is_error
    return "failed" if is_failure else task.status


def _modern(task: TaskState) -> dict[str, Any]:
    return {**_head(task), "status": task.status, "ttlMs": None, "pollIntervalMs": task.poll_ms}


def _head(task: TaskState) -> dict[str, Any]:
    return {
        "taskId": task.task_id,
        "createdAt": task.created_at,
        "lastUpdatedAt": task.updated_at,
        **({"statusMessage": task.message} if task.message else {}),
    }


def _plain(model: Any) -> dict[str, Any]:
    plain: dict[str, Any] = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return plain
