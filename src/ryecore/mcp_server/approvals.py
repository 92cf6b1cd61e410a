"""Approvals by the person at the MCP client, before a model's request changes what may run.

Up to the protocol of 2025 the server asks while the call waits. From 2026 on the call ends with
the question, the client calls again with the answer, and the server remembers the question.
"""

import hashlib
import json
import secrets
import textwrap
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from attrs import field
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp_types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    InputResponseRequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ryecore.display.sanitize import replace_invisible
from ryecore.display.text import counted
from ryecore.errors import NotApproved
from ryecore.frozen import frozen
from ryecore.policy.permissions import ApprovalRequest, FileToApprove

__all__ = ["Approvals", "InputRequired", "question"]

_MAX_OPEN: Final = 1000
_MAX_SHOWN_FILES: Final = 50
_MAX_SHOWN_LINES: Final = 60
_ROW_CHARS: Final = 120
_FORM: Final = {
    "type": "object",
    "properties": {
        "approve": {
            "type": "boolean",
            "title": "I have read this, and it may be done",
            "default": False,
        }
    },
    "required": ["approve"],
}


class InputRequired(Exception):
    """The call needs an answer of the person before it continues."""

    def __init__(self, result: InputRequiredResult) -> None:
        super().__init__("a question")
        self.result = result


@frozen
class _Open:
    """An open question, and what was approved before it in the same call."""

    key: str
    approved: frozenset[str]


@frozen
class _Call:
    """A call that may need an approval."""

    ctx: ServerRequestContext[Any, Any]
    params: InputResponseRequestParams
    answered: _Open | None
    approved: frozenset[str] = field(factory=frozenset)


class Approvals:
    """Approvals by the person at the client of a call; pass it to `Rye.open(approve=...)`."""

    def __init__(self) -> None:
        self._calls: dict[str, _Call] = {}
        self._open: OrderedDict[str, _Open] = OrderedDict()

    def knows(self, state: str) -> bool:
        """Return whether a state is that of an open question."""
        return state in self._open

    @contextmanager
    def during(
        self, call_id: str, ctx: ServerRequestContext[Any, Any], params: InputResponseRequestParams
    ) -> Iterator[None]:
        """Send the questions of a call to the client that made it, for the time of the block."""
        # Each question is answered once.
        answered = self._open.pop(params.request_state or "", None)
        approved = answered.approved if answered is not None else frozenset[str]()
        if answered is not None and _is_yes((params.input_responses or {}).get(answered.key)):
            approved |= {answered.key}
        self._calls[call_id] = _Call(ctx, params, answered, approved)
        try:
            yield
        finally:
            del self._calls[call_id]

    async def __call__(self, request: ApprovalRequest, /) -> bool:
        """Return whether the person approves of exactly this request.

        `InputRequired` asks the client to call again with the answer; `NotApproved` says that it
        can't ask.
        """
        call = self._calls.get(request.call_id)
        if call is None:
            return False
        session = call.ctx.session
        offered = session.client_capabilities.elicitation if session.client_capabilities else None
        if offered is None or (offered.form is None and offered.url is not None):
            raise _cannot_ask(request, "it doesn't offer elicitation")
        if call.ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return self._answer_of(call, request)
        try:
            answer = await session.elicit_form(question(request), _FORM, call.ctx.request_id)
        except (MCPError, NoBackChannelError) as problem:
            raise _cannot_ask(request, str(problem)) from None
        return _is_yes(answer)

    def _answer_of(self, call: _Call, request: ApprovalRequest) -> bool:
        key = _key(request)
        if key in call.approved:
            return True
        if call.answered is not None and call.answered.key == key:
            return False
        state = secrets.token_urlsafe(24)
        self._open[state] = _Open(key, call.approved)
        while len(self._open) > _MAX_OPEN:
            self._open.popitem(last=False)
        form = ElicitRequestFormParams(message=question(request), requested_schema=_FORM)
        raise InputRequired(
            InputRequiredResult(
                input_requests={key: ElicitRequest(params=form)}, request_state=state
            )
        )


def _is_yes(answer: object) -> bool:
    return (
        isinstance(answer, ElicitResult)
        and answer.action == "accept"
        and (answer.content or {}).get("approve") is True
    )


def _cannot_ask(request: ApprovalRequest, why: str) -> NotApproved:
    names = ", ".join(file.item_id for file in request.files[:5])
    return NotApproved(
        f"To {request.action} {names} needs a person's approval, and this MCP client can't ask for "
        f"it: {why}.",
        next_step="Use a client with elicitation, or run the rye command yourself.",
    )


def _key(request: ApprovalRequest) -> str:
    """Return a digest of the question: its files and their content."""
    digest = hashlib.sha256(f"{request.action}\0{request.space}".encode())
    for file in request.files:
        line = f"\0{file.item_id}\0{file.path}\0{file.content_hash}\0{file.state}"
        digest.update(line.encode("utf-8", errors="surrogateescape"))
    return digest.hexdigest()


def question(request: ApprovalRequest) -> str:
    """Return the question: the facts come first, so that a file's text can't imitate them.

    Every name is quoted, and hidden lines are counted.
    """
    verb = "Sign" if request.action == "sign" else "Copy"
    count = len(request.files)
    files = counted(count, "file")
    lines = [f"{verb} {files} in {request.space} space? What is signed may run here."]
    shown = request.files[:_MAX_SHOWN_FILES]
    lines += [
        f"- {_quoted(file.item_id)} ({file.state}, {file.size_bytes} bytes, "
        f"sha256 {file.content_hash[:16]})"
        for file in shown
    ]
    if count > len(shown):
        lines.append(f"- and {count - len(shown)} more that are not shown")
    left = _MAX_SHOWN_LINES
    for file in shown:
        excerpt = _excerpt(file, left)
        left -= sum(row.startswith("  | ") for row in excerpt)
        lines += excerpt
    return "\n".join(lines)


def _excerpt(file: FileToApprove, max_lines: int) -> list[str]:
    """Return the first lines of a file, and how much they leave out."""
    excerpt: list[str] = []
    hidden_lines, hidden_chars = file.hidden_lines, file.hidden_chars
    for line in file.preview.splitlines():
        rows = textwrap.wrap(
            replace_invisible(line.expandtabs(4)),
            _ROW_CHARS,
            drop_whitespace=False,
            replace_whitespace=False,
        )
        if len(excerpt) + len(rows) <= max_lines:
            excerpt += [f"  | {row}" for row in rows or [""]]
        else:
            max_lines = 0  # after a line that isn't shown, none is shown
            hidden_lines, hidden_chars = hidden_lines + 1, hidden_chars + len(line)
    if hidden_lines or hidden_chars:
        excerpt.append(
            f"  NOT SHOWN: {hidden_lines} more lines with {hidden_chars} characters of "
            f"{_quoted(file.item_id)}. Read the file before you approve."
        )
    return [f"\n{_quoted(file.item_id)} begins:", *excerpt] if excerpt else []


def _quoted(name: str) -> str:
    """Return a name in quotes, without characters that end the line or turn its direction."""
    return json.dumps(replace_invisible(name), ensure_ascii=False)
