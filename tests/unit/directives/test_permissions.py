"""`<permissions>`: what each form grants, and what is refused."""

import pytest

from ryecore.errors import MetadataError
from tests.unit.directives.files import file, parse


def permissions(inside):
    return parse(file(metadata=f"<permissions>{inside}</permissions>")).permissions


@pytest.mark.parametrize(
    ("inside", "granted"),
    [
        ("", []),
        ("*", ["rye.*"]),
        ("<execute>*</execute>", ["rye.execute.*"]),
        ("<fetch> * </fetch>", ["rye.fetch.*"]),
        ("<execute><tool>rye/bash</tool></execute>", ["rye.execute.tool.rye.bash"]),
        ("<execute><tool>acme/*</tool></execute>", ["rye.execute.tool.acme.*"]),
        ("<execute><tool>*</tool></execute>", ["rye.execute.tool.*"]),
        (
            "<fetch><knowledge>agency-kiwi/*</knowledge></fetch>",
            ["rye.fetch.knowledge.agency-kiwi.*"],
        ),
        ("<execute><directive>a.b</directive></execute>", ["rye.execute.directive.a.b"]),
        ("<ask>*</ask>", ["rye.ask.*"]),
        ("<ask><elicit>acme/*</elicit></ask>", ["rye.ask.elicit.acme.*"]),
        ("<sign><tool>a/b</tool></sign>", ["rye.sign.tool.a.b"]),
        (
            "<execute><tool>a</tool><tool>a</tool><tool>b</tool></execute><fetch>*</fetch>",
            ["rye.execute.tool.a", "rye.execute.tool.b", "rye.fetch.*"],
        ),
    ],
)
def test_each_form_grants_its_capability(inside, granted):
    assert list(permissions(inside).capabilities) == granted


def test_acknowledging_a_risk_takes_no_capability_away():
    found = permissions('*<acknowledge risk="unrestricted">It is a test.</acknowledge>')
    assert found.capabilities == ("rye.*",)
    assert [(one.risk, one.reason) for one in found.risks] == [("unrestricted", "It is a test.")]


@pytest.mark.parametrize(
    ("inside", "match"),
    [
        ("<write>*</write>", "<write>; valid are <execute>, <fetch>, <sign>, <ask>, <acknowledge>"),
        ("all", "text in it is"),
        ("<execute>rye/bash</execute>", "write \\*, or name items"),
        ("<execute/>", "grants nothing"),
        ("<ask><tool>a</tool></ask>", "<tool>; valid are <elicit>, <sample>, <roots>"),
        ("<execute><config>a</config></execute>", "<config>; valid are <tool>"),
        ("<execute><tool>../x</tool></execute>", "neither an id nor a pattern"),
        ("<execute><tool>a b</tool></execute>", "neither an id nor a pattern"),
        ("<execute><tool></tool></execute>", "neither an id nor a pattern"),
        ("<execute><tool x='1'>a</tool></execute>", "attribute 'x'"),
        ("<acknowledge>why</acknowledge>", "has no risk"),
    ],
)
def test_what_grants_nothing_that_exists_is_refused_with_its_line(inside, match):
    with pytest.raises(MetadataError, match=match) as refusal:
        permissions(inside)
    assert refusal.value.line == 5


def test_a_directive_without_permissions_declares_none():
    assert not parse(file()).declares_permissions
    assert parse(file(metadata="<permissions/>")).declares_permissions
