import json
import os
from pathlib import Path

import pytest
from attrs import evolve

from ryecore.errors import ConfigError
from ryecore.lillux.keys import SigningKey
from ryecore.node.callers import METRICS_SCOPE, Caller, Callers

_NODE = SigningKey.generate()
_ALICE = Caller(
    SigningKey.generate().public, label="alice", scopes=("rye.execute.tool.acme.*",), max_runs=2,
    max_spend_microcents=5,
)  # fmt: skip


def test_a_caller_is_found_as_it_was_allowed(tmp_path: Path) -> None:
    Callers(tmp_path, _NODE).allow(_ALICE)

    found = Callers(tmp_path, _NODE).find(_ALICE.fingerprint)

    assert found == _ALICE
    assert _ALICE.may("rye.execute.tool.acme.x")
    assert not _ALICE.may(METRICS_SCOPE)


@pytest.mark.parametrize("change", ["scope", "copied", "other_key", "broken"])
def test_a_file_that_the_node_did_not_sign_counts_as_none(tmp_path: Path, change: str) -> None:
    callers = Callers(tmp_path, _NODE)
    path = callers.allow(_ALICE)
    fingerprint = _ALICE.fingerprint
    assert callers.find(fingerprint)

    document = json.loads(path.read_text())
    match change:
        case "scope":
            document["scopes"] = ["rye.*"]
        case "copied":
            fingerprint = SigningKey.generate().public.fingerprint
        case "other_key":
            Callers(tmp_path, SigningKey.generate()).allow(_ALICE)
            document = json.loads(path.read_text())
    text = "{" if change == "broken" else json.dumps(document)
    (tmp_path / "callers" / f"{fingerprint}.json").write_text(text)

    assert callers.find(fingerprint) is None
    assert [one.name for one in callers.invalid()] == [f"{fingerprint}.json"]


def test_a_running_node_sees_a_revoked_and_a_changed_caller(tmp_path: Path) -> None:
    served, operator = Callers(tmp_path, _NODE), Callers(tmp_path, _NODE)
    operator.allow(_ALICE)
    assert served.find(_ALICE.fingerprint) == _ALICE

    operator.allow(evolve(_ALICE, max_runs=3))
    changed = served.find(_ALICE.fingerprint)
    assert changed is not None
    assert changed.max_runs == 3

    assert operator.revoke(_ALICE.fingerprint)
    assert served.find(_ALICE.fingerprint) is None
    assert not operator.revoke(_ALICE.fingerprint)
    assert not operator.revoke("../../x")


def test_what_is_no_file_counts_as_none_and_is_not_waited_for(tmp_path: Path) -> None:
    callers = Callers(tmp_path, _NODE)
    path = callers.allow(_ALICE)
    path.unlink()
    os.mkfifo(path)
    assert callers.find(_ALICE.fingerprint) is None
    assert callers.invalid() == [path]


@pytest.mark.parametrize("time", ["2020-01-01T00:00:00Z", "2030", "2030-01-01"])
def test_a_caller_ends_at_a_time_in_the_future(tmp_path: Path, time: str) -> None:
    with pytest.raises(ConfigError, match="time in the future"):
        Callers(tmp_path, _NODE).allow(evolve(_ALICE, not_after=time))
