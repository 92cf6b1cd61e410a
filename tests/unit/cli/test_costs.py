"""rye costs: a table, JSON, or comma-separated values."""

import csv
import io

from ryecore.state.model import Cost
from ryecore.state.store import ThreadStore
from ryecore.state.waiting import run_blocking
from tests.unit.cli.conftest import Run
from tests.workspace import Workspace


def test_the_command_prints_a_table_json_and_csv(workspace: Workspace, run: Run) -> None:
    store = ThreadStore.open(workspace.project / ".ai", workspace.user / ".ai")
    run_blocking(store.registry.register("acme/x/x-1", "directive:acme/x", model="m/1"))
    cost = Cost(turns=2, input_tokens=1500, output_tokens=20, spend_microcents=25_000_000)
    run_blocking(store.registry.set_cost("acme/x/x-1", cost))
    store.close()
    shown = run("costs")
    assert shown.code == 0, shown.err
    assert "directive:acme/x" in shown.out
    assert "$0.25" in shown.out
    as_json = run("costs", "--by", "model", "--json").json
    assert as_json["rows"][0]["name"] == "m/1"
    assert as_json["rows"][0]["spend"] == 0.25
    (line,) = csv.DictReader(io.StringIO(run("costs", "--since", "30d", "--csv").out))
    assert (line["name"], line["turns"], line["spend_usd"]) == (
        "directive:acme/x",
        "2",
        "0.25000000",
    )
    assert run("costs", "--label", "tenant=none").out.strip() == "no costs"
    refused = run("costs", "--by", "colour")
    assert refused.code == 2
    assert "label:NAME" in refused.err
