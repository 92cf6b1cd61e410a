"""The document of a run in a queue, which machines with other versions of ryecore may read."""

import json

import pytest

from ryecore.errors import StateError
from ryecore.items.refs import ItemRef
from ryecore.policy import CallContext
from ryecore.policy.limits import Limits
from ryecore.runs.queued_run import QueuedRun
from ryecore.runs.request import RunRequest


def test_a_document_is_read_as_it_was_written_but_for_what_is_one_machine_s() -> None:
    request = RunRequest(
        ItemRef.parse("directive:acme/order"),
        {"id": 7},
        Limits(turns=8),
        queue="default",
    ).with_key("once", None)
    ctx = CallContext(
        capabilities=frozenset({"rye.execute.*"}), deadline=12.5, labels={"tenant": "acme"}
    )
    written = QueuedRun(request, ctx, "ab" * 32)
    read = QueuedRun.from_text(written.to_text())
    assert read == written
    assert (read.request.inputs, read.request.queue) == ({"id": 7}, "default")
    assert (read.request.start_key, read.ctx.deadline) == (None, None)
    assert read.ctx.labels == {"tenant": "acme"}


@pytest.mark.parametrize("version", [None, 0, 2])
def test_another_version_is_refused_and_the_refusal_says_what_to_do(version: int | None) -> None:
    text = QueuedRun(RunRequest(ItemRef.parse("directive:acme/order")), CallContext()).to_text()
    other = {**json.loads(text), "version": version}
    with pytest.raises(StateError, match=f"has the version {version}") as refused:
        QueuedRun.from_text(json.dumps(other))
    assert "same version of ryecore" in refused.value.next_step
